#include "agent/netlink.h"

#include "agent/filters.h"
#include "base/io.h"
#include "sys/filter_netlink.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#ifndef SECCOMP_ADDFD_FLAG_SEND
#define SECCOMP_ADDFD_FLAG_SEND (1UL << 1)
#endif

#define NOTICE_SIZE     256 /* more than this kernel's struct: a newer one may write more */
#define PROTOCOLS_BYTES 16384

struct netlink {
    uv_poll_t poll;
    const struct agent *agent; /* its spawn.netlink_pass is the newest */
    int max;
    struct filters *filters; /* NULL: programs have none of their own, and nothing asks */
};

union notice {
    struct seccomp_notif of;
    char command_sandbox[NOTICE_SIZE];
};

union answer {
    struct seccomp_notif_resp of;
    char command_sandbox[NOTICE_SIZE];
};

/* How many the programs of this network namespace have; the kernel's own are not counted there.
 * Negative: that cannot be told. The names of the file are the kernel's, and fixed. */
static int count_sockets(void)
{
    char text[PROTOCOLS_BYTES];
    int ret = io_read_text_at(AT_FDCWD, "/proc/net/protocols", text, sizeof(text)), count;
    const char *line = ret < 0 ? NULL : strstr(text, "\nNETLINK ");

    if (!line || sscanf(line, " NETLINK %*u %d", &count) != 1 || count < 0)
        return -EIO;
    return count;
}

/* The socket that was asked for, or -errno. Protocols but the one of routes, and other bits, never
 * come here (sys/filter.c), and would be refused. */
static int make_socket(const struct netlink *n, const struct seccomp_data *call)
{
    uint32_t type = (uint32_t)call->args[1], protocol = (uint32_t)call->args[2];
    uint32_t flags = type & (SOCK_NONBLOCK | SOCK_CLOEXEC);
    const uint32_t *pass = n->agent->spawn.netlink_pass;
    long fd;

    if (call->nr != SYS_socket || (uint32_t)call->args[0] != AF_NETLINK)
        return -ENOSYS;
    if (protocol != NETLINK_ROUTE || (type != (SOCK_RAW | flags) && type != (SOCK_DGRAM | flags)))
        return -EPROTONOSUPPORT;
    int count = count_sockets();
    if (count < 0 || count >= n->max)
        return -ENOBUFS;
    fd = syscall(SYS_socket, (uint64_t)AF_NETLINK,
                 filter_netlink_argument(pass[0], FILTER_NETLINK_TYPE),
                 filter_netlink_argument(pass[1], NETLINK_ROUTE));
    if (fd < 0)
        return -errno;
    int ret = flags & SOCK_NONBLOCK ? io_set_nonblock((int)fd, true) : 0;
    if (ret < 0)
        close((int)fd);
    return ret < 0 ? ret : (int)fd;
}

/* Fails when the program has no descriptor left, or is gone. */
static int give_socket(uint64_t id, int fd, bool cloexec)
{
    struct seccomp_notif_addfd give = {.id = id,
                                       .flags = SECCOMP_ADDFD_FLAG_SEND,
                                       .srcfd = (uint32_t)fd,
                                       .newfd_flags = cloexec ? O_CLOEXEC : 0};

    return ioctl(AGENT_LISTENER_FD, SECCOMP_IOCTL_NOTIF_ADDFD, &give) < 0 ? -errno : 0;
}

static void on_call(uv_poll_t *poll, int status, int events UNUSED)
{
    const struct netlink *n = poll->data;
    union notice notice = {0};

    if (status < 0) {
        uv_poll_stop(poll);
        return;
    }
    /* Nothing there any more: the program was killed meanwhile. */
    if (ioctl(AGENT_LISTENER_FD, SECCOMP_IOCTL_NOTIF_RECV, &notice) < 0)
        return;
    if (n->filters && notice.of.data.nr != SYS_socket) {
        filters_requested(n->filters, &notice.of);
        return;
    }
    CLEANUP_CLOSE int fd = make_socket(n, &notice.of.data);
    int ret = fd < 0 ? fd : give_socket(notice.of.id, fd, notice.of.data.args[1] & SOCK_CLOEXEC);
    if (ret < 0) {
        union answer answer = {.of = {.id = notice.of.id, .error = ret}};
        (void)ioctl(AGENT_LISTENER_FD, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    }
}

/* Only in development mode and with a test's switch there is none; the loop may have that number
 * then. */
static bool has_listener(void)
{
    char path[32], target[32] = "";

    snprintf(path, sizeof(path), "/proc/self/fd/%d", AGENT_LISTENER_FD);
    return readlink(path, target, sizeof(target) - 1) > 0 &&
           strcmp(target, "anon_inode:seccomp notify") == 0;
}

int netlink_serve(struct agent *a)
{
    if (!has_listener())
        return 0;
    struct netlink *n = calloc(1, sizeof(*n));
    if (!n)
        return -ENOMEM;
    if (a->filters_max && !(n->filters = filters_new(a))) {
        free(n);
        return -ENOMEM;
    }
    n->agent = a;
    n->max = a->command_sandbox ? NETLINK_COMMAND_SANDBOX_MAX : NETLINK_MAX;
    n->poll.data = n;
    if (uv_poll_init(a->loop, &n->poll, AGENT_LISTENER_FD) < 0 ||
        uv_poll_start(&n->poll, UV_READABLE, on_call) < 0) {
        free(n);
        return -EIO;
    }
    uv_unref((uv_handle_t *)&n->poll);
    a->netlink = n;
    return 0;
}

void netlink_rest(struct agent *a)
{
    if (a->netlink)
        uv_poll_stop(&a->netlink->poll);
}

int netlink_go_on(struct agent *a)
{
    return a->netlink && uv_poll_start(&a->netlink->poll, UV_READABLE, on_call) < 0 ? -EIO : 0;
}
