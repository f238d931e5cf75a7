#include "sys/fdpass.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

union control {
    struct cmsghdr header;
    char buffer[CMSG_SPACE(sizeof(int) * FDPASS_MAX)];
};

int fdpass_send(int sock, const void *bytes, size_t n, const int *fds, size_t n_fds, int flags)
{
    union control control = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = n};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

    if (n_fds > FDPASS_MAX)
        return -EINVAL;
    if (n_fds > 0) {
        msg.msg_control = control.buffer;
        msg.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
        struct cmsghdr *header = CMSG_FIRSTHDR(&msg);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
        memcpy(CMSG_DATA(header), fds, sizeof(int) * n_fds);
    }
    for (;;) {
        ssize_t sent = sendmsg(sock, &msg, flags | MSG_NOSIGNAL);
        if (sent >= 0)
            return (size_t)sent == n ? 0 : -EMSGSIZE;
        if (errno != EINTR)
            return -errno;
    }
}

static void close_all(int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        util_close(&fds[i]);
}

/* Every descriptor that came is in all[] afterwards, whatever the sender's shape of control data.
 */
static size_t collect(struct msghdr *msg, int all[static FDPASS_MAX])
{
    size_t count = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n && count < FDPASS_MAX; i++)
            memcpy(&all[count++], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
    }
    return count;
}

ssize_t fdpass_recv(int sock, void *out, size_t size, int *fds, size_t max_fds, size_t *n_fds,
                    int flags)
{
    union control control;
    int all[FDPASS_MAX];
    struct iovec iov = {.iov_base = out, .iov_len = size};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.buffer,
                         .msg_controllen = sizeof(control.buffer)};
    ssize_t got;

    do {
        got = recvmsg(sock, &msg, flags | MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    if (got < 0)
        return -errno;
    size_t count = collect(&msg, all);
    if ((msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) || count > max_fds) {
        close_all(all, count);
        return -EBADMSG;
    }
    if (count > 0)
        memcpy(fds, all, count * sizeof(int));
    if (n_fds)
        *n_fds = count;
    return got;
}
