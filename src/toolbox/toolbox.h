#pragma once
/* Daytona's toolbox: the calls of its SDKs about the inside of a sandbox (programs, sessions,
 * terminals, files), below TOOLBOX_PREFIX, translated into calls of the sandbox's agent. The
 * control plane is src/api's.
 *
 * There is one per connection loop, and it runs on that loop alone. A request brings its tenant's
 * API key, or, for one file, a signature (core/file_url.h, ROUTE_FILE_URL); which sandbox that
 * reaches, and a socket to its agent, is asked of the control loop, each time that a connection is
 * needed, by the query function that the owner gives (gateway/resolve.h, ROUTE_KEYED). Nothing of a
 * sandbox is kept here: what outlives a request (sessions, terminals) is a process of the sandbox,
 * or a file in it, so that nothing is lost with cayd. Never blocks.
 *
 * Sources: openapi-specs/toolbox.json of github.com/daytona/clients at d94a128; what npm
 * @daytonaio/sdk 0.143.0 and 0.218.0 and PyPI daytona send; apps/daemon of daytonaio/daytona at
 * b5a5d9e78 for errors and defaults. */

#include "gateway/conn_share.h"
#include "gateway/resolve.h"
#include "http/server.h"

#define TOOLBOX_PREFIX      "/api/toolbox/"
#define TOOLBOX_EVENTS_PATH "/api/socket.io/"
#define TOOLBOX_USER        "daytona" /* whom programs and files belong to; each template has it */

#define TOOLBOX_BODY_MAX_BYTES (4u * 1024u * 1024u)
/* Of them at a time on one loop, shared out by tenant (base/share.h). */
#define TOOLBOX_BODIES_MAX   64u
#define TOOLBOX_BODIES_BYTES ((size_t)TOOLBOX_BODIES_MAX * TOOLBOX_BODY_MAX_BYTES)

struct toolbox;

struct toolbox_config {
    size_t max_waiting;         /* questions to the control loop at a time */
    uint64_t lookup_timeout_ms; /* for its answer */
    uint64_t connect_timeout_ms;
    uint64_t agent_timeout_ms;      /* for the begin of an agent's answer */
    struct share_pool *conn_shares; /* of the loop's connections; the owner's */
    /* Takes over what q holds. 0, or -EAGAIN when the control loop has too much to do. */
    int (*query)(void *ctx, uint64_t ticket, struct gateway_query *q);
    /* Asks for the states of the sandboxes of that key's tenant (api's DAYTONA_EVENTS_PATH), for a
     * client that named this server host: the answer's status, or a pipe of lines. 0 or -EAGAIN. */
    int (*follow)(void *ctx, uint64_t ticket, const char *host, const char *key);
    void *ctx;
};

/* 0 or -errno. */
int toolbox_new(uv_loop_t *loop, const struct toolbox_config *config, struct toolbox **out);

/* The sandbox has been paused: requests to its agent end. id NULL: of every agent, as for lack of
 * memory it could not be told which sandbox it was. */
void toolbox_paused(struct toolbox *t, const char *id);

/* The key opens nothing any more: calls that it was sent with end, also those that only begin.
 * key_id NULL: all of them, as above. */
void toolbox_key_revoked(struct toolbox *t, const char *key_id);

/* Calls under way end now: before the server stops, which waits for its answers. */
void toolbox_stop(struct toolbox *t);

/* After toolbox_stop, when the server has stopped; the memory goes with the loop's handles. */
void toolbox_free(struct toolbox *t);

/* True: the request is the toolbox's, and was or will be answered. */
bool toolbox_handle(struct toolbox *t, struct http_exchange *x);

/* To either question. Takes over the answer's descriptor. */
void toolbox_answered(struct toolbox *t, uint64_t ticket, struct gateway_answer *a);
