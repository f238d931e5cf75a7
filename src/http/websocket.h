#pragma once
/* A WebSocket, server side (RFC 6455), over an exchange that asks for one. Messages come whole, up
 * to a maximum; no extension is spoken. In a library of its own, because cay-init has the server
 * without OpenSSL (SHA-1 of the handshake).
 *
 * A client that sends frames and does not take what they are answered by (pongs, and what
 * on_message sends) is not read from while the server's write_high_bytes are queued.
 *
 * It lives as long as its exchange, whose close callback is the owner's to know the end by. Never
 * blocks. */

#include "http/server.h"

struct websocket;

struct websocket_callbacks {
    void (*on_message)(void *arg, bool text, const char *data, size_t len);
    void (*on_drain)(void *arg); /* may be NULL: all that was sent has gone */
    /* A message is handed on in pieces as they come: nothing of it is held, and message_max counts
     * for nothing. */
    bool in_pieces;
    /* May more than WEBSOCKET_SMALL_BYTES of one message be held? False: the client is told to try
     * again. release: of what was held nothing is any more. Both or none; release comes before the
     * exchange's close callback too. */
    bool (*hold)(void *arg);
    void (*release)(void *arg);
};

#define WEBSOCKET_SMALL_BYTES 8192u

enum websocket_code {
    WEBSOCKET_NORMAL = 1000,
    WEBSOCKET_PROTOCOL = 1002,
    WEBSOCKET_POLICY = 1008,
    WEBSOCKET_TOO_BIG = 1009,
    WEBSOCKET_FAILED = 1011,
    WEBSOCKET_LATER = 1013,          /* the server has too much to do */
    WEBSOCKET_DAYTONA_TIMEOUT = 4008 /* an application's own: an execution took too long */
};

/* Does the request ask for one? */
bool websocket_requested(const struct http_head *h);

/* Is one of the subprotocols that are offered this, or does it begin with it? Its whole name into
 * out (cut). */
bool websocket_offers(const struct http_head *h, const char *begin, char *out, size_t size);

/* Answers 101, with protocol if it is not NULL, which must be one that was offered. NULL: the
 * request is no good handshake, and was answered 400 or 426; or memory is out, 503. */
struct websocket *websocket_accept(struct http_exchange *x, const char *protocol,
                                   size_t message_max, const struct websocket_callbacks *cb,
                                   void *arg);

/* 0, or 1 when much waits: go on after on_drain. Nothing after a close. */
int websocket_send(struct websocket *w, bool text, const void *data, size_t len);

/* The same of two pieces as one message. */
int websocket_send_two(struct websocket *w, bool text, const void *a, size_t a_len, const void *b,
                       size_t b_len);

/* Says so, with at most 123 bytes of reason, and ends the exchange. Not again. */
void websocket_close(struct websocket *w, enum websocket_code code, const char *reason);

/* No more messages are read until it is resumed. */
void websocket_pause(struct websocket *w, bool pause);
