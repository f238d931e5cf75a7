#include "keep/pools.h"

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Why it is safe to raise them: what they count is bounded in each sandbox by something else.
 * fs.file-max: an open file is charged to the memory of its sandbox, and the processes of one may
 * hold 4,096 each. At the kernel's own value two sandboxes could leave no file to open for any
 * program of the host. systemd sets the same. kernel.pty.max: each instance of terminals has a
 * maximum of its own (PRIVSEP_TERMINALS_MAX); 24 sandboxes could leave none of the usual 4,096. The
 * value is the kernel's greatest. */
static const struct {
    const char *path;
    uint64_t value;
} pools[] = {
    {"/proc/sys/fs/file-max", INT64_MAX},
    {"/proc/sys/kernel/pty/max", 1 << 20},
};

/* Copies of what was sent, with the time, in a queue that no control group is charged with, asked
 * for by a message that no filter sees (net_bounds.h). Linux before 6.13 has the setting once for
 * the host. Why it is safe to switch it off there: with it off a program without CAP_NET_RAW gets
 * the times of what it sent without copies only (SOF_TIMESTAMPING_OPT_TSONLY), which is what the
 * setting is there for. */
#define STAMPS "/proc/sys/net/core/tstamp_allow_data"

static void switch_off(const char *path)
{
    char text[64];

    if (io_read_text_at(AT_FDCWD, path, text, sizeof(text)) < 0 || strtoull(text, NULL, 10) == 0)
        return;
    int rc = io_write_text_at(AT_FDCWD, path, "0");
    if (rc < 0)
        log_warn("%s stays on, so a sandbox can take more kernel memory than planned: %s", path,
                 strerror(-rc));
    else
        log_info("%s switched off: this kernel has it once for all sandboxes and the host", path);
}

static void raise_pool(const char *path, uint64_t value)
{
    char text[64], number[32];

    if (io_read_text_at(AT_FDCWD, path, text, sizeof(text)) < 0)
        return;
    uint64_t now = strtoull(text, NULL, 10);
    if (now >= value)
        return;
    snprintf(number, sizeof(number), "%" PRIu64, value);
    int rc = io_write_text_at(AT_FDCWD, path, number);
    if (rc < 0)
        log_warn("%s stays at %" PRIu64 " for all sandboxes and the host together: %s", path, now,
                 strerror(-rc));
    else
        log_info("%s raised from %" PRIu64 " to %" PRIu64, path, now, value);
}

/* Whether a network namespace has a value of its own, in a child's new one. */
static bool is_for_each_network(const char *path)
{
    int status;
    pid_t pid = fork();

    if (pid == 0)
        _exit(unshare(CLONE_NEWNET) == 0 && access(path, F_OK) == 0 ? 0 : 1);
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

void pools_set(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(pools); i++)
        raise_pool(pools[i].path, pools[i].value);
    if (access(STAMPS, F_OK) == 0 && !is_for_each_network(STAMPS))
        switch_off(STAMPS);
}
