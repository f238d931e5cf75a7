#pragma once
/* The memory that a snapshot may have beside its files: that of a sandbox which was made of it for
 * this (template_memory.c) and paused. cay-privd keeps it by a number of its own, under the id of
 * that sandbox, which is gone; the number is the snapshot's, and counts as one more of its tenant's
 * snapshots and of its share of kept files. New sandboxes begin with a copy of it
 * (create_memory.h), and the snapshot is whole without it. */

#include "base/err.h"

#include <stdint.h>

struct core;
struct snapshot_obj;

/* The kept files and memory of the sandbox, which is paused so, are the snapshot's from now on, and
 * the sandbox is gone. ERR_NOT_FOUND: one of them is not there, or not so; on failure the sandbox
 * is as it was, or gone with all that it kept. */
enum err_code snapshot_memory_take(struct core *c, const char *tenant, const char *snapshot,
                                   const char *sandbox, struct err *e);

/* Of the one with that id, as long as its number is that one: it cannot be used any more. */
void snapshot_memory_drop(struct core *c, const char *snapshot, uint32_t number);

/* -- for snapshot.c ---------------------------------------------------------------------------- */

/* It has none from now on, and that goes by itself. Nothing where it has none. */
void snapshot_memory_lose(struct snapshot_obj *o);

/* Its tenant is charged for it, where it has one. */
void snapshot_memory_charge(struct snapshot_obj *o);

/* KEPTS was answered. */
void snapshot_memory_reconcile(struct snapshot_obj *o);
