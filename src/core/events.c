#include "core/events_internal.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "core/core_internal.h"
#include "core/tenant.h"
#include "http/json.h"

#include <errno.h>
#include <string.h>

static const char *const names[EVENT_TYPE_COUNT] = {
    [EVENT_SANDBOX_CREATED] = "sandbox.created",
    [EVENT_SANDBOX_ENDED] = "sandbox.ended",
    [EVENT_SANDBOX_PAUSED] = "sandbox.paused",
    [EVENT_SANDBOX_RESUMED] = "sandbox.resumed",
    [EVENT_SANDBOX_FORKED] = "sandbox.forked",
    [EVENT_SANDBOX_ROLLED_BACK] = "sandbox.rolled_back",
    [EVENT_SANDBOX_HOOK_FAILED] = "sandbox.hook_failed",
    [EVENT_SNAPSHOT_CREATED] = "snapshot.created",
    [EVENT_SNAPSHOT_DELETED] = "snapshot.deleted",
    [EVENT_SANDBOX_POLICY] = "sandbox.policy",
    [EVENT_VIOLATION] = "violation",
    [EVENT_ASK] = "ask",
    [EVENT_DROPPED] = "dropped",
};

const char *event_type_name(enum event_type type)
{
    return names[type];
}

int event_type_from(const char *name, size_t n)
{
    for (int i = 0; i < EVENT_TYPE_COUNT; i++)
        if (strlen(names[i]) == n && memcmp(names[i], name, n) == 0)
            return i;
    return -1;
}

/* -- the rings --------------------------------------------------------------------------------- */

struct event_ring *events_ring(struct tenant *t)
{
    struct events *ev = t->core->events;
    struct event_ring *r = t->events;

    if (r)
        return r;
    r = calloc(1, sizeof(*r));
    if (!r)
        return NULL;
    r->tenant = tenant_ref(t);
    r->first_id = r->next_id = ev->base_id;
    r->next = ev->rings;
    ev->rings = r;
    t->events = r;
    return r;
}

static struct event **entry_of(struct event_ring *r, int64_t id)
{
    return &r->events[(uint64_t)id % EVENTS_RING_MAX];
}

const struct event *events_at(const struct event_ring *r, int64_t id)
{
    return id >= r->first_id && id < r->next_id ? r->events[(uint64_t)id % EVENTS_RING_MAX] : NULL;
}

static void forget_oldest(struct events *ev, struct event_ring *r)
{
    struct event **at = entry_of(r, r->first_id++);

    ev->bytes -= (*at)->len;
    r->bytes -= (*at)->len;
    free(TAKE_PTR(*at));
}

/* The tenant that holds the most events loses its oldest: a tenant with many events does not cost
 * the others theirs. */
static void make_space(struct events *ev, struct event_ring *r, size_t bytes)
{
    if (r->next_id - r->first_id == EVENTS_RING_MAX)
        forget_oldest(ev, r);
    while (ev->bytes + bytes > EVENTS_BYTES_MAX) {
        struct event_ring *most = ev->rings;

        for (struct event_ring *o = ev->rings; o; o = o->next)
            if (o->bytes > most->bytes)
                most = o;
        if (!most || most->bytes == 0)
            return;
        forget_oldest(ev, most);
    }
}

/* -- one event --------------------------------------------------------------------------------- */

/* Of the event itself, or now. */
static json_t *time_of(json_t *fields)
{
    json_t *given = json_object_get(fields, "time");
    char now[CLOCK_RFC3339_SIZE];

    if (json_is_string(given))
        return json_incref(given);
    clock_format_rfc3339(clock_real_ms(), now);
    return json_string(now);
}

/* {"id", "time", "type"[, "sandbox"], fields}, malloc'd; its NUL stands where the line's end goes.
 * Names in fields may be an attacker's: all but ASCII is escaped, and none replaces what core
 * says. */
static char *format(int64_t id, enum event_type type, const char *sandbox, json_t *fields)
{
    json_t *o = json_pack("{s:I, s:o, s:s}", "id", (json_int_t)id, "time", time_of(fields), "type",
                          names[type]);
    char *text = NULL;

    if (o && (!sandbox || json_object_set_new(o, "sandbox", json_string(sandbox)) == 0) &&
        (!fields || json_object_update_missing(o, fields) == 0) && !json_was_cut())
        text = json_text(o, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(o);
    return text;
}

/* NULL: memory is out, or was when the fields were made. */
static struct event *make(int64_t id, enum event_type type, const char *sandbox, json_t *fields)
{
    CLEANUP_FREE char *text = json_was_cut() ? NULL : format(id, type, sandbox, fields);
    size_t len = text ? strlen(text) : 0;
    struct event *e = text ? malloc(sizeof(*e) + len + 1) : NULL;

    (void)json_was_cut(); /* known here; the next value is another's */
    if (!e)
        return NULL;
    *e = (struct event){.id = id, .type = type, .len = len + 1};
    (void)snprintf(e->sandbox, sizeof(e->sandbox), "%s", sandbox ? sandbox : "");
    memcpy(e->line, text, len);
    e->line[len] = '\n';
    return e;
}

/* NULL: counted where it happens, or not at all. */
static uint64_t *counter_of(struct core *c, enum event_type type)
{
    switch (type) {
    case EVENT_VIOLATION: return &c->counters.violations;
    case EVENT_ASK: return &c->counters.asks;
    case EVENT_DROPPED: return &c->counters.events_dropped;
    default: return NULL;
    }
}

/* false: it is lost. */
static bool add(struct event_ring *r, enum event_type type, const char *sandbox, json_t *fields)
{
    struct core *c = r->tenant->core;
    struct event *e = make(r->next_id, type, sandbox, fields);

    if (!e || e->len > EVENTS_LINE_MAX) {
        log_error("tenant %s: an event (%s) is lost: %s", r->tenant->name, names[type],
                  e ? "it is too long" : "memory is out");
        free(e);
        return false;
    }
    make_space(c->events, r, e->len);
    *entry_of(r, r->next_id++) = e;
    r->bytes += e->len;
    c->events->bytes += e->len;
    if (c->events->send)
        c->events->send(r->tenant, e);
    c->events->wake(c, r);
    return true;
}

/* A number, or null where it is not known. */
static json_t *dropped_fields(int64_t count, const char *reason)
{
    return json_pack("{s:o, s:s}", "count", count < 0 ? json_null() : json_integer(count), "reason",
                     reason);
}

/* Says that some are lost, in their place. false: it cannot be said yet, so that no later one is
 * added either. */
static bool add_lost(struct event_ring *r)
{
    json_t *fields = r->lost ? dropped_fields(-1, "lost") : NULL;

    if (r->lost && add(r, EVENT_DROPPED, NULL, fields)) {
        ++r->tenant->core->counters.events_dropped;
        r->lost = false;
    }
    json_decref(fields);
    return !r->lost;
}

void events_add(struct tenant *t, enum event_type type, const char *sandbox, json_t *fields)
{
    bool whole = !json_was_cut();
    struct event_ring *r = events_ring(t);
    uint64_t *counter = counter_of(t->core, type);

    if (counter)
        ++*counter;
    if (!r)
        log_error("tenant %s: an event (%s) is lost: memory is out", t->name, names[type]);
    else if (!whole || !add_lost(r) || !add(r, type, sandbox, fields))
        r->lost = true;
    json_decref(fields);
}

/* -- what is not told -------------------------------------------------------------------------- */

void events_add_dropped(struct tenant *t, const char *sandbox, int64_t count, const char *reason)
{
    events_add(t, EVENT_DROPPED, sandbox, dropped_fields(count, reason));
}

static bool is_read(const struct event_ring *r)
{
    return r->next_id > r->first_id || r->tenant->charged[TENANT_FOLLOWERS] > 0;
}

void events_all_dropped(struct core *c, const char *reason)
{
    for (struct event_ring *r = c->events->rings; r; r = r->next)
        if (is_read(r))
            events_add_dropped(r->tenant, NULL, -1, reason);
}

void events_all_lost(struct core *c)
{
    for (struct event_ring *r = c->events->rings; r; r = r->next)
        r->lost |= is_read(r);
}

int events_format_dropped(int64_t id, int64_t count, const char *reason, struct buf *out)
{
    json_t *fields = dropped_fields(count, reason);
    CLEANUP_FREE char *text = fields ? format(id, EVENT_DROPPED, NULL, fields) : NULL;

    json_decref(fields);
    return text ? buf_printf(out, "%s\n", text) : -ENOMEM;
}

/* -- life -------------------------------------------------------------------------------------- */

int events_rings_init(struct core *c)
{
    c->events = calloc(1, sizeof(*c->events));
    if (!c->events)
        return -ENOMEM;
    c->events->base_id = c->started_real_ms * 1000 + 1;
    c->events->core = c;
    return 0;
}

void events_free(struct core *c)
{
    struct events *ev = TAKE_PTR(c->events);

    for (struct event_ring *r = ev ? ev->rings : NULL, *next; r; r = next) {
        next = r->next;
        while (r->first_id < r->next_id)
            forget_oldest(ev, r);
        r->tenant->events = NULL;
        tenant_unref(r->tenant);
        free(r);
    }
    free(ev);
}
