#pragma once
/* A relay, and what its files use of relay.c: relay_head.h makes heads, relay_filter.h passes bytes
 * through a filter, relay_tunnel.h takes over after an answer 101, relay_end.h ends it. */

#include "http/exchange.h"
#include "http/relay.h"
#include "http/server_internal.h"
#include "http/wire.h"

/* Both sides end on their own: the exchange belongs to the server and may be gone first (x is NULL
 * then and the upstream is closed at once); the upstream may be done first (the wire is closed, and
 * the exchange goes on without a relay). */
struct relay {
    struct wire wire;
    struct http_exchange *x;
    struct http_server *server; /* x's, while it may be asked for time */
    uint64_t tag;
    uint32_t round;
    struct buf in; /* the response's head in the making */
    size_t scanned;
    char *storage;
    unsigned interim;
    bool request_sent;      /* the whole body was handed to the wire */
    bool has_head;          /* of the final response */
    bool decode;            /* the client does not know chunks */
    bool upgrade_requested; /* and sent on */
    bool tunnel, up_ended, client_ended;
    bool full;         /* the window is: the client waits for the upstream to take it */
    size_t full_bytes; /* of it, when last looked at */
    bool overrun;      /* bytes came after the response's end */
    bool behind;       /* the client does not take what there is: nothing is read */
    /* With a filter: */
    struct buf filtered; /* of the answer, to go on */
    bool filter_waits;   /* for wake */
    bool up_over;        /* the upstream has ended, with over_result; it is acted on later */
    ssize_t over_result;
    struct http_relay_options o;
    struct parse_body parse;
    struct http_head head;
};

/* The next bytes of the answer. False: the relay has ended, or its exchange is about to. */
bool relay_deliver(struct relay *r, const char *data, size_t n);

/* The upstream has, n as wire_read's. */
void relay_upstream_ended(struct relay *r, ssize_t n);

/* Does the client take what comes, and no filter wait? Reading is on where it is so. */
bool relay_may_read(const struct relay *r);
void relay_read_on(struct relay *r);

/* The client does not take what comes: the upstream is not read, until it does. */
void relay_set_behind(struct relay *r, bool behind);

/* The next bytes of the request's body, or of a tunnel's client. */
void relay_request_data(struct http_exchange *x, const char *data, size_t len);

/* The upstream does not take what there is: the client is not read, until it does. */
void relay_window_full(struct relay *r);
