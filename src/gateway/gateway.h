#pragma once
/* The connection loop's half of the gateway: takes the requests that are a sandbox's, asks the
 * control loop about them, and relays.
 *
 * There is one per connection loop. The control loop is reached by the query function that the
 * owner gives: the query crosses to gateway_resolve there, and its answer comes back by
 * gateway_answered with the same ticket. Never blocks. */

#include "gateway/conn_share.h"
#include "gateway/resolve.h"
#include "http/server.h"

struct gateway;

struct gateway_config {
    size_t max_waiting;         /* requests that wait for the control loop */
    uint64_t lookup_timeout_ms; /* for its answer */
    uint64_t connect_timeout_ms;
    uint64_t agent_timeout_ms;      /* for the begin of an agent's answer; 0 none */
    struct share_pool *conn_shares; /* of the loop's connections; the owner's */
    /* Takes over what q holds. 0, or -EAGAIN when the control loop has too much to do. */
    int (*query)(void *ctx, uint64_t ticket, struct gateway_query *q);
    void *ctx;
};

int gateway_new(uv_loop_t *loop, const struct gateway_config *config, struct gateway **out);
void gateway_free(struct gateway *g);

/* True: the request is a sandbox's (or a bad one), and was or will be answered. False: it is the
 * control plane's, and untouched. */
bool gateway_handle(struct gateway *g, struct http_exchange *x);

/* Takes over the answer's descriptor. */
void gateway_answered(struct gateway *g, uint64_t ticket, struct gateway_answer *a);

/* The sandbox has been paused: its relays end, when their bytes that have come already have gone on
 * (for at most GATEWAY_DRAIN_MS). Later relays do not end. id NULL: which one it was could not be
 * told for lack of memory, and all that is relayed now ends. */
#define GATEWAY_DRAIN_MS 50
void gateway_paused(struct gateway *g, const char *id);

/* How often a request about a volume's contents is begun anew, as what served them made way for a
 * sandbox just then: a read whose relay failed, and any request to which no socket could be had. */
#define GATEWAY_VOLUME_REPEATS 8u

/* A CORS preflight? Answers it. Host names of user ports answer theirs themselves. */
bool gateway_preflight(struct http_exchange *x);
