/* A direction of a tunnel: a descriptor to read, a descriptor to write, and a pipe that bytes are
 * in only while the second is full. Messages of less than a page are copied, a stream is spliced. A
 * half remembers what it may still do, for its epoll tells of changes alone. */

#include "egress/flow/tunnel_half.h"

#include "base/io.h"
#include "base/util.h"
#include "egress/flow/flow.h"
#include "egress/flow/greeting.h"
#include "egress/flow/registry.h"
#include "egress/flow/sandbox.h"
#include "egress/tls/turns.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define PIPE_BYTES        (256u * 1024u)
#define SMALL_BYTES       4096u                /* a page: any empty pipe takes that */
#define BULK_BYTES        (4u * SMALL_BYTES)   /* in a row: then it is a stream */
#define LIMITED_BYTES     (64u * 1024u)        /* at a time, where a sandbox's bytes are limited */
#define TURN_BYTES        (4u * 1024u * 1024u) /* of one direction, before others get their turn */
#define CHECK_EVERY_BYTES (32u * 1024u)        /* between looks at whether its time is over */

/* A client that ended its side may wait for an answer, or have gone: over TCP both look the same
 * until it is sent something. After a client has gone its kernel answers probes for as long as it
 * remembers the connection, a minute. */
#define PROBE_IDLE_S  10
#define PROBE_AGAIN_S 10
#define PROBE_TIMES   3

/* -- pipes ------------------------------------------------------------------------------------- */

static int pipe_get(struct tunnel_pipes *pool, struct tunnel_pipe *p)
{
    if (pool->count > 0) {
        *p = pool->pipe[--pool->count];
        return 0;
    }
    return io_big_pipe(&p->in, &p->out, PIPE_BYTES);
}

static void pipe_close(struct tunnel_pipe *p)
{
    util_close(&p->in);
    util_close(&p->out);
}

/* Only an empty pipe is used again: no flow's bytes reach another flow. */
void tunnel_half_drop_pipe(struct tunnel_pipes *pool, struct tunnel_half *h)
{
    if (h->pipe.in < 0)
        return;
    if (h->held == 0 && pool->count < TUNNEL_PIPES_MAX)
        pool->pipe[pool->count++] = h->pipe;
    else
        pipe_close(&h->pipe);
    h->pipe = (struct tunnel_pipe){-1, -1};
    h->held = 0;
}

/* -- moving ------------------------------------------------------------------------------------ */

/* Bytes that came before are still passed on. */
static int lose_from(struct tunnel_half *h)
{
    h->eof = h->reset = true;
    return 0;
}

static int lose_to(struct tunnel_half *h)
{
    h->dead = true;
    return 0;
}

/* 1 it moved, 0 nothing to do now. */
static int drain(struct tunnel_half *h)
{
    ssize_t n;

    if (h->held == 0 || !h->writable || h->dead)
        return 0;
    n = splice(h->pipe.out, NULL, h->to, NULL, h->held, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (n < 0 && errno == EAGAIN) {
        h->writable = false;
        return 0;
    }
    if (n < 0)
        return errno == EINTR ? 1 : lose_to(h);
    h->held -= (size_t)n;
    *h->count += (uint64_t)n;
    return 1;
}

static void nothing_to_read(struct tunnel_half *h)
{
    h->readable = false;
    h->bulk = h->run >= BULK_BYTES;
    h->run = 0;
}

/* The rest of a small message that the other side did not take waits in the pipe. */
static int keep(struct tunnel_pipes *pool, struct tunnel_half *h, const char *bytes, size_t n)
{
    int rc = h->pipe.in < 0 ? pipe_get(pool, &h->pipe) : 0;

    if (rc < 0)
        return rc;
    if (write(h->pipe.in, bytes, n) != (ssize_t)n)
        return -EIO;
    h->held = n;
    return 1;
}

/* n bytes of a first line are about to pass. 0, or -EACCES: the flow is cut and noted. */
static int follow_line(struct tunnel_half *h, const char *bytes, size_t n)
{
    enum first_line_end end = first_line_follow(&h->line, bytes, n);

    if (end == FIRST_LINE_IS_REQUEST) {
        flow_cut(h->line_flow, NULL, "first-bytes",
                 "a request whose first line begins as none does cannot be read here");
        return -EACCES;
    }
    if (end == FIRST_LINE_IS_NONE)
        h->line_flow = NULL;
    return 0;
}

/* A message that fits a page is copied: two calls, where splice(2) takes three that each cost more.
 * Results as those of drain(), or -errno. */
static int carry_small(struct tunnel_pipes *pool, struct tunnel_half *h)
{
    static char bytes[SMALL_BYTES]; /* nothing stays in it from one call to the next */
    ssize_t n = recv(h->from, bytes, sizeof(bytes), MSG_DONTWAIT), sent;

    if (n < 0 && errno == EAGAIN) {
        nothing_to_read(h);
        return 0;
    }
    if (n < 0)
        return errno == EINTR ? 1 : lose_from(h);
    h->eof = n == 0;
    h->run += (size_t)n;
    h->bulk = n == sizeof(bytes);
    /* epoll(7): less than was asked for is all there was; later bytes are an event. */
    if (n > 0 && !h->bulk && !h->ending)
        nothing_to_read(h);
    if (n > 0 && h->line_flow && follow_line(h, bytes, (size_t)n) < 0)
        return -EACCES;
    sent = n > 0 ? send(h->to, bytes, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
    if (sent < 0 && errno != EAGAIN && errno != EINTR)
        return lose_to(h);
    if (sent < n)
        h->writable = sent >= 0 || errno == EINTR;
    sent = MAX(sent, (ssize_t)0);
    *h->count += (uint64_t)sent;
    return sent < n ? keep(pool, h, bytes + sent, (size_t)(n - sent)) : 1;
}

/* The client's first bytes behind a server's greeting. 1: they may pass; 0: not yet; -errno:
 * never. */
static int pass_first(struct tunnel_half *h)
{
    int rc = greeting_inspect(h->greeting_flow, h->ending);

    if (rc == -EAGAIN)
        h->readable = false; /* more of them is an event */
    if (rc < 0)
        return rc == -EAGAIN ? 0 : rc;
    h->greeting_flow->greeted = false;
    h->greeting_flow = NULL;
    return 1;
}

/* room: bytes that the sandbox may still move. */
static int fill(struct tunnel_pipes *pool, struct tunnel_half *h, uint64_t allowance)
{
    /* Bytes that several connections hold between their ends are not counted yet. */
    size_t most = allowance == UINT64_MAX ? PIPE_BYTES
                                          : (size_t)MIN(allowance, (uint64_t)LIMITED_BYTES);
    ssize_t n;

    if (h->held > 0 || !h->readable || h->eof || h->dead)
        return 0;
    if (h->greeting_flow) {
        int rc = pass_first(h);

        if (rc <= 0)
            return rc;
    }
    if (h->line_flow) /* copied, whatever is left: by less than a page more than that */
        return h->writable ? carry_small(pool, h) : 0;
    if (!h->bulk && h->writable && allowance >= SMALL_BYTES)
        return carry_small(pool, h);
    if (h->pipe.in < 0) {
        int rc = pipe_get(pool, &h->pipe);

        if (rc < 0)
            return rc;
    }
    most = MIN(most, turns_piece(pool->turns));
    n = splice(h->from, NULL, h->pipe.in, NULL, most, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (n < 0 && errno == EAGAIN) {
        nothing_to_read(h);
        return 0;
    }
    if (n < 0)
        return errno == EINTR ? 1 : lose_from(h);
    if (n == 0) { /* its end, or a mark of urgent data, which recv(2) alone passes */
        h->bulk = false;
        return h->writable ? carry_small(pool, h) : 0;
    }
    h->held += (size_t)n;
    h->run += (size_t)n;
    return 1;
}

int tunnel_half_pump(struct tunnel_pipes *pool, struct tunnel_half *h, const struct sandbox *s)
{
    uint64_t end = *h->count + TURN_BYTES, check = *h->count + CHECK_EVERY_BYTES, allowance;
    bool over = false;
    int a, b;

    do {
        allowance = registry_bytes_left(s);
        a = allowance > 0 ? fill(pool, h, allowance) : 0; /* with none left the caller cuts */
        if (a < 0)
            return a;
        b = drain(h);
        if (*h->count >=
            check) { /* a look at the clock costs a question and its answer something */
            check = *h->count + CHECK_EVERY_BYTES;
            over = *h->count >= end || turns_is_over(pool->turns);
        }
    } while ((a > 0 || b > 0) && !over);
    if (h->held == 0)
        tunnel_half_drop_pipe(pool, h);
    if (h->eof && h->held == 0 && !h->shut && !h->reset && !h->dead) {
        h->shut = true;
        shutdown(h->to, SHUT_WR);
        io_set_keepalive(h->from, PROBE_IDLE_S, PROBE_AGAIN_S, PROBE_TIMES);
    }
    return over && (a > 0 || b > 0);
}

bool tunnel_half_is_passed(const struct tunnel_half *h)
{
    struct pollfd p = {.fd = h->to};
    int unsent = 0;

    if (h->dead)
        return true;
    if (!h->eof || h->held > 0)
        return false;
    if (ioctl(h->to, SIOCOUTQ, &unsent) < 0 || unsent <= 0)
        return true;
    return poll(&p, 1, 0) > 0; /* POLLERR or POLLHUP: nothing else was asked for */
}
