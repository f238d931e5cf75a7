#pragma once
/* A stream of bytes to a reader in another thread: the write end of a pipe, and what the pipe did
 * not take yet, up to a maximum. Nothing waits for the reader; whether it takes what there is, is
 * its own affair. */

#include "core/core.h"

struct pipe_writer;

/* Callbacks of its owner, from the loop and never within a call; NULL: nothing. */
struct pipe_writer_owner {
    void (*on_empty)(void *arg); /* the reader has taken all that was put: more may be, or an end */
    void (*on_gone)(void *arg);  /* the reader has gone: to be ended */
    void *arg;
};

#define CORE_STREAMS_MAX 512u /* places: shared out by tenant and sandbox (base/share.h) */

/* A place for the stream of one answer, until its reader has taken all of it or has gone, which may
 * be long after who writes it has ended. sandbox: "" for none. NULL: refused. */
struct share *pipe_writer_share(struct core *c, const char *tenant, const char *sandbox);

/* *fd: the read end, the caller's. max: bytes that are held beside the pipe's own. owner may be
 * NULL. place: taken over in every case; NULL: such streams are counted elsewhere. NULL: -errno in
 * *rc. */
struct pipe_writer *pipe_writer_new(struct core *c, size_t max,
                                    const struct pipe_writer_owner *owner, struct share *share,
                                    int *fd, int *rc);

/* Copies them. 0; -EMSGSIZE: the reader is so far behind that they do not fit, and none of them was
 * taken; -EPIPE: it has gone; -ENOMEM. */
int pipe_writer_put(struct pipe_writer *o, const char *bytes, size_t n);

size_t pipe_writer_held(const struct pipe_writer *o);  /* bytes that wait for the reader */
bool pipe_writer_is_read(const struct pipe_writer *o); /* false: the reader has gone */

/* Held bytes are still given to the reader, who then sees the end of the stream. o is not the
 * caller's any more. */
void pipe_writer_end(struct pipe_writer *o);

/* As pipe_writer_end, but held bytes are not given any more. */
void pipe_writer_cut(struct pipe_writer *o);

/* For core_free: no more is put into those that are left. How many handles will yet be closed
 * (core_handle_closed tells of each). */
unsigned pipe_writers_stop(struct core *c);
