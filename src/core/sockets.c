/* Sockets in a sandbox's network, for the gateway and for core's own calls. privd makes them in
 * batches; what a batch holds beyond the need of the moment is the sandbox's socket cache. It is
 * dropped a second after the last use, so that an idle sandbox costs cayd no descriptor. privd
 * makes none while a snapshot is taken of the sandbox: it is asked again (busy_wait.h). */

#include "core/sockets.h"

#include "base/clock.h"
#include "core/busy_wait.h"
#include "core/call.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/deferred.h"
#include "core/metrics.h"
#include "core/reserve.h"
#include "core/sandbox.h"
#include "core/timers.h"

#include <errno.h>
#include <string.h>

#define SOCKET_CACHE_KEEP_MS 1000u
#define SOCKET_CACHE_BATCH   4u /* sockets asked for beyond the need, while in use */
#define CONNECTING           "opening a connection into the sandbox"

struct socket_wait {
    struct busy_wait busy;
    size_t n;
    int fds[CORE_SOCKET_CACHE_MAX]; /* from the socket cache: answered in the next turn */
    struct err why;
    void (*done)(void *arg, int *fds, size_t n, const struct err *why);
    void *arg;
    struct deferred later;
};

void sockets_discard(struct sandbox_obj *o)
{
    for (size_t i = 0; i < o->socket_cache_n; i++)
        close(o->socket_cache[i]);
    o->socket_cache_n = 0;
    timers_cancel(&o->core->timers, &o->socket_cache_expiry);
}

void sockets_on_expiry(struct timer *t)
{
    sockets_discard(CONTAINER_OF(t, struct sandbox_obj, socket_cache_expiry));
}

void sockets_put(struct sandbox_obj *o, int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (o->socket_cache_n < CORE_SOCKET_CACHE_MAX)
            o->socket_cache[o->socket_cache_n++] = fds[i];
        else
            close(fds[i]);
    }
    if (o->socket_cache_n)
        timers_set(&o->core->timers, &o->socket_cache_expiry,
                   clock_mono_ms() + SOCKET_CACHE_KEEP_MS);
}

static void answer(struct socket_wait *w, int *fds, const struct err *why)
{
    w->done(w->arg, why ? NULL : fds, why ? 0 : w->n, why);
    free(w);
}

static void answer_deferred(void *arg)
{
    struct socket_wait *w = arg;

    answer(w, w->fds, w->why.code ? &w->why : NULL);
}

static void close_all(int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        close(fds[i]);
}

static void fail(struct socket_wait *w, int64_t status)
{
    call_privd_err(&w->why, status, CONNECTING);
    answer(w, NULL, &w->why);
}

static int64_t request_sockets(struct sandbox_obj *o, struct socket_wait *w, bool in_use);

static void request_again(struct busy_wait *busy, struct sandbox_obj *o, int status)
{
    struct socket_wait *w = CONTAINER_OF(busy, struct socket_wait, busy);
    int64_t rc = o ? request_sockets(o, w, false) : status;

    if (rc < 0)
        fail(w, rc);
}

static void on_reply(struct core *c, const char *id, int status, const struct privsep_msg *m,
                     int *fds, size_t n_fds, void *arg)
{
    struct socket_wait *w = arg;
    struct sandbox_obj *o = sandbox_get(c, NULL, id);

    if (status == 0 && n_fds < w->n)
        status = -EPROTO;
    if (status < 0) {
        close_all(fds, n_fds);
        if (!busy_wait_again(&w->busy, c, id, status))
            fail(w, status);
        return;
    }
    if (o && sandbox_life(o)->reachable)
        sockets_put(o, fds + w->n, n_fds - w->n);
    else
        close_all(fds + w->n, n_fds - w->n);
    answer(w, fds, NULL);
}

static int64_t request_sockets(struct sandbox_obj *o, struct socket_wait *w, bool in_use)
{
    struct privsep_msg m = {.op = PRIVSEP_CONNECT, .slot = o->s.slot, .gen = o->s.gen};

    m.u.connect.count = (uint32_t)MIN(w->n + (in_use ? SOCKET_CACHE_BATCH : 0), PRIVSEP_MAX_FDS);
    return call_privd(o->core, o->s.id, &m, on_reply, w);
}

void sockets_get(struct sandbox_obj *o, size_t n,
                 void (*done)(void *arg, int *fds, size_t n, const struct err *why), void *arg)
{
    struct core *c = o->core;
    struct socket_wait *w = RESERVE_NEW(&c->reserve, struct socket_wait);
    uint64_t now = clock_mono_ms();
    bool in_use = o->sockets_used_ms && now - o->sockets_used_ms < SOCKET_CACHE_KEEP_MS;
    int64_t rc;

    w->n = n;
    w->done = done;
    w->arg = arg;
    busy_wait_begin(&w->busy, request_again);
    o->sockets_used_ms = now;
    if (o->socket_cache_n >= n) {
        o->socket_cache_n -= n;
        memcpy(w->fds, o->socket_cache + o->socket_cache_n, n * sizeof(int));
        if (o->socket_cache_n)
            timers_set(&c->timers, &o->socket_cache_expiry, now + SOCKET_CACHE_KEEP_MS);
        core_defer(c, &w->later, answer_deferred, w);
        return;
    }
    rc = o->known_to_privd ? request_sockets(o, w, in_use) : -ESTALE;
    if (rc < 0) {
        call_privd_err(&w->why, rc, CONNECTING);
        core_defer(c, &w->later, answer_deferred, w);
    }
}

/* A sandbox that serves a volume's contents is visible to no client, but the gateway leads to
 * it. */
static enum err_code find(struct core *c, const char *id, struct sandbox_obj **out, struct err *e)
{
    struct sandbox_obj *o = sandbox_get(c, NULL, id);

    if (!o || !o->s.serves_volume || !sandbox_life(o)->reachable)
        return sandbox_reachable(c, NULL, id, out, e);
    *out = o;
    return ERR_OK;
}

void core_sandbox_sockets(struct core *c, const char *id, size_t n,
                          void (*done)(void *arg, int *fds, size_t n, const struct err *why),
                          void *arg)
{
    struct sandbox_obj *o = NULL;
    struct socket_wait *w;
    struct err e = {0};

    if (n < 1 || n > PRIVSEP_MAX_FDS)
        err_set(&e, ERR_INVALID, "%zu sockets asked for at once; 1 to %d are allowed", n,
                PRIVSEP_MAX_FDS);
    else if (find(c, id, &o, &e) == ERR_OK) {
        if (!o->s.serves_volume)
            metrics_touch(o, 60000);
        sockets_get(o, n, done, arg);
        return;
    }
    w = RESERVE_NEW(&c->reserve, struct socket_wait);
    w->why = e;
    w->done = done;
    w->arg = arg;
    core_defer(c, &w->later, answer_deferred, w);
}
