#pragma once
/* Followers are told of each change of state of a tenant's sandboxes, in a form of their own.
 *
 * A follower is a format, which makes lines of what happened while the sandbox is still there, and
 * the write end of a pipe, whose read end is another thread's. Nothing waits for it: one that has
 * not taken STATE_FOLLOW_HELD_BYTES beside what its pipe holds is cut, and has to look for itself.
 * core/events.h has what is kept for who comes later, and says what is missing. */

#include "base/buf.h"
#include "core/core.h"

#define STATE_FOLLOW_MAX        256u /* places, shared out by tenant (base/share.h) */
#define STATE_FOLLOW_HELD_BYTES (128u * 1024u)
#define STATE_FOLLOW_LINE_BYTES (64u * 1024u) /* of what one step makes */

struct state_format {
    /* Appends lines about s, which was in state from until now; nothing where clients are not told.
     * 0 or -errno: the follower is cut. out takes STATE_FOLLOW_LINE_BYTES. */
    int (*put)(void *arg, const struct sandbox *s, enum sandbox_state from, struct buf *out);
    void (*free)(void *arg);
    void *arg;
};

/* *fd: the read end of a pipe of lines, the caller's, non-blocking. It ends with the key (an API
 * key of the tenant's), with a reader that is too slow, and with core. Closing it ends the
 * follower. f's arg is taken over in every case. ERR_EXHAUSTED: the tenant has as many as it may;
 * ERR_UNAVAILABLE. */
enum err_code core_states_follow(struct core *c, const char *tenant, const char *key,
                                 const struct state_format *f, int *fd, struct err *e);

/* -- for core ---------------------------------------------------------------------------------- */

struct sandbox_obj;

/* s has taken a step. Calls nothing back but formats. */
void state_follow_notify(struct sandbox_obj *o, enum sandbox_state from);

/* The key of that id opens nothing any more. */
void state_follow_forget_key(struct core *c, const char *key_id);

/* Ends all, before pipe_writers_stop. */
void state_follow_stop(struct core *c);
