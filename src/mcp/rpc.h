#pragma once
/* JSON-RPC 2.0 as the Model Context Protocol uses it: one message, read and taken apart, and the
 * messages that answer it. Pure. Sources: www.jsonrpc.org/specification;
 * modelcontextprotocol.io/specification, basic protocol. */

#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>

#define RPC_METHOD_MAX 128u /* bytes of a method's name */
#define RPC_ID_MAX     256u /* bytes of an id that is a text */

/* Codes of JSON-RPC, and of revision 2026-07-28. */
enum rpc_code {
    RPC_PARSE_ERROR = -32700,
    RPC_INVALID_REQUEST = -32600,
    RPC_METHOD_NOT_FOUND = -32601,
    RPC_INVALID_PARAMS = -32602,
    RPC_INTERNAL_ERROR = -32603,
    RPC_HEADER_MISMATCH = -32020,
    RPC_UNSUPPORTED_VERSION = -32022,
};

enum rpc_kind { RPC_REQUEST, RPC_NOTIFICATION, RPC_RESPONSE };

struct rpc_message {
    enum rpc_kind kind;
    json_t *whole;        /* owns the rest */
    const json_t *id;     /* a text or a whole number; NULL in a notification */
    const char *method;   /* NULL in a response */
    const json_t *params; /* an object, or NULL */
};

/* 0, or the code of what is wrong with it and why; out is then empty. */
int rpc_read(const char *text, size_t len, struct rpc_message *out, struct err *e);
void rpc_message_free(struct rpc_message *m);

/* {"jsonrpc": "2.0", "id": ..., "result": ...}: takes the reference to result. id NULL: none. NULL:
 * memory is out. */
json_t *rpc_result(const json_t *id, json_t *result);
/* id NULL: it answers no request, and its id is null. */
json_t *rpc_error(const json_t *id, int code, const char *message,
                  json_t *data); /* data may be NULL */
json_t *rpc_notification(const char *method, json_t *params);

/* Is it an id, or a progress token: a text of at most RPC_ID_MAX bytes, or a whole number? */
bool rpc_is_id(const json_t *id);

/* Are both ids the same? */
bool rpc_same_id(const json_t *a, const json_t *b);

/* Appends an event of a stream of server-sent events. 0, -EMSGSIZE, -ENOMEM. */
int rpc_put_event(struct buf *b, const json_t *message) WARN_UNUSED;

/* Bytes as a JSON text; bytes that are not UTF-8 become U+FFFD. NULL: memory is out. */
json_t *rpc_text(const char *bytes, size_t n);
