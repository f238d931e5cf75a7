#pragma once
/* Events of sandboxes, sent as they happen: for each tenant a bounded ring of its last events, and
 * those who follow it.
 *
 * Nothing here ever waits for a reader. An event is formatted once into the ring; a follower is a
 * place in the ring and the write end of a pipe, filled as fast as its reader takes it. A follower
 * that falls behind the ring is told how many events it missed (type "dropped") and goes on with
 * the oldest that is left. So what a follower makes us hold is one batch of lines and one pipe,
 * however many do not read.
 *
 * Ids count a tenant's own events, without a gap, from the microsecond in which this cayd started:
 * they grow over restarts too, and a tenant cannot learn from them how many events others have. */

#include "core/core.h"

enum event_type {
    EVENT_SANDBOX_CREATED,
    EVENT_SANDBOX_ENDED,
    EVENT_SANDBOX_PAUSED,
    EVENT_SANDBOX_RESUMED,
    EVENT_SANDBOX_FORKED,
    EVENT_SANDBOX_ROLLED_BACK,
    EVENT_SANDBOX_HOOK_FAILED,
    EVENT_SNAPSHOT_CREATED,
    EVENT_SNAPSHOT_DELETED,
    EVENT_SANDBOX_POLICY,
    EVENT_VIOLATION,
    EVENT_ASK,
    EVENT_DROPPED,
    EVENT_TYPE_COUNT
};

#define EVENTS_RING_MAX       1024u                 /* of a tenant; a power of two */
#define EVENTS_LINE_MAX       8192u                 /* bytes of one */
#define EVENTS_BYTES_MAX      (32u * 1024u * 1024u) /* of all tenants' together */
#define EVENTS_FOLLOWERS_MAX  128u
#define EVENTS_FOLLOWERS_EACH 16u /* of a tenant */
#define EVENTS_BATCH_BYTES    16384u
#define EVENTS_BEAT_MS        15000u

/* "sandbox.created"; the type by a name of n bytes, or -1. */
const char *event_type_name(enum event_type type);
int event_type_from(const char *name, size_t n);

/* -- for api ----------------------------------------------------------------------------------- */

#define EVENTS_SINCE_NOW (-1) /* only what comes */

struct core_events_filter {
    unsigned types;      /* bits of 1 << enum event_type; 0: all. EVENT_DROPPED is always told */
    const char *sandbox; /* NULL: of all */
    int64_t since;       /* events after that id; 0: all that are kept */
    bool follow;         /* goes on, with a sign of life every EVENTS_BEAT_MS */
};

/* *fd: the read end of a pipe of JSON lines, the caller's; it ends when all is told (without
 * follow), with the key (an API key of the tenant's, that ends with it), and with core. Closing it
 * ends the follower. ERR_EXHAUSTED, ERR_UNAVAILABLE: too many follow. ERR_NOT_FOUND: no such
 * sandbox of the tenant's lives, nor is in the ring. ERR_INVALID: an id that was not given yet. */
enum err_code core_events_follow(struct core *c, const char *tenant, const char *key,
                                 const struct core_events_filter *f, int *fd, struct err *e);

/* -- for core ---------------------------------------------------------------------------------- */

struct sandbox_obj;
struct tenant;

/* 0 or -ENOMEM. */
int events_init(struct core *c);

/* Ends all followers, before pipe_writers_stop. */
void events_stop(struct core *c);
void events_free(struct core *c);

/* Takes fields over (NULL: none), which are made right before: an event that memory was out for is
 * lost. Their "time" goes for the event's own. Before the tenant's next event a `dropped` says
 * that some are lost (too long, or without memory). */
void events_add(struct tenant *t, enum event_type type, const char *sandbox, json_t *fields);

/* Is there a follower of events of that type of the sandbox? */
bool events_are_followed(const struct tenant *t, enum event_type type, const char *sandbox);

/* So many of the tenant's (of the sandbox's, unless NULL) are not told. -1: their number is not
 * known. */
void events_add_dropped(struct tenant *t, const char *sandbox, int64_t count, const char *reason);

/* The same, to every tenant that has had an event or follows. */
void events_all_dropped(struct core *c, const char *reason);

/* Some event is lost, and of which tenant is not known: each one's next `dropped` says so. */
void events_all_lost(struct core *c);

/* The key of that id opens nothing any more. */
void events_forget_key(struct core *c, const char *key_id);
