#pragma once
/* Shared by connloop.c and connloop_api.c: the loop itself, which connloop.c makes and joins. Its
 * own thread alone touches it, but for what another posts to its mailbox. */

#include "base/share.h"
#include "cayd/connloop.h"
#include "cayd/key_owner.h"
#include "cayd/stream.h"
#include "core/key.h"
#include "gateway/gateway.h"
#include "gateway/pending.h"
#include "http/server.h"
#include "toolbox/toolbox.h"

#include <stdatomic.h>

/* Bytes that a connection may send before its key is known. A longer body is read when the key is
 * known, and takes one of BODIES_MAX places, which are shared out by tenant (base/share.h). */
#define KEYLESS_BODY_BYTES 8192u
#define BODIES_MAX         192u

/* An order of another thread to a connection loop. Orders that are given once are a part of the
 * loop, so that they need no memory. */
_Static_assert(CORE_KEY_ID_SIZE <= IDS_SANDBOX_SIZE, "an order has room for either");
struct order {
    struct mailbox_message message;
    uint64_t grace_ms;
    char id[IDS_SANDBOX_SIZE]; /* of the sandbox, or the key, that it is about */
    bool allocated;
};

struct connloop {
    struct connloop_config config;
    int listen_fds[CONNLOOP_LISTENERS_MAX];
    uv_thread_t thread;
    uv_loop_t loop;
    uv_timer_t sweep;
    struct mailbox inbox;
    struct http_server *server;
    struct gateway *gateway;
    struct toolbox *toolbox;
    struct pending *api_pending;
    struct share_pool *bodies, *conn_shares;
    struct key_owners owners;
    struct waited_body *waited; /* connloop_api.c: requests of the API whose bodies come yet */
    struct upload *imports;     /* upload.c: bodies that are a key's, and come yet */
    struct streams *streams;
    struct order serve, stop;
    struct order end_all;       /* for what is relayed, when there is no memory to say to which */
    _Atomic bool end_all_is_on; /* sent, and not yet open */
    bool stopping;
};

/* Sends a to the control loop; its answer is x's, which waits for it under a->ticket, wait_ms at
 * most. x NULL: its client has gone. false: a is freed (NULL: memory was out), nothing waits, and x
 * is the caller's to answer. */
bool connloop_request(struct connloop *l, struct http_exchange *x, struct control_request *a,
                      unsigned wait_ms);

/* The request as the API takes it, its body copied; NULL: memory is out. */
struct api_request *connloop_api_request(const struct http_head *h, const char *body, size_t len);

/* Sends it (NULL: memory was out): the answer is x's, found by its ticket in l->api_pending.
 * false: x was answered here (503). */
bool connloop_api_send(struct connloop *l, struct http_exchange *x, struct api_request *r,
                       void (*answered)(struct control_request *a, void *reader));

/* An answer of the API goes to its client, where it is still there. */
void connloop_api_answered(struct control_request *a, void *reader);
void connloop_api_respond(struct connloop *l, struct http_exchange *x, struct api_response *r);

/* An answer for which no client waits. */
void connloop_nothing_answered(struct control_request *a, void *reader);

/* Serves a request of the API: collects its body, hands it to the control loop, and answers. */
void connloop_api(struct connloop *l, struct http_exchange *x);

/* The id of the key that it came with. */
void connloop_api_key_id(struct http_exchange *x, char out[static CORE_KEY_ID_SIZE]);

/* Requests of the API that were begun with that key (its id; NULL: any), and whose bodies are on
 * their way, end with their connections. */
void connloop_api_revoked(struct connloop *l, const char *key_id);
