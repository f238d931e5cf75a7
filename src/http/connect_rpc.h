#pragma once
/* The Connect protocol with its JSON codec, server side, as E2B's SDKs speak it.
 *
 * Unary: POST application/json. Server stream: POST application/connect+json, envelopes of flags
 * u8, length u32 big-endian, JSON; the last one has flag 0x02. Errors of a stream travel in band
 * with HTTP 200. Source: connectrpc.com/docs/protocol; names and statuses there. */

#include "base/err.h"
#include "http/server.h"

#include <jansson.h>

enum connect_code {
    CONNECT_OK,
    CONNECT_CANCELED,
    CONNECT_UNKNOWN,
    CONNECT_INVALID_ARGUMENT,
    CONNECT_DEADLINE_EXCEEDED,
    CONNECT_NOT_FOUND,
    CONNECT_ALREADY_EXISTS,
    CONNECT_PERMISSION_DENIED,
    CONNECT_RESOURCE_EXHAUSTED,
    CONNECT_FAILED_PRECONDITION,
    CONNECT_ABORTED,
    CONNECT_OUT_OF_RANGE,
    CONNECT_UNIMPLEMENTED,
    CONNECT_INTERNAL,
    CONNECT_UNAVAILABLE,
    CONNECT_DATA_LOSS,
    CONNECT_UNAUTHENTICATED
};

const char *connect_code_name(enum connect_code code);
int connect_code_http_status(enum connect_code code);
enum connect_code connect_code_from_err(enum err_code code);

/* Reads the request of a unary call or the one envelope of a server stream: checks method, content
 * type, size (max), flags, JSON (depth). done gets an object it must json_decref. On a bad request
 * it answers by itself, in the form that the content type asks for, and done is not called. */
void connect_read(struct http_exchange *x, size_t max,
                  void (*done)(struct http_exchange *x, json_t *request, bool stream));

/* Unary answers. Takes no reference. connect_reply_empty answers {}. */
void connect_reply(struct http_exchange *x, json_t *reply);
void connect_reply_empty(struct http_exchange *x);

/* Streams: begin (HTTP 200), any number of messages, one end. send: 0, or 1 when full (go on after
 * http_response_on_drain). send_text takes JSON that is already text. */
void connect_stream_begin(struct http_exchange *x);
int connect_stream_send(struct http_exchange *x, json_t *message);
int connect_stream_send_text(struct http_exchange *x, const char *json, size_t len);
void connect_stream_end(struct http_exchange *x, enum connect_code code, const char *fmt, ...)
    PRINTF(3, 4);

/* Error in the right form, whether the request was unary or a stream, begun or not. */
void connect_fail(struct http_exchange *x, enum connect_code code, const char *fmt, ...)
    PRINTF(3, 4);

/* Connect-Timeout-Ms: 0 when absent, -EINVAL when malformed (RFC: up to 10 digits). */
int connect_timeout_ms(const struct http_head *h, uint64_t *out);
