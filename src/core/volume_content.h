#pragma once
/* The contents of a volume without a sandbox of its owner's: a sandbox of cay's own serves them,
 * which has the volume and nothing else, and in which no program runs (agent/files/volume_files.h).
 *
 * It is made at the first call and ends when none was made for VOLUME_SERVE_IDLE_MS, at most
 * VOLUME_SERVERS_MAX for a tenant: the call for another volume waits until the one that was asked
 * for least lately has made way, and is refused where calls are under way for all. It counts as a
 * sandbox of the tenant, but no list has it and no call finds it. It is in the way of nothing: a
 * sandbox that wants the volume, and the volume's removal, end it first and wait for that. It
 * outlives no restart of cayd: its row never says more than that it is being made, and that is
 * undone. */

#include "core/core.h"

#define VOLUME_SERVE_IDLE_MS 5000u
#define VOLUME_SERVERS_MAX   8u
/* A call that was let in has reached its server by then. */
#define VOLUME_SETTLE_MS  250u
#define VOLUME_ROOM_TRIES 16u

struct volume_obj;
struct sandbox_obj;

/* Is there a volume of that id? tenant "" when not; the answer takes as long. */
bool core_volume_is_token(struct core *c, const char *id, const char *token);

/* done with the sandbox that serves the contents of the volume, perhaps from inside; writes: the
 * call changes something. ERR_NOT_FOUND; ERR_CONFLICT with the sandbox that may write to it, or,
 * where the call writes, reads it; ERR_EXHAUSTED; ERR_UNAVAILABLE; what a create answers. */
void core_volume_serve(struct core *c, const char *id, bool writes, core_sandbox_cb done,
                       void *arg);

/* -- for core's other files -------------------------------------------------------------------- */

/* Volumes that o is to have are served: they are asked to be free, and o is told by
 * create_send_held or create_held_refused. false: none is. */
bool volume_content_hold(struct sandbox_obj *o);

/* The volume goes: what serves it ends. false: nothing does. */
bool volume_content_end(struct volume_obj *v);

/* A sandbox that served has been freed. */
void volume_content_ended(struct core *c);

/* At the core's end, or the volume's: those who wait are told. */
void volume_content_free(struct volume_obj *v, const struct err *why);

/* volume_room.c. *old: the volume that is to make way for v now; NULL: none yet, since there was no
 * time for a call that was let in to reach its server, or another one makes way. v is looked at
 * again at that one's end, or by its timer. false: none makes way. */
bool volume_room_find(struct volume_obj *v, struct volume_obj **old);
