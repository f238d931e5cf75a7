#pragma once
/* Shared by forward.c (connections and their requests), forward_client.c (TLS towards the client)
 * and forward_up.c (the servers that they go to). */

#include "egress/flow/dial.h"
#include "egress/flow/forward.h"
#include "egress/flow/target.h"
#include "egress/tls/tls_endpoint.h"
#include "http/server.h"
#include "policy/policy.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An adopted connection. It lives as long as http_server's, which may be a moment longer than the
 * flow: flow_id is 0 then, and nothing is served any more. */
struct client_conn {
    struct egress *egress;
    struct client_conn *prev, *next;
    uint64_t flow_id, owner; /* turns.h */
    int fd;                  /* http_server's: only to end it, and to count */
    bool tls;
    void *layer;                        /* with tls: http/tls_conn.h's, until the connection ends */
    uint64_t read_bytes, written_bytes; /* through it */
    struct http_exchange *x;            /* the request that is served, if one is */
    struct target want;                 /* of it; its name is in want_name */
    char want_name[POLICY_NAME_MAX + 1], said_name[POLICY_NAME_MAX + 1];
    bool preparing;             /* dialling for it, or waiting: */
    uint64_t waiting_ms;        /* for its credential, since then (oauth.h); 0: it is not */
    struct tls_endpoint up_end; /* idle, connected to `up`; fd -1: none */
    void *relayed;              /* the layer of the one that a relay has, or NULL */
    struct target up;
    char up_name[POLICY_NAME_MAX + 1];
    uint64_t up_moved, down_moved; /* bytes that went through, where they are limited */
};

/* NULL: it has ended. */
struct flow *forward_flow(const struct client_conn *l);

/* http_relay_options.on_move; arg is the connection. */
bool forward_on_move(void *arg, size_t request_bytes, size_t answer_bytes);

/* A copy, whose name is in room. */
void forward_set_target(struct target *t, char name_buffer[static POLICY_NAME_MAX + 1],
                        const struct target *from);

/* -- forward_client.c -------------------------------------------------------------------------- */

/* The layer of a client's connection with TLS; its state is the struct client_conn. Contents are
 * counted for the flow as they come and go. */
extern const struct http_layer_ops forward_client_layer;

/* -- answers ----------------------------------------------------------------------------------- */

void forward_answer(struct http_exchange *x, struct flow *f, int status, const char *error,
                    const char *rule, const char *message);

/* After request_refuse. */
void forward_say_refused(struct http_exchange *x, struct flow *f, int status);
void forward_refuse(struct http_exchange *x, struct flow *f, const struct target *t,
                    const struct policy_verdict *v);

/* -- forward_up.c ------------------------------------------------------------------------------ */

/* l->x goes to the server that is kept from the request before. False: there is none for
 * l->want. */
bool forward_reuse(struct client_conn *l, struct flow *f);

/* To the one that was dialled for it: dial_start's. */
void forward_on_dialed(struct egress *eg, uint64_t id, const struct dial_result *r);
