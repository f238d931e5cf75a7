#pragma once
/* The memory that answers take which are searched for secrets: bytes kept back until they are known
 * to be none, and bytes that wait for a client that does not take them. A server and a client of
 * the same sandbox say between them how much that is, and for how long. So an answer takes places
 * of a pool of the process for what it holds beyond HELD_ANSWER_FREE_BYTES, and gives them back as
 * it holds less; where there is none for it, it ends. The pool is shared out by tenant and sandbox
 * (base/share.h). */

#include "base/share.h"

#include <stddef.h>

#define HELD_ANSWER_FREE_BYTES  (128u * 1024u) /* connections are bounded by themselves */
#define HELD_ANSWER_PLACE_BYTES (64u * 1024u)
#define HELD_ANSWER_PLACES      4096u /* of a process: 256 MiB */

struct held_answers;

/* NULL: memory is out. Freed when no answer is open; NULL is none. */
struct held_answers *held_answers_new(void);
void held_answers_free(struct held_answers *all);

struct held_answer {
    struct held_answers *all; /* NULL: not counted */
    struct share *owner;      /* of its flow, which may have ended */
    struct share *share;      /* each of the places is a reference; NULL: none was taken */
    size_t places;
};

/* like: a place of another pool, of the same sandbox. Either may be NULL. 0 or -ENOMEM. */
int held_answer_open(struct held_answer *h, struct held_answers *all, const struct share *like);

/* It holds so many bytes now. 0, or -ENOBUFS: the sandbox or its tenant has its share. */
int held_answer_count(struct held_answer *h, size_t bytes);
void held_answer_close(struct held_answer *h);
