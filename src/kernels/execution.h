#pragma once
/* A POST /execute: its stream of lines to the client, made of the kernel's messages. Source: what
 * e2b-code-interpreter 2.11 (Python) and @e2b/code-interpreter 2.8 read.
 *
 *   WAITING --its turn in the context--> RUNNING --the kernel is idle and has replied--> over
 *
 * The head is sent at once, also while another execution holds the context. After
 * EXECUTION_KEEPALIVE_MS without a line there is one, so that a client that is gone is noticed.
 * A client that is gone leaves the execution without an exchange: the context then interrupts the
 * kernel and drops it when the kernel is idle. Output that a client does not take is held up to
 * EXECUTION_HELD_MAX; beyond, the connection is cut. A line of over EXECUTION_LINE_MAX bytes, and
 * output that cannot be read, become lines on stderr that say so. */

#include "http/server.h"
#include "kernels/wire.h"

#define EXECUTION_KEEPALIVE_MS 5000u
#define EXECUTION_HELD_MAX     (64u * 1024u * 1024u)
#define EXECUTION_LINE_MAX     (48u * 1024u * 1024u)

struct execution {
    struct execution *next;
    struct http_exchange *x; /* NULL: the client is gone, or has its answer */
    uv_timer_t timer;
    char id[WIRE_ID_LEN + 1]; /* of its request to the kernel */
    char *code;
    json_t *env; /* for it alone, or NULL */
    bool errored, accepted, idle, replied, resulted;
    void (*on_gone)(void *arg, struct execution *ex);
    void *arg;
};

/* Begins the answer to x. code and env are taken over, also on failure. on_gone: the client went
 * away before the end. NULL: out of memory, and x is answered. */
struct execution *execution_new(struct http_exchange *x, char *code, json_t *env,
                                void (*on_gone)(void *arg, struct execution *ex), void *arg);

/* A message whose parent is this execution. True: it is over, and execution_end follows. */
bool execution_on_message(struct execution *ex, const struct wire_message *m);

/* At most one error line for each execution. */
void execution_error(struct execution *ex, const char *name, const char *value);

/* The last line; ex is freed. */
void execution_end(struct execution *ex);
