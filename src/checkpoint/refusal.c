/* Named refusals, from the kernel's own words about each thread (/proc/PID/task/TID/status). A
 * thread with no_new_privs may have a Landlock domain, which CRIU neither keeps nor refuses: what
 * it denied would be allowed afterwards. A filter of a program's own is in no image, since cay's
 * are left out (scripts/criu.patches). A process that is traced cannot be dumped, and one of a
 * command sandbox is in namespaces that CRIU does not restore. A shared mapping of a memory file
 * comes back as memory of its own, as CRIU cannot open what is mapped without a right on the host:
 * bytes written through a descriptor of the file would no longer be seen in it. The end of a TCP
 * connection needs raw packets to be made anew, which no process of a sandbox may send: a
 * connection that has ended comes back as a socket without one (scripts/criu.patches), so one that
 * can still be read from is refused. Connections that wait at cay-init's own socket would be there
 * after a restore too, before cay-privd's. */

#include "checkpoint/refusal.h"

#include "base/io.h"
#include "checkpoint/agent_socket.h"
#include "checkpoint/connections.h"
#include "checkpoint/criu.h"
#include "checkpoint/ipc_objects.h"
#include "checkpoint/unsent.h"
#include "checkpoint/volume_sockets.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define STATUS_MAX 8192

/* The number after "\nname:"; a program's own name stands in the first line, where a line feed is
 * escaped. -1: there is none. */
static long field(const char *status, const char *name)
{
    const char *at = strstr(status, name);
    long value;

    return at && sscanf(at + strlen(name), "%ld", &value) == 1 ? value : -1;
}

/* Of a pid namespace below the sandbox's: "NSpid:\t<in the sandbox>\t<in its own>". */
static bool is_nested(const char *status)
{
    const char *line = strstr(status, "\nNSpid:\t");
    size_t head = strlen("\nNSpid:\t");

    return line && memchr(line + head, '\t', strcspn(line + head, "\n")) != NULL;
}

int refusal_of(const char *status, const char *pid, unsigned filters, struct checkpoint_why *why)
{
    if (strstr(status, "\nState:\tZ") || strstr(status, "\nState:\tX"))
        return 0;
    if (is_nested(status))
        return checkpoint_fail(why, -EOPNOTSUPP,
                               "process %s runs in a network of its own (a command with a policy)",
                               pid);
    if (field(status, "\nTracerPid:") != 0)
        return checkpoint_fail(why, -EOPNOTSUPP, "process %s is traced by a debugger", pid);
    if (field(status, "\nNoNewPrivs:") != 0)
        return checkpoint_fail(why, -EOPNOTSUPP,
                               "process %s has set no_new_privs: a Landlock domain would be lost",
                               pid);
    if (field(status, "\nSeccomp_filters:") != (long)filters)
        return checkpoint_fail(why, -EOPNOTSUPP, "process %s has a system call filter of its own",
                               pid);
    return 0;
}

struct check {
    int proc_fd;
    const char *pid; /* the process whose threads are looked at */
    unsigned filters, processes;
    int rc;
    struct checkpoint_why *why;
};

static bool is_number(const char *name)
{
    return name[0] >= '1' && name[0] <= '9';
}

/* A thread that has ended meanwhile is passed over. */
static bool each_thread(void *arg, const char *tid)
{
    struct check *c = arg;
    char path[64], status[STATUS_MAX];

    snprintf(path, sizeof(path), "%.16s/task/%.16s/status", c->pid, tid);
    ssize_t n = is_number(tid) ? io_read_text_at(c->proc_fd, path, status, sizeof(status))
                               : -ENOENT;
    if (n < 0) {
        c->rc = n == -ENOENT || n == -ESRCH ? 0
                                            : checkpoint_fail(c->why, (int)n, "reading %s", path);
        return c->rc == 0;
    }
    c->rc = refusal_of(status, c->pid, c->filters, c->why);
    return c->rc == 0;
}

/* "start-end rw-s offset device inode   /memfd:name (deleted)" */
bool refusal_is_shared_memory_file(const char *line)
{
    char flags[8];
    int at = 0;

    return sscanf(line, "%*x-%*x %7s %*x %*x:%*x %*u %n", flags, &at) == 1 && at > 0 &&
           flags[3] == 's' && strncmp(line + at, "/memfd:", strlen("/memfd:")) == 0;
}

/* A line that is longer than what is read comes in parts, none of which but the first begins as a
 * line does. */
static int check_mappings(const struct check *c)
{
    char path[64], line[512];

    snprintf(path, sizeof(path), "%.16s/maps", c->pid);
    int fd = openat(c->proc_fd, path, O_RDONLY | O_CLOEXEC);
    FILE *maps = fd < 0 ? NULL : fdopen(fd, "r");
    if (!maps) {
        int rc = -errno;

        util_close(&fd);
        return rc == -ENOENT || rc == -ESRCH ? 0 : checkpoint_fail(c->why, rc, "reading %s", path);
    }
    bool found = false;
    while (!found && fgets(line, sizeof(line), maps))
        found = refusal_is_shared_memory_file(line);
    fclose(maps);
    return found ? checkpoint_fail(c->why, -EOPNOTSUPP,
                                   "process %s shares a mapping of a memory file (memfd_create), "
                                   "which would no longer be that file's",
                                   c->pid)
                 : 0;
}

static int refuse_found(int rc, const bool *found, const char *reason, struct checkpoint_why *why)
{
    if (rc < 0)
        return checkpoint_fail(why, rc, "asking for the sandbox's sockets: %s", strerror(-rc));
    return *found ? checkpoint_fail(why, -EOPNOTSUPP, "%s", reason) : 0;
}

/* This process is in the sandbox's network namespace. */
static int check_sockets(int proc_fd, struct checkpoint_why *why)
{
    static const struct {
        int (*find)(bool *found);
        const char *reason;
    } checks[] = {
        {connections_find_half_closed,
         "a program has a TCP connection that is closed in one direction alone"},
        {connections_find_begun, "a program has a TCP connection that is just being made"},
        {unsent_find,
         "a program has sent more by a TCP connection than the other end has room for"},
        {agent_socket_find_waiting, "programs inside connect to cay-init's own socket"},
    };
    bool found = false;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(checks); i++)
        rc = refuse_found(checks[i].find(&found), &found, checks[i].reason, why);
    if (rc == 0)
        rc = refuse_found(
            volume_sockets_find(proc_fd, &found), &found,
            "a program has a socket whose name is in a volume, where another sandbox could "
            "change it",
            why);
    return rc;
}

int refusal_of_criu(const char *line)
{
    static const int of_the_host[] = {ENOSPC, EFBIG, EDQUOT, ENOMEM, EMFILE, ENFILE, EIO};

    if (strncmp(line, CRIU_SAYS CRIU_SCRIPT_FAILED, strlen(CRIU_SAYS CRIU_SCRIPT_FAILED)) == 0)
        return -EIO; /* it was ended: else it has told its reason itself, before */
    for (size_t i = 0; i < ARRAY_SIZE(of_the_host); i++)
        if (strstr(line, strerror(of_the_host[i])))
            return -of_the_host[i];
    return -EOPNOTSUPP;
}

/* Each costs CRIU some milliseconds, more the more there are, and the sandbox is ended by a dump
 * that does not come to its end in time. */
static int count(struct check *c)
{
    if (++c->processes <= CHECKPOINT_PROCESSES_MAX)
        return 0;
    return checkpoint_fail(c->why, -EOPNOTSUPP, "more than %u processes run in it",
                           CHECKPOINT_PROCESSES_MAX);
}

static bool each_process(void *arg, const char *pid)
{
    struct check *c = arg;
    char path[64];

    if (!is_number(pid))
        return true;
    c->rc = count(c);
    if (c->rc < 0)
        return false;
    c->pid = pid;
    snprintf(path, sizeof(path), "%.16s/task", pid);
    int rc = io_each_name_at(c->proc_fd, path, each_thread, c);
    if (c->rc == 0 && rc < 0 && rc != -ENOENT && rc != -ESRCH)
        c->rc = checkpoint_fail(c->why, rc, "reading %s: %s", path, strerror(-rc));
    if (c->rc == 0)
        c->rc = check_mappings(c);
    return c->rc == 0;
}

int refusal_check(pid_t pid, struct checkpoint_why *why)
{
    char path[48], status[STATUS_MAX];
    struct check c = {.why = why};

    snprintf(path, sizeof(path), "/proc/%d/root/proc", (int)pid);
    CLEANUP_CLOSE int proc = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (proc < 0)
        return checkpoint_fail(why, -errno, "opening the sandbox's /proc: %s", strerror(errno));
    ssize_t n = io_read_text_at(proc, "1/status", status, sizeof(status));
    long filters = n < 0 ? -1 : field(status, "\nSeccomp_filters:");
    if (filters < 0)
        return checkpoint_fail(why, -EIO, "the sandbox's PID 1 cannot be looked at");
    c.proc_fd = proc;
    c.filters = (unsigned)filters;
    int rc = io_each_name_at(proc, ".", each_process, &c);
    if (rc == 0 && c.rc == 0)
        c.rc = check_sockets(proc, why);
    if (rc == 0 && c.rc == 0)
        c.rc = ipc_objects_check(pid, why);
    return c.rc == 0 && rc < 0 ? checkpoint_fail(why, rc, "reading the sandbox's /proc") : c.rc;
}
