/* The followers of a tenant's events: each has a pipe writer and a position in the ring. The reader
 * is another thread's (a connection's); nothing here waits for it: it is given the next when it has
 * taken what it was given. */

#include "base/clock.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/events_internal.h"
#include "core/key.h"
#include "core/pipe_writer.h"
#include "core/sandbox.h"
#include "core/tenant.h"
#include "core/timers.h"

#include <errno.h>
#include <string.h>

struct follower {
    struct follower *prev, *next;
    struct core *core;
    struct event_ring *ring;
    struct tenant_charge charge;
    unsigned types; /* bits; 0: all */
    char sandbox[IDS_SANDBOX_SIZE];
    char key_id[CORE_KEY_ID_SIZE];
    int64_t next_id; /* that is to be told */
    bool follow;
    struct pipe_writer *out;
};

/* -- the end ----------------------------------------------------------------------------------- */

/* Its reader sees the end of the stream, after what it was given already unless that is cut off. */
static void end(struct follower *f, void (*how)(struct pipe_writer *o))
{
    struct events *ev = f->core->events;

    *(f->prev ? &f->prev->next : &ev->followers) = f->next;
    if (f->next)
        f->next->prev = f->prev;
    ev->count--;
    tenant_refund(&f->charge);
    if (ev->count == 0)
        timers_cancel(&f->core->timers, &ev->beat);
    how(f->out);
    free(f);
}

/* -- what is told ------------------------------------------------------------------------------ */

static bool is_wanted(const struct follower *f, const struct event *e)
{
    const bool concerns_all = !e->sandbox[0] && e->type == EVENT_DROPPED;

    if (f->sandbox[0] && !concerns_all && strcmp(f->sandbox, e->sandbox) != 0)
        return false;
    return e->type == EVENT_DROPPED || f->types == 0 || (f->types & (1u << e->type));
}

bool events_are_followed(const struct tenant *t, enum event_type type, const char *sandbox)
{
    for (const struct follower *f = t->core->events->followers; f; f = f->next)
        if (f->follow && f->ring->tenant == t &&
            (!f->sandbox[0] || strcmp(f->sandbox, sandbox) == 0) &&
            (f->types == 0 || (f->types & (1u << type))))
            return true;
    return false;
}

/* Reports the number of events that left the ring before it read them. Of an earlier life of cayd
 * their number is not known. */
static int report_gap(struct follower *f, struct buf *out)
{
    const struct event_ring *r = f->ring;
    bool earlier = f->next_id < f->core->events->base_id;
    int rc = 0;

    if (f->next_id >= r->first_id)
        return 0;
    rc = events_format_dropped(r->first_id - 1, earlier ? -1 : r->first_id - f->next_id,
                               earlier ? "restarted" : "too_late", out);
    if (rc == 0)
        f->next_id = r->first_id;
    return rc;
}

/* Into out what is next, as much as fits. False: memory is out. */
static bool fill(struct follower *f, struct buf *out)
{
    const struct event *e;

    if (report_gap(f, out) < 0)
        return false;
    while ((e = events_at(f->ring, f->next_id))) {
        if (is_wanted(f, e)) {
            int rc = buf_append(out, e->line, e->len);

            if (rc == -EMSGSIZE && out->len > 0)
                return true;
            if (rc < 0)
                return false;
        }
        f->next_id++;
    }
    return true;
}

/* As much as the pipe takes: a pipe's worth at most, so that the loop does not wait for it. False:
 * it has ended. */
static bool pump(struct follower *f)
{
    struct buf batch CLEANUP_BUF;
    int rc = 0;

    buf_init(&batch, EVENTS_BATCH_BYTES);
    do {
        buf_clear(&batch);
        rc = fill(f, &batch) ? pipe_writer_put(f->out, batch.data, batch.len) : -ENOMEM;
    } while (rc == 0 && batch.len > 0 && pipe_writer_held(f->out) == 0);
    if (rc == 0 && (f->follow || batch.len > 0))
        return true;
    end(f, rc < 0 ? pipe_writer_cut : pipe_writer_end);
    return false;
}

static void on_empty(void *arg)
{
    pump(arg);
}

static void on_gone(void *arg)
{
    end(arg, pipe_writer_cut);
}

static void wake(struct core *c, struct event_ring *r)
{
    for (struct follower *f = c->events->followers, *next; f; f = next) {
        next = f->next;
        if (f->ring == r && pipe_writer_held(f->out) == 0)
            pump(f);
    }
}

/* A sign of life, which also says where to go on after a break. */
static void beat(struct follower *f)
{
    char line[64];
    int n = snprintf(line, sizeof(line), "{\"type\":\"heartbeat\",\"id\":%lld}\n",
                     (long long)f->next_id - 1);

    if (pipe_writer_held(f->out) == 0 && pipe_writer_put(f->out, line, (size_t)n) < 0)
        end(f, pipe_writer_cut);
}

static void arm_beat(struct core *c)
{
    uint64_t ms = c->config.events_beat_ms ? c->config.events_beat_ms : EVENTS_BEAT_MS;

    timers_set(&c->timers, &c->events->beat, clock_mono_ms() + ms);
}

static void on_beat(struct timer *t)
{
    struct core *c = CONTAINER_OF(t, struct events, beat)->core;

    for (struct follower *f = c->events->followers, *next; f; f = next) {
        next = f->next;
        beat(f);
    }
    if (c->events->count > 0)
        arm_beat(c);
}

/* -- the begin --------------------------------------------------------------------------------- */

static enum err_code check_sandbox(struct core *c, const struct event_ring *r, const char *id,
                                   struct err *e)
{
    if (sandbox_visible(c, r->tenant->name, id, &(struct sandbox_obj *){NULL}, NULL) == ERR_OK)
        return ERR_OK;
    for (int64_t i = r->first_id; i < r->next_id; i++)
        if (strcmp(events_at(r, i)->sandbox, id) == 0)
            return ERR_OK;
    return err_set(e, ERR_NOT_FOUND,
                   "there is no sandbox '%.32s', and no event of one that has ended is kept", id);
}

static enum err_code check_capacity(const struct events *ev, const struct event_ring *r,
                                    struct err *e)
{
    if (r->tenant->charged[TENANT_FOLLOWERS] >= EVENTS_FOLLOWERS_EACH) {
        err_set(e, ERR_EXHAUSTED, "%u follow your events, which is the limit",
                EVENTS_FOLLOWERS_EACH);
        err_hint(e, "end one of them first");
        return ERR_EXHAUSTED;
    }
    if (ev->count < EVENTS_FOLLOWERS_MAX)
        return ERR_OK;
    return err_set(e, ERR_UNAVAILABLE, "%u follow the events of this server, which is the limit",
                   EVENTS_FOLLOWERS_MAX);
}

static enum err_code check(struct core *c, const struct event_ring *r,
                           const struct core_events_filter *f, struct err *e)
{
    enum err_code code = check_capacity(c->events, r, e);

    if (code == ERR_OK && f->sandbox)
        code = check_sandbox(c, r, f->sandbox, e);
    if (code != ERR_OK || f->since < r->next_id)
        return code;
    err_set(e, ERR_INVALID, "since: no event of the id %lld was told yet; the last one has %lld",
            (long long)f->since, (long long)r->next_id - 1);
    err_hint(e, "was the clock of the server set back? Begin with since=0");
    return ERR_INVALID;
}

/* The first id that it is to be told. */
static int64_t first_of(const struct event_ring *r, const struct events *ev,
                        const struct core_events_filter *f)
{
    if (f->since == EVENTS_SINCE_NOW && f->follow)
        return r->next_id;
    return f->since <= 0 ? ev->base_id : f->since + 1;
}

static struct follower *new_follower(struct core *c, struct event_ring *r, const char *key,
                                     const struct core_events_filter *filter)
{
    struct follower *f = calloc(1, sizeof(*f));

    if (!f)
        return NULL;
    f->core = c;
    f->ring = r;
    f->types = filter->types;
    f->follow = filter->follow;
    f->next_id = first_of(r, c->events, filter);
    (void)snprintf(f->sandbox, sizeof(f->sandbox), "%s", filter->sandbox ? filter->sandbox : "");
    core_key_id(key, f->key_id);
    return f;
}

static void enter(struct core *c, struct follower *f)
{
    struct events *ev = c->events;

    f->next = ev->followers;
    if (f->next)
        f->next->prev = f;
    ev->followers = f;
    tenant_charge(f->ring->tenant, TENANT_FOLLOWERS, 1, &f->charge);
    if (ev->count++ == 0)
        arm_beat(c);
}

static struct event_ring *ring_of(struct core *c, const char *tenant)
{
    struct tenant *t = tenant_get(c, tenant);
    struct event_ring *r = t ? events_ring(t) : NULL;

    tenant_unref(t);
    return r;
}

enum err_code core_events_follow(struct core *c, const char *tenant, const char *key,
                                 const struct core_events_filter *filter, int *fd, struct err *e)
{
    struct event_ring *r = ring_of(c, tenant);
    struct pipe_writer_owner owner = {.on_empty = on_empty, .on_gone = on_gone};
    struct follower *f;
    int rc = -ENOMEM;

    if (!r)
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    if (check(c, r, filter, e) != ERR_OK)
        return e->code;
    owner.arg = f = new_follower(c, r, key, filter);
    if (f)
        f->out = pipe_writer_new(c, EVENTS_BATCH_BYTES, &owner, NULL, fd, &rc);
    if (!f || !f->out) {
        free(f);
        return err_set_sys(e, ERR_UNAVAILABLE, -rc, "a stream of events");
    }
    enter(c, f);
    if (pump(f) && f->follow)
        beat(f); /* where it stands */
    return ERR_OK;
}

void events_forget_key(struct core *c, const char *key_id)
{
    for (struct follower *f = c->events->followers, *next; f; f = next) {
        next = f->next;
        if (strcmp(f->key_id, key_id) == 0)
            end(f, pipe_writer_cut);
    }
}

void events_stop(struct core *c)
{
    while (c->events && c->events->followers)
        end(c->events->followers, pipe_writer_cut);
}

int events_init(struct core *c)
{
    int rc = events_rings_init(c);

    if (rc < 0)
        return rc;
    c->events->wake = wake;
    c->events->beat.fire = on_beat;
    return 0;
}
