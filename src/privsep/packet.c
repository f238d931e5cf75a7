#include "privsep/packet.h"

#include "base/util.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

/* Command sandbox for one control message more than is allowed, so that too many arrive and are
 * closed instead of being cut silently. */
#define CONTROL_SIZE (CMSG_SPACE(sizeof(int) * PRIVSEP_MAX_FDS) + CMSG_SPACE(sizeof(int)))

void privsep_packet_close(struct privsep_packet *p)
{
    for (size_t i = 0; i < p->n_fds; i++)
        close(p->fds[i]);
    p->n_fds = 0;
}

/* Takes the descriptors of one control message; those that do not fit are closed. */
static bool take_fds(struct privsep_packet *p, struct cmsghdr *c)
{
    size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    bool fits = true;

    for (size_t i = 0; i < n; i++) {
        int fd;

        memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
        if (p->n_fds < PRIVSEP_MAX_FDS) {
            p->fds[p->n_fds++] = fd;
        } else {
            close(fd);
            fits = false;
        }
    }
    return fits;
}

static bool take_control(struct privsep_packet *p, struct msghdr *h)
{
    bool good = (h->msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
            good = take_fds(p, c) && good;
        else
            good = false;
    }
    return good;
}

int privsep_packet_recv(int fd, struct privsep_packet *p)
{
    union {
        struct cmsghdr align;
        char bytes[CONTROL_SIZE];
    } control;
    struct iovec io = {&p->msg, sizeof(p->msg)};
    struct msghdr h = {.msg_iov = &io,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof(control.bytes)};
    ssize_t n;

    p->n_fds = 0;
    do
        n = recvmsg(fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    if (n == 0 && h.msg_controllen == 0)
        return 0;
    if (!take_control(p, &h) || n != sizeof(p->msg)) {
        privsep_packet_close(p);
        return -EPROTO;
    }
    return 1;
}

int privsep_packet_send(int fd, const struct privsep_packet *p)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * PRIVSEP_MAX_FDS)];
    } control;
    struct iovec io = {(void *)(uintptr_t)&p->msg, sizeof(p->msg)};
    struct msghdr h = {.msg_iov = &io, .msg_iovlen = 1};
    ssize_t n;

    if (p->n_fds > 0) {
        struct cmsghdr *c = &control.align;

        memset(&control, 0, sizeof(control));
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * p->n_fds);
        memcpy(CMSG_DATA(c), p->fds, sizeof(int) * p->n_fds);
        h.msg_control = control.bytes;
        h.msg_controllen = CMSG_SPACE(sizeof(int) * p->n_fds);
    }
    do
        n = sendmsg(fd, &h, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    return n == sizeof(p->msg) ? 0 : -EPROTO;
}
