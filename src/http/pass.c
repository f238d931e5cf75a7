#include "http/pass.h"

#include "base/io.h"
#include "base/util.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define PIPE_BYTES (256u * 1024u)

void pass_init(struct pass *p, bool wanted)
{
    *p = (struct pass){.in = -1, .out = -1};
    p->off = !wanted || io_big_pipe(&p->in, &p->out, PIPE_BYTES) < 0;
}

void pass_free(struct pass *p)
{
    util_close(&p->in);
    util_close(&p->out);
    p->held = 0;
}

ssize_t pass_fill(struct pass *p, int fd, uint64_t n)
{
    ssize_t got;

    assert(p->held == 0);
    if (p->off || (p->in < 0 && io_big_pipe(&p->in, &p->out, PIPE_BYTES) < 0)) {
        p->off = true;
        return -EOPNOTSUPP;
    }
    do
        got = splice(fd, NULL, p->in, NULL, MIN(n, (uint64_t)PIPE_BYTES),
                     SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return errno == EINVAL ? -EOPNOTSUPP : -errno;
    p->held = (size_t)got;
    p->passed += (uint64_t)got;
    return got;
}

ssize_t pass_drain(struct pass *p, int fd)
{
    size_t before = p->held;

    while (p->held > 0) {
        ssize_t n = splice(p->out, NULL, fd, NULL, p->held, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            return -errno;
        if (n <= 0)
            break;
        p->held -= (size_t)n;
    }
    return (ssize_t)(before - p->held);
}

/* A pipe that cannot be emptied is no use any more: the next fill makes another. */
static int lost(struct pass *p, int r)
{
    pass_free(p);
    return r;
}

int pass_take(struct pass *p, struct buf *out)
{
    while (p->held > 0) {
        ssize_t n;

        if (buf_reserve(out, p->held) < 0)
            return lost(p, -ENOMEM);
        n = read(p->out, out->data + out->len, p->held);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return lost(p, n < 0 ? -errno : -EIO);
        buf_commit(out, (size_t)n);
        p->held -= (size_t)n;
    }
    return 0;
}

void pass_drop(struct pass *p)
{
    if (p->held > 0)
        (void)lost(p, 0);
}
