#include "checkpoint/diag.h"

#include "base/util.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <sys/socket.h>
#include <unistd.h>

#define REPLY_BYTES 32768u /* the most that the kernel sends at a time */

struct question {
    bool (*is_one)(const void *arg, const void *answer, size_t len);
    const void *arg;
    bool found;
};

static int error_of(const struct nlmsgerr *e)
{
    return e->error < 0 ? e->error : -EPROTO;
}

static void check_answer(struct question *q, const struct nlmsghdr *h)
{
    if (h->nlmsg_type == SOCK_DIAG_BY_FAMILY && !q->found)
        q->found = q->is_one(q->arg, NLMSG_DATA(h), h->nlmsg_len - NLMSG_LENGTH(0));
}

/* 1: more comes; 0: that was all. */
static int read_reply(int fd, struct question *q)
{
    _Alignas(struct nlmsghdr) static char reply[REPLY_BYTES];
    ssize_t n = recv(fd, reply, sizeof(reply), MSG_TRUNC);

    if (n < 0 || n > (ssize_t)sizeof(reply))
        return n < 0 ? -errno : -EMSGSIZE;
    int left = (int)n;
    for (const struct nlmsghdr *h = (const struct nlmsghdr *)reply;
         left > 0 && NLMSG_OK(h, (unsigned)left); h = NLMSG_NEXT(h, left)) {
        if (h->nlmsg_type == NLMSG_DONE)
            return 0;
        if (h->nlmsg_type == NLMSG_ERROR)
            return error_of(NLMSG_DATA(h));
        check_answer(q, h);
    }
    return n > 0 ? 1 : -EPROTO;
}

int diag_find(const void *request, size_t size,
              bool (*is_one)(const void *arg, const void *answer, size_t len), const void *arg,
              bool *found)
{
    CLEANUP_CLOSE int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    struct question q = {.is_one = is_one, .arg = arg};
    int rc = 1;

    *found = false;
    if (fd < 0 || send(fd, request, size, 0) != (ssize_t)size)
        return -errno;
    while (rc == 1)
        rc = read_reply(fd, &q);
    *found = q.found;
    return rc;
}
