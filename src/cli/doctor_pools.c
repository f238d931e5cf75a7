/* Pools of the kernel that the whole host shares, and of which sandboxes together may take more
 * than there is. */
#include "cli/doctor.h"

#include "base/io.h"
#include "base/meminfo.h"
#include "base/util.h"
#include "sys/net_bounds.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define UNKNOWN 255 /* a child's exit status; else an index of net_bounds, or their number */

/* least or most: the bound below or above; 0: not looked at. */
static const struct {
    const char *path, *name;
    uint64_t least, most;
    const char *why;
} pools[] = {
    {"/proc/sys/fs/file-max", "fs.file-max", 10000000, 0,
     "two sandboxes can open as many files; `cay up` raises it"},
    {"/proc/sys/kernel/pty/max", "kernel.pty.max", 200000, 0,
     "few sandboxes can open as many terminals; `cay up` raises it"},
    {"/proc/sys/net/core/rmem_default", "net.core.rmem_default", 0, 1 << 20,
     "a sandbox can have 24 netlink sockets that hold as much each, outside of its memory limit"},
};

/* false: there is none, or it cannot be read. */
static bool read_number(const char *path, uint64_t *out)
{
    char text[64];

    if (io_read_text_at(AT_FDCWD, path, text, sizeof(text)) < 0)
        return false;
    *out = strtoull(text, NULL, 10);
    return true;
}

/* Of the settings that each sandbox gets a value of its own for: the first of which this kernel has
 * one for the whole host only, with more than that value. A new network namespace of a user's own,
 * as a sandbox's, tells. Settings of a module that is not loaded yet are not looked at. An index,
 * NET_BOUNDS, or UNKNOWN. */
static int unbound(void)
{
    bool exceeds[NET_BOUNDS];
    char path[128];
    uint64_t now;
    int status;

    for (size_t i = 0; i < NET_BOUNDS; i++) {
        snprintf(path, sizeof(path), "/proc/%s", net_bounds[i].path);
        exceeds[i] = read_number(path, &now) && now > net_bounds[i].value;
    }
    pid_t pid = fork();
    if (pid == 0) {
        size_t i = 0;
        if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
            _exit(UNKNOWN);
        for (; i < NET_BOUNDS; i++) {
            snprintf(path, sizeof(path), "/proc/%s", net_bounds[i].path);
            if (exceeds[i] && access(path, F_OK) < 0)
                break;
        }
        _exit((int)i);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return UNKNOWN;
    return WEXITSTATUS(status);
}

static bool say_unbound(struct doctor_result *r)
{
    int i = unbound();

    if (i == NET_BOUNDS)
        return false;
    r->level = DOCTOR_LIMITED;
    if (i > NET_BOUNDS)
        snprintf(r->text, sizeof(r->text),
                 "no network namespace can be made, so it is not known which of its settings this "
                 "kernel has for each sandbox");
    else
        snprintf(r->text, sizeof(r->text),
                 "/proc/%s: this kernel has one for the whole host, so a sandbox can take more "
                 "kernel memory than planned; set it to %u, or use a newer kernel",
                 net_bounds[i].path, net_bounds[i].value);
    return true;
}

static bool say_pool(struct doctor_result *r)
{
    for (size_t i = 0; i < ARRAY_SIZE(pools); i++) {
        uint64_t now;
        if (!read_number(pools[i].path, &now) ||
            (now >= pools[i].least && (pools[i].most == 0 || now <= pools[i].most)))
            continue;
        r->level = DOCTOR_LIMITED;
        snprintf(r->text, sizeof(r->text), "%s is %llu: %s", pools[i].name, (unsigned long long)now,
                 pools[i].why);
        return true;
    }
    return false;
}

/* Tells whether cay-privd can count locks on ranges (privd/locks.h). */
static bool say_uncounted(struct doctor_result *r)
{
    if (access("/sys/bus/event_source/devices/tracepoint", F_OK) == 0 &&
        access("/sys/kernel/tracing", F_OK) == 0)
        return false;
    r->level = DOCTOR_LIMITED;
    snprintf(r->text, sizeof(r->text),
             "this kernel has no perf or no tracepoints, so that locks on ranges of files (200 "
             "bytes of kernel memory each) are not bounded");
    return true;
}

void doctor_pools(struct doctor_result *r)
{
    if (say_pool(r) || say_unbound(r) || say_uncounted(r))
        return;
    r->level = DOCTOR_OK;
    snprintf(r->text, sizeof(r->text), "files, terminals and socket buffers suffice for all");
}

void doctor_memory(struct doctor_result *r)
{
    if (meminfo_is_short())
        doctor_say(
            r, DOCTOR_LIMITED,
            "little is left: no sandbox is started before it is asked for, so that each create "
            "takes longer");
    else
        doctor_say(r, DOCTOR_OK, "enough is left to start sandboxes before they are asked for");
}
