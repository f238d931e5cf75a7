#pragma once
/* All sandboxes of a core: by id (hash) and by start (sorted array, for listings).
 *
 * The registry owns neither; sandbox.c puts them in and takes them out. Ids are random and made by
 * us, so a client cannot choose the ids of one bucket. */

#include "core/core.h"

struct sandbox_obj;

struct registry {
    struct sandbox_obj **buckets;
    size_t bucket_count;        /* a power of two, or 0 */
    struct sandbox_obj **order; /* by started_real_ms, then id */
    size_t n, cap;
};

void registry_free(struct registry *r);

/* 0 or -ENOMEM. The id must not be in it yet. */
int registry_add(struct registry *r, struct sandbox_obj *o);
void registry_remove(struct registry *r, struct sandbox_obj *o);

/* It began at another time: its place in the order is another. Needs no memory. */
void registry_move(struct registry *r, struct sandbox_obj *o, int64_t started_real_ms);

struct sandbox_obj *registry_find(const struct registry *r, const char *id);

/* The first place in order whose {started_ms, id} is not before the given one (n: none). */
size_t registry_lower_bound(const struct registry *r, int64_t started_ms, const char *id);
