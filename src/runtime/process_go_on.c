#include "runtime/process_go_on.h"

#include "base/io.h"
#include "base/log.h"
#include "base/test_bypass.h"
#include "contract/agent_go_on.h"
#include "runtime/slot.h"
#include "sys/fdpass.h"
#include "sys/ns.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>

#define ANSWER_S 20

/* --- the files -------------------------------------------------------------------------------- */

/* As another user for this one call. With its ids the kernel forgets that this task ends with
 * privd. */
static int open_as(const char *path, uint32_t uid)
{
    pid_t parent = getppid();
    int signal = 0;

    if (prctl(PR_GET_PDEATHSIG, &signal) < 0 || seteuid(uid) < 0)
        return -errno;
    int fd = open(path, O_WRONLY | O_CLOEXEC), rc = fd < 0 ? -errno : fd;
    if (seteuid(0) < 0 || prctl(PR_SET_PDEATHSIG, signal, 0, 0, 0) < 0 || getppid() != parent)
        abort();
    return rc;
}

/* The kernel compares the id that a file was opened by with that of the process which is moved,
 * unless it is the host's root. */
static int reopen_as(int *fd, uint32_t uid)
{
    char path[32];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", *fd);
    if (fchown(*fd, uid, (gid_t)-1) < 0)
        return -errno;
    int reopened = open_as(path, uid), rc = fchown(*fd, 0, (gid_t)-1) < 0 ? -errno : 0;
    if (reopened < 0)
        return reopened;
    util_close(fd);
    *fd = reopened;
    return rc;
}

int process_go_on_open(const struct runtime *rt, uint32_t slot, struct go_on_files *out)
{
    uint32_t agent_uid = runtime_slot_uid(rt, slot) + (TEST_BYPASS(AGENT_UID) ? 0 : AGENT_UID);

    *out = (struct go_on_files){.listener_fd = -1, .oom_fd = -1};
    int rc = cgroup_open_attach(rt->cgroups, slot, CGROUP_WORK, out->cgroup_fds);

    if (rc < 0)
        return rc;
    out->n_cgroup_fds = rc;
    out->oom_fd = cgroup_open_oom(rt->cgroups, slot, CGROUP_WORK);
    rc = 0;
    for (int i = 0; rc == 0 && i < out->n_cgroup_fds; i++)
        if (strcmp(cgroup_version(rt->cgroups), "v1") == 0)
            rc = reopen_as(&out->cgroup_fds[i], agent_uid);
    return rc;
}

void process_go_on_close(struct go_on_files *f)
{
    for (int i = 0; i < f->n_cgroup_fds; i++)
        util_close(&f->cgroup_fds[i]);
    util_close(&f->oom_fd);
}

/* --- the socket ------------------------------------------------------------------------------- */

/* The name is looked up in the network namespace that the socket was made in. */
static int socket_in(int net_fd, int flags)
{
    CLEANUP_CLOSE int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    int rc = home < 0 ? -errno : ns_enter(net_fd, CLONE_NEWNET);

    if (rc < 0)
        return rc;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0);
    rc = fd < 0 ? -errno : fd;
    if (ns_enter(home, CLONE_NEWNET) < 0) {
        log_error("there is no way back from a sandbox's network");
        abort();
    }
    return rc;
}

static int connect_in(int net_fd, int flags)
{
    const struct timeval most = {.tv_sec = ANSWER_S};
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    CLEANUP_CLOSE int fd = socket_in(net_fd, flags);

    if (fd < 0)
        return fd;
    memcpy(name.sun_path + 1, AGENT_GO_ON_NAME, sizeof(AGENT_GO_ON_NAME) - 1);
    socklen_t size = offsetof(struct sockaddr_un, sun_path) + sizeof(AGENT_GO_ON_NAME);
    if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most)) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most)) < 0 ||
        connect(fd, (const struct sockaddr *)&name, size) < 0)
        return -errno;
    return TAKE_FD(fd);
}

static int say(int sock, uint32_t kind, int boot_fd, const struct go_on_files *f)
{
    struct agent_go_on m = {.kind = kind};
    int fds[AGENT_GO_ON_FDS_MAX], n = 0;

    if (boot_fd >= 0)
        fds[n++] = boot_fd;
    if (f && f->listener_fd >= 0) {
        m.listener = 1;
        fds[n++] = f->listener_fd;
    }
    for (int i = 0; f && i < f->n_cgroup_fds; i++) {
        m.cgroup_fds++;
        fds[n++] = f->cgroup_fds[i];
    }
    if (f && f->oom_fd >= 0) {
        m.oom = 1;
        fds[n++] = f->oom_fd;
    }
    return fdpass_send(sock, &m, sizeof(m), fds, (size_t)n, 0);
}

/* Its sentence is cay-init's, and so a tenant's at worst: printable text. */
static int refused(const char *text, char why[static TASK_WHY_SIZE])
{
    snprintf(why, TASK_WHY_SIZE, "%s", text);
    for (char *c = why; *c; c++)
        if (!isprint((unsigned char)*c))
            *c = '?';
    return -EBUSY;
}

/* Until cay-init has closed its end, too: nothing of this is left in it. */
static int await_answer(int sock, char why[static TASK_WHY_SIZE])
{
    char text[1 + AGENT_GO_ON_TEXT], end;
    ssize_t n = recv(sock, text, sizeof(text) - 1, 0);

    if (n <= 0)
        return refused("cay-init does not answer", why);
    text[n] = '\0';
    if (text[0] != AGENT_READY)
        return refused(text + 1, why);
    return recv(sock, &end, 1, 0) == 0 ? 0 : refused("cay-init has more to say", why);
}

int process_go_on_take(int net_fd, char why[static TASK_WHY_SIZE])
{
    CLEANUP_CLOSE int sock = connect_in(net_fd, 0);
    int rc = sock < 0 ? sock : say(sock, AGENT_GO_ON_TAKE, -1, NULL);

    if (rc == -ECONNREFUSED)
        return refused("its cay-init is of an earlier version, which cannot be kept", why);
    return rc < 0 ? refused("cay-init is not reached", why) : await_answer(sock, why);
}

int process_go_on_back(int net_fd, const struct go_on_files *f)
{
    char why[TASK_WHY_SIZE];
    CLEANUP_CLOSE int sock = connect_in(net_fd, 0);
    int rc = sock < 0 ? sock : say(sock, AGENT_GO_ON_BACK, -1, f);

    return rc < 0 ? rc : await_answer(sock, why);
}

/* Without waiting: while cay-init stands still, a queue that is full stays so. -EAGAIN would be the
 * word for other work under way, after which a resume is tried again. */
int process_go_on_new(int net_fd, int boot_fd, const struct go_on_files *f)
{
    CLEANUP_CLOSE int sock = connect_in(net_fd, SOCK_NONBLOCK);
    int rc = sock < 0 ? sock : say(sock, AGENT_GO_ON_NEW, boot_fd, f);

    return rc == -EAGAIN ? -EIO : rc;
}
