#pragma once
/* Events that wait for a client, as JSON text. Bounded: past WATCH_QUEUE_EVENTS_MAX or
 * WATCH_QUEUE_BYTES_MAX the oldest go, and the next one that is handed out says so. Pure. */

#include "agent/common/user.h"
#include "agent/watch/watch_tree.h"

#define WATCH_QUEUE_EVENTS_MAX 10000u
#define WATCH_QUEUE_BYTES_MAX  (4u * 1024u * 1024u)

struct watch_item;

struct watch_queue {
    struct watch_item *first, **last;
    size_t count, bytes;
    bool lost; /* something was dropped since the last that was handed out */
};

void watch_queue_init(struct watch_queue *q);
void watch_queue_free(struct watch_queue *q);

/* Adds a FilesystemEvent; with entry_path its EntryInfo, if the file can still be looked at (some
 * system calls). When memory is out the event counts as lost. */
void watch_queue_add(struct watch_queue *q, enum watch_type type, const char *name,
                     const char *entry_path);

/* Moves the oldest to the end of out: {"name":...,"type":...}, with "overflowed":true when others
 * were dropped before it (unknown fields are ignored by E2B's clients). 1, or 0 when there is none;
 * -errno. */
int watch_queue_take(struct watch_queue *q, struct buf *out) WARN_UNUSED;
