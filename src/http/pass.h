#pragma once
/* A pipe through which contents that are not read here go from one socket to another by splice(2),
 * without being copied into our memory and out again. A server that relays has one, for as long as
 * it lives. It is a buffer as http_server.read_buf is: its bytes are there between one fill and
 * what is done with them within the same event; bytes that the other side does not take at once are
 * read out of it and queued as all else is. So one connection's bytes cannot reach another, and no
 * connection holds a pipe while it waits. Internal to src/http. */

#include "base/buf.h"

#include <stdbool.h>
#include <sys/types.h>

#define PASS_MIN_BYTES (64u * 1024u) /* still to come: for less it is not worth its calls */

struct pass {
    int in, out;     /* of the pipe; -1: there is none */
    size_t held;     /* bytes in it */
    uint64_t passed; /* bytes so far, for tests */
    bool off;        /* not wanted, or it could not be made: all is copied */
};

/* wanted: makes the pipe. Where that fails all is copied. */
void pass_init(struct pass *p, bool wanted);
void pass_free(struct pass *p);

/* At most n bytes of fd into the empty pipe. > 0, 0 at the end, -EAGAIN, -EOPNOTSUPP when they have
 * to be read instead, or another -errno. */
ssize_t pass_fill(struct pass *p, int fd, uint64_t n);

/* Moves to fd as many bytes as it takes now: their number, 0 for none, or -errno. */
ssize_t pass_drain(struct pass *p, int fd);

/* All that is left in it to the end of out. 0 or -errno; it is empty afterwards in any case. */
int pass_take(struct pass *p, struct buf *out);

/* Empties it. */
void pass_drop(struct pass *p);
