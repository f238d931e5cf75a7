#pragma once
/* A stream of bytes to a reader in another thread: the write end of a pipe, and what the pipe did not take
 * yet, up to a maximum. Nothing waits for the reader; whether it takes what there is, is its own affair. */

#include "core/core.h"

struct outlet;

/* What its owner wants to be told of, from the loop and never within a call; NULL: nothing. */
struct outlet_owner {
    void (*on_empty)(void *arg); /* the reader has taken all that was put: more may be, or an end */
    void (*on_gone)(void *arg);  /* the reader has gone: to be ended */
    void *arg;
};

/* *fd: the read end, the caller's. max: bytes that are held beside the pipe's own. owner may be NULL. NULL:
 * -errno in *rc. */
struct outlet *outlet_new(struct core *c, size_t max, const struct outlet_owner *owner, int *fd,
                          int *rc);

/* Copies them. 0; -EMSGSIZE: the reader is so far behind that they do not fit, and none of them was taken;
 * -EPIPE: it has gone; -ENOMEM. */
int outlet_put(struct outlet *o, const char *bytes, size_t n);

size_t outlet_held(const struct outlet *o);  /* bytes that wait for the reader */
bool outlet_is_read(const struct outlet *o); /* false: the reader has gone */

/* What is held is still given to the reader, who then sees the end of the stream. o is not the caller's any
 * more. */
void outlet_end(struct outlet *o);

/* As outlet_end, but what is held is not given any more. */
void outlet_cut(struct outlet *o);

/* For core_free: nobody puts anything into those that are left. How many handles will yet be closed
 * (core_handle_closed tells of each). */
unsigned outlets_stop(struct core *c);
