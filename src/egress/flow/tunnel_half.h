#pragma once
/* A direction of a tunnel (tunnel.c). */

#include "egress/flow/first_line.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct flow;
struct sandbox;
struct turns;

#define TUNNEL_PIPES_MAX 64u

struct tunnel_pipe {
    int in, out;
};

/* Empty ones, to be used again. */
struct tunnel_pipes {
    struct turns *turns; /* the account of the time that moving takes */
    struct tunnel_pipe pipe[TUNNEL_PIPES_MAX];
    size_t count;
};

/* A direction. */
struct tunnel_half {
    int from, to;
    struct tunnel_pipe pipe; /* -1 while it is empty */
    size_t held;             /* bytes in it */
    size_t run;              /* bytes since there was nothing to read */
    uint64_t *count;
    struct flow
        *greeting_flow;     /* the flow whose first bytes are looked at before they pass, or NULL */
    struct flow *line_flow; /* the flow whose first line is followed as it passes, or NULL */
    struct first_line line;
    bool readable, writable; /* as far as is known: until EAGAIN */
    bool bulk;               /* splice(2) is worth its pipe */
    bool ending;             /* the kernel has told of an end or an error behind the bytes */
    bool eof, shut;
    bool dead;  /* `to` was lost: nothing moves */
    bool reset; /* `from` was reset, and so is `to` to be, behind the bytes that came before */
};

/* 1: its turn is over and there may be more; 0: all is done for now; -errno. That a socket was lost
 * is no error: it is noted in the half. */
int tunnel_half_pump(struct tunnel_pipes *pool, struct tunnel_half *h, const struct sandbox *s);

/* Is there nothing more to pass on, and does the kernel of `to`'s peer have all that was? */
bool tunnel_half_is_passed(const struct tunnel_half *h);

/* It is over, or the pipe is empty. */
void tunnel_half_drop_pipe(struct tunnel_pipes *pool, struct tunnel_half *h);
