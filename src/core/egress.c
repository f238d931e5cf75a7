/* For each process of cay-egress one state machine: away (a look every AGAIN_MS), watched (GET
 * /v1/events is open; its first answer begins a life of the process, and all policies are sent
 * again), lost (its end; back to away). Sandboxes whose policy changed stand in a queue of
 * their process, once each, and go out IN_FLIGHT_MAX at a time while it is up and the core is
 * ready; one that changes while it is sent is sent once more. Callers who wait for a policy to
 * be in force are told in a later turn, also that it is not reached: then it is tried on
 * without them. */

#include "core/egress.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/util.h"
#include "contract/proto.h"
#include "core/call.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/deferred.h"
#include "core/egress_event_reader.h"
#include "core/logs.h"
#include "core/reserve.h"
#include "core/sandbox.h"
#include "core/timers.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#define IN_FLIGHT_MAX   32u /* policies sent at a time to one process */
#define PUSH_TIMEOUT_MS 5000u
#define AGAIN_MS        200u /* after a failure, and between looks for a process that is away */
#define ANSWER_MAX      4096u
#define PATH_SIZE       sizeof(((struct sockaddr_un *)NULL)->sun_path)

static const char watch_request[] = "GET /v1/events HTTP/1.0\r\nHost: localhost\r\n\r\n";

/* One process of cay-egress: it serves the slots whose number modulo the count is its own. */
struct egress_link {
    struct core *core;
    char path[PATH_SIZE];
    uv_pipe_t watch; /* open while it lives; data: the link */
    uv_write_t write;
    bool watching; /* handle is open */
    bool up;       /* it has answered on it */
    bool closing;
    struct egress_event_reader reader;
    struct timer again;
    struct sandbox_obj *first, *last; /* whose policies are to be sent */
    unsigned in_flight;
};

struct egress {
    struct egress_uses uses;
    struct egress_link *links;
    unsigned n;
};

/* A caller that waits for a policy to be in force. */
struct egress_waiter {
    struct egress_waiter *next;
    core_sandbox_cb done;
    void *arg;
    /* of the first, when all are told */
    struct deferred later;
    struct core *core;
    char id[IDS_SANDBOX_SIZE];
    struct err why; /* code ERR_OK: it is in force */
};

static void pump(struct egress_link *l);

static struct egress_link *link_of(const struct sandbox_obj *o)
{
    struct egress *e = o->core->egress;

    return e ? &e->links[o->s.slot % e->n] : NULL;
}

unsigned egress_count(const struct core *c)
{
    return c->egress ? c->egress->n : 0;
}

const char *egress_path(const struct core *c, unsigned i)
{
    return c->egress->links[i].path;
}

const char *egress_any_path(const struct core *c)
{
    for (unsigned i = 0; i < egress_count(c); i++)
        if (c->egress->links[i].up)
            return c->egress->links[i].path;
    return NULL;
}

static unsigned hash(const char *text, unsigned h)
{
    for (; *text; text++)
        h = h * 31 + (unsigned char)*text;
    return h;
}

unsigned egress_number_of(const struct core *c, const char *tenant, const char *name)
{
    return hash(name, hash(tenant, 7)) % egress_count(c);
}

const char *egress_path_of(const struct core *c, const char *tenant, const char *name)
{
    const struct egress_link *l = c->egress ? &c->egress->links[egress_number_of(c, tenant, name)]
                                            : NULL;

    return l && l->up ? l->path : NULL;
}

const char *egress_path_for(const struct core *c, const char *tenant, const char *name)
{
    const char *own = egress_path_of(c, tenant, name);

    return own ? own : egress_any_path(c);
}

/* -- the queue --------------------------------------------------------------------------------- */

static void enqueue(struct egress_link *l, struct sandbox_obj *o)
{
    if (o->egress_queued)
        return;
    o->egress_queued = true;
    o->egress_next = NULL;
    o->egress_prev = l->last;
    *(l->last ? &l->last->egress_next : &l->first) = o;
    l->last = o;
}

static void dequeue(struct egress_link *l, struct sandbox_obj *o)
{
    if (!o->egress_queued)
        return;
    o->egress_queued = false;
    *(o->egress_prev ? &o->egress_prev->egress_next : &l->first) = o->egress_next;
    *(o->egress_next ? &o->egress_next->egress_prev : &l->last) = o->egress_prev;
}

/* -- those who wait ---------------------------------------------------------------------------- */

static void notify_deferred(void *arg)
{
    struct egress_waiter *first = arg;
    struct sandbox_obj *o = sandbox_get(first->core, NULL, first->id);
    struct err why = first->why;

    if (!o && why.code == ERR_OK)
        err_set(&why, ERR_NOT_FOUND, "sandbox %s has ended", first->id);
    for (struct egress_waiter *w = first, *next; w; w = next) {
        next = w->next;
        w->done(w->arg, why.code == ERR_OK ? &o->s : NULL, why.code == ERR_OK ? NULL : &why);
        free(w);
    }
}

/* In the next turn: callers may be inside a loop over sandboxes. why NULL: it is in force. */
static void tell(struct sandbox_obj *o, const struct err *why)
{
    struct egress_waiter *first = TAKE_PTR(o->egress_waiters);

    if (!first)
        return;
    first->core = o->core;
    memcpy(first->id, o->s.id, sizeof(first->id));
    if (why)
        first->why = *why;
    core_defer(o->core, &first->later, notify_deferred, first);
}

/* -- sending one ------------------------------------------------------------------------------- */

static void refused(struct sandbox_obj *o, int status, const char *body, size_t len)
{
    struct err e;

    err_set(&e, ERR_INVALID, "cay-egress refused the policy (%d): %.*s", status,
            (int)MIN(len, 256u), body ? body : "");
    log_error("sandbox %s: %s", o->s.id, e.text);
    logs_add(o, "error", "%s; nothing leaves this sandbox", e.text);
    tell(o, &e);
}

static void not_reached(struct egress_link *l, struct sandbox_obj *o, const struct err *why)
{
    struct err e;

    err_set(&e, ERR_UNAVAILABLE, "the network policy is not in force yet: cay-egress: %s",
            why->text);
    err_hint(&e, "it is sent again as soon as cay-egress answers; until then the sandbox has the "
                 "policy that it had, or no network");
    tell(o, &e);
    enqueue(l, o);
    if (!l->core->stopping)
        timers_set(&l->core->timers, &l->again, clock_mono_ms() + AGAIN_MS);
}

static void on_pushed(struct core *c, const char *id, const struct err *why, int status,
                      const char *body, size_t len, void *arg)
{
    struct egress_link *l = arg;
    struct sandbox_obj *o = sandbox_get(c, NULL, id);

    l->in_flight--;
    if (o && o->egress_sending) {
        o->egress_sending = false;
        if (why)
            not_reached(l, o, why);
        else if (o->egress_changed)
            enqueue(link_of(o), o); /* another process's, perhaps: its slot may have changed */
        else if (status / 100 != 2)
            refused(o, status, body, len);
        else
            tell(o, NULL);
    }
    if (!c->stopping)
        pump(l);
}

static void push(struct egress_link *l, struct sandbox_obj *o)
{
    struct call_agent_request r = {
        .method = "PUT", .max_response_bytes = ANSWER_MAX, .timeout_ms = PUSH_TIMEOUT_MS};
    char target[64];
    struct err e;

    (void)snprintf(target, sizeof(target), "/v1/sandboxes/%u/%u", o->s.slot, o->s.gen);
    r.target = target;
    r.body = l->core->egress->uses.body(o, &e);
    if (!r.body) {
        not_reached(l, o, &e);
        return;
    }
    o->egress_sending = true;
    o->egress_changed = false;
    l->in_flight++;
    call_unix(l->core, o->s.id, l->path, &r, on_pushed, l);
}

static bool wants_policy(const struct sandbox_obj *o)
{
    return o->known_to_privd && sandbox_life(o)->policy;
}

/* Its place in the queue goes by: who waits for it is told so. */
static void not_wanted(struct sandbox_obj *o)
{
    struct err e;

    if (sandbox_life(o)->files) { /* it is sent when it runs */
        tell(o, NULL);
        return;
    }
    if (!sandbox_life(o)->policy) {
        err_set(&e, ERR_NOT_FOUND, "sandbox %s has ended", o->s.id);
    } else {
        err_set(&e, ERR_UNAVAILABLE,
                "the network policy is not in force yet: cay-privd does not know sandbox %s",
                o->s.id);
        err_hint(&e, "it is written, and sent as soon as the sandbox is there");
    }
    tell(o, &e);
}

static void pump(struct egress_link *l)
{
    while (l->up && l->core->ready && l->first && l->in_flight < IN_FLIGHT_MAX &&
           !timer_armed(&l->again)) {
        struct sandbox_obj *o = l->first;

        dequeue(l, o);
        if (wants_policy(o))
            push(l, o);
        else
            not_wanted(o);
    }
}

void egress_ready(struct core *c)
{
    for (unsigned i = 0; c->egress && i < c->egress->n; i++)
        pump(&c->egress->links[i]);
}

/* Nothing of it runs, and what is stored is sent when something does. */
static bool has_only_files(const struct sandbox_obj *o)
{
    return sandbox_life(o)->files && !o->known_to_privd;
}

void egress_touch(struct sandbox_obj *o)
{
    struct egress_link *l = link_of(o);

    if (!l || has_only_files(o))
        return;
    o->egress_changed = true;
    if (!o->egress_sending)
        enqueue(l, o);
    pump(l);
}

void egress_touch_and_notify(struct sandbox_obj *o, core_sandbox_cb done, void *arg)
{
    struct egress_link *l = has_only_files(o) ? NULL : link_of(o);
    struct egress_waiter *w = RESERVE_NEW(&o->core->reserve, struct egress_waiter);

    *w = (struct egress_waiter){.next = o->egress_waiters, .done = done, .arg = arg};
    o->egress_waiters = w;
    if (!l) {
        tell(o, NULL); /* there is nothing that lets anything out */
        return;
    }
    if (!l->up) {
        struct err e;

        err_set(&e, ERR_UNAVAILABLE, "it does not answer");
        egress_touch(o);
        not_reached(l, o, &e);
        return;
    }
    egress_touch(o);
}

void egress_leave(struct sandbox_obj *o)
{
    struct egress_link *l = link_of(o);

    if (l)
        dequeue(l, o);
    if (sandbox_life(o)->files)
        tell(o, NULL); /* what is stored is sent when it runs */
}

void egress_forget(struct sandbox_obj *o)
{
    struct egress_link *l = link_of(o);
    struct err e;

    if (l)
        dequeue(l, o);
    err_set(&e, ERR_NOT_FOUND, "sandbox %s has ended", o->s.id);
    tell(o, &e);
}

/* -- is it there? ------------------------------------------------------------------------------ */

static void watch_again(struct egress_link *l)
{
    if (!l->core->stopping)
        timers_set(&l->core->timers, &l->again, clock_mono_ms() + AGAIN_MS);
}

static void on_watch_closed(uv_handle_t *h)
{
    struct egress_link *l = h->data;

    l->watching = false;
    if (l->closing)
        core_handle_closed(l->core);
    else
        watch_again(l);
}

static void lose_watch(struct egress_link *l)
{
    if (l->up && !l->core->stopping) {
        log_warn("cay-egress (%s) went away", l->path);
        events_all_dropped(l->core, "egress_restarted");
    }
    l->up = false;
    if (!uv_is_closing((uv_handle_t *)&l->watch))
        uv_close((uv_handle_t *)&l->watch, on_watch_closed);
}

/* Policies of an earlier life of it are gone: all are sent again. A transfer under way was begun in
 * that life. */
static void begin_life(struct egress_link *l)
{
    struct core *c = l->core;

    l->up = true;
    c->egress->uses.begun(c); /* its files may be other ones now */
    log_info("cay-egress (%s) is there", l->path);
    for (size_t i = 0; i < c->registry.n; i++) {
        struct sandbox_obj *o = c->registry.order[i];

        if (link_of(o) != l)
            continue;
        o->egress_changed = true;
        if (!o->egress_sending)
            enqueue(l, o);
    }
    pump(l);
}

static void give_buffer(uv_handle_t *h, size_t suggested, uv_buf_t *out)
{
    static char command_sandbox[16384]; /* one for all: it is taken out at once */

    *out = uv_buf_init(command_sandbox, sizeof(command_sandbox));
}

static void on_watch_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct egress_link *l = stream->data;

    if (n < 0)
        lose_watch(l);
    else if (n > 0 && !l->up)
        begin_life(l);
    if (n > 0)
        l->core->egress->uses.on_events(l->core, &l->reader, buf->base, (size_t)n);
}

static void on_watch_written(uv_write_t *w, int status)
{
    if (status < 0 && status != UV_ECANCELED)
        lose_watch(w->data);
}

static void begin_watch(struct egress_link *l)
{
    uv_buf_t request = uv_buf_init((char *)(uintptr_t)watch_request, sizeof(watch_request) - 1);
    int fd = call_connect_unix(l->path);

    if (fd < 0) {
        watch_again(l);
        return;
    }
    if (uv_pipe_init(l->core->loop, &l->watch, 0) < 0 || uv_pipe_open(&l->watch, fd) < 0)
        abort(); /* a fresh socket of our own */
    l->watching = true;
    l->reader.len = 0;
    l->reader.skip = false;
    l->watch.data = l->write.data = l;
    if (uv_write(&l->write, (uv_stream_t *)&l->watch, &request, 1, on_watch_written) < 0 ||
        uv_read_start((uv_stream_t *)&l->watch, give_buffer, on_watch_read) < 0)
        lose_watch(l);
}

static void on_again(struct timer *t)
{
    struct egress_link *l = CONTAINER_OF(t, struct egress_link, again);

    if (!l->watching)
        begin_watch(l);
    else
        pump(l);
}

/* -- all of it --------------------------------------------------------------------------------- */

int egress_init(struct core *c, const struct egress_uses *uses)
{
    unsigned n = c->config.egress_processes;

    if (!c->config.egress_dir || n == 0)
        return 0;
    c->egress = calloc(1, sizeof(*c->egress));
    if (!c->egress || n > EGRESS_PROCESSES_MAX)
        return c->egress ? -EINVAL : -ENOMEM;
    c->egress->uses = *uses;
    c->egress->links = calloc(n, sizeof(*c->egress->links));
    if (!c->egress->links)
        return -ENOMEM;
    for (; c->egress->n < n; c->egress->n++) {
        struct egress_link *l = &c->egress->links[c->egress->n];

        l->core = c;
        l->again.fire = on_again;
        if (snprintf(l->path, sizeof(l->path), "%s/egress-%u.ctl", c->config.egress_dir,
                     c->egress->n) >= (int)sizeof(l->path))
            return -ENAMETOOLONG;
        timers_set(&c->timers, &l->again, clock_mono_ms());
    }
    return 0;
}

unsigned egress_stop(struct core *c)
{
    unsigned open = 0;

    for (unsigned i = 0; c->egress && i < c->egress->n; i++) {
        struct egress_link *l = &c->egress->links[i];

        timers_cancel(&c->timers, &l->again);
        l->closing = true;
        if (!l->watching)
            continue;
        open++;
        lose_watch(l);
    }
    return open;
}

void egress_free(struct core *c)
{
    if (c->egress)
        free(c->egress->links);
    free(TAKE_PTR(c->egress));
}
