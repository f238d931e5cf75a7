#pragma once
/* Shared by events.c (the rings) and events_follow.c (their readers). */

#include "base/buf.h"
#include "base/ids.h"
#include "core/events.h"
#include "core/timers.h"

#include <stddef.h>
#include <stdint.h>

struct follower;

struct event {
    int64_t id;
    enum event_type type;
    char sandbox[IDS_SANDBOX_SIZE]; /* "": of none */
    size_t len;
    char line[]; /* JSON and a line's end */
};

/* A tenant's (struct tenant). Kept for the life of the core, with a reference to the tenant:
 * tenants are made by the operator. */
struct event_ring {
    struct event_ring *next;
    struct tenant *tenant;
    int64_t first_id, next_id; /* first_id == next_id: empty */
    size_t bytes;
    bool lost; /* some, for want of memory: the next one is a `dropped` that says so */
    struct event *events[EVENTS_RING_MAX]; /* by id, modulo */
};

struct events {
    struct core *core;
    struct event_ring *rings;
    struct follower *followers;
    size_t bytes;
    int64_t base_id; /* the first id of this life, and of every ring */
    unsigned count;  /* followers */
    struct timer beat;
    void (*wake)(struct core *c, struct event_ring *r); /* there is something new in r */
    /* Webhooks: e was told of t. NULL: there are none yet. */
    void (*send)(struct tenant *t, const struct event *e);
};

/* Makes it when absent. NULL: memory is out. */
struct event_ring *events_ring(struct tenant *t);

/* NULL: not in it (any more, or yet). */
const struct event *events_at(const struct event_ring *r, int64_t id);

/* A "dropped" that only one follower is told, into out (max bytes). 0 or -errno. id: the last of
 * them. */
int events_format_dropped(int64_t id, int64_t count, const char *reason, struct buf *out);

/* events.c's part of events_init. */
int events_rings_init(struct core *c);
