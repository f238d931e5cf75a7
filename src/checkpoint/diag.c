#include "checkpoint/diag.h"

#include "base/util.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#define REPLY_BYTES 32768u /* the most that the kernel sends at a time */

struct question {
    diag_is_one is_one;
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

/* The head is filled in here; the rest of the request is the caller's. */
static int find(struct nlmsghdr *request, size_t size, diag_is_one is_one, const void *arg,
                bool *found)
{
    CLEANUP_CLOSE int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    struct question q = {.is_one = is_one, .arg = arg};
    int rc = 1;

    *request = (struct nlmsghdr){.nlmsg_len = (uint32_t)size,
                                 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP};
    *found = false;
    if (fd < 0 || send(fd, request, size, 0) != (ssize_t)size)
        return -errno;
    while (rc == 1)
        rc = read_reply(fd, &q);
    *found = q.found;
    return rc;
}

static int find_tcp(uint8_t family, uint32_t states, uint8_t more, diag_is_one is_one, bool *found)
{
    struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 what;
    } request = {.what = {.sdiag_family = family,
                          .sdiag_protocol = IPPROTO_TCP,
                          .idiag_ext = more,
                          .idiag_states = states}};

    return find(&request.head, sizeof(request), is_one, NULL, found);
}

int diag_find_tcp(uint32_t states, uint8_t more, diag_is_one is_one, bool *found)
{
    int rc = find_tcp(AF_INET, states, more, is_one, found);

    return rc < 0 || *found ? rc : find_tcp(AF_INET6, states, more, is_one, found);
}

int diag_find_unix(uint32_t states, uint32_t more, diag_is_one is_one, const void *arg, bool *found)
{
    struct {
        struct nlmsghdr head;
        struct unix_diag_req what;
    } request = {.what = {.sdiag_family = AF_UNIX, .udiag_states = states, .udiag_show = more}};

    return find(&request.head, sizeof(request), is_one, arg, found);
}

void diag_each_attribute(const void *answer, size_t len, size_t head,
                         bool (*each)(void *arg, const struct rtattr *a), void *arg)
{
    const struct rtattr *a = (const void *)((const char *)answer + NLMSG_ALIGN(head));
    long left = (long)len - (long)NLMSG_ALIGN(head);

    while (RTA_OK(a, left) && each(arg, a))
        a = RTA_NEXT(a, left);
}
