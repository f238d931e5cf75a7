#pragma once
/* The memory that bodies of requests take which are held for their credential: a body whose
 * placeholders are replaced, or that is signed, waits until it is whole, and the sandbox says how
 * long that lasts. So a body takes places of a pool of the process before its first byte is held,
 * and gives them back when its exchange has ended, as until then its server may leave it unread.
 * The pool is shared out by tenant and sandbox (base/share.h). */

#include "base/share.h"

#include <stdbool.h>
#include <stddef.h>

#define HELD_BODY_PLACE_BYTES (64u * 1024u)
#define HELD_BODY_PLACES      4096u /* of a process: 256 MiB */

/* Whose bodies are held, and within which pool. No pool: none may be held. */
struct held_bodies {
    struct share_pool *pool;
    const struct share *like; /* a place of another pool, of the same sandbox */
};

struct held_body {
    struct share *share; /* each of the places is a reference; NULL: none was taken */
    size_t places;
};

/* Places for so many bytes. false: the sandbox or its tenant has its share, or memory is out; *h is
 * empty then. */
bool held_body_take(struct held_body *h, const struct held_bodies *of, size_t bytes);
void held_body_return(struct held_body *h);

/* *to gives back its own, and has those of *from. */
void held_body_move(struct held_body *to, struct held_body *from);
