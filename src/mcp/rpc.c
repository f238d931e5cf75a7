#include "mcp/rpc.h"

#include "http/json.h"

#include <errno.h>
#include <string.h>

static int refuse(struct err *e, int code, const char *text)
{
    err_set(e, ERR_INVALID, "%s", text);
    return code;
}

/* MCP forbids null. */
bool rpc_is_id(const json_t *id)
{
    return json_is_integer(id) || (json_is_string(id) && json_string_length(id) <= RPC_ID_MAX);
}

static int read_response(const json_t *o, struct rpc_message *m, struct err *e)
{
    if (!json_object_get(o, "result") == !json_object_get(o, "error"))
        return refuse(e, RPC_INVALID_REQUEST,
                      "a message has a \"method\", or a \"result\", or an \"error\"");
    m->kind = RPC_RESPONSE;
    m->id = json_object_get(o, "id");
    return 0;
}

static int read_call(const json_t *o, const json_t *method, struct rpc_message *m, struct err *e)
{
    const json_t *id = json_object_get(o, "id"), *params = json_object_get(o, "params");

    if (!json_is_string(method) || json_string_length(method) == 0 ||
        json_string_length(method) > RPC_METHOD_MAX ||
        strlen(json_string_value(method)) != json_string_length(method))
        return refuse(e, RPC_INVALID_REQUEST, "\"method\" must be a text of 1 to 128 bytes");
    if (id && !rpc_is_id(id))
        return refuse(e, RPC_INVALID_REQUEST,
                      "\"id\" must be a text of at most 256 bytes, or a whole number");
    if (params && !json_is_object(params))
        return refuse(e, RPC_INVALID_REQUEST, "\"params\" must be an object");
    m->kind = id ? RPC_REQUEST : RPC_NOTIFICATION;
    m->id = id;
    m->method = json_string_value(method);
    m->params = params;
    return 0;
}

static int read_object(const json_t *o, struct rpc_message *m, struct err *e)
{
    const char *version = json_string_value(json_object_get(o, "jsonrpc"));
    const json_t *method = json_object_get(o, "method");

    if (json_is_array(o))
        return refuse(e, RPC_INVALID_REQUEST,
                      "batches are not supported: send each message as a request of its own");
    if (!json_is_object(o))
        return refuse(e, RPC_INVALID_REQUEST, "a message is a JSON object");
    if (!version || strcmp(version, "2.0") != 0)
        return refuse(e, RPC_INVALID_REQUEST, "\"jsonrpc\" must be \"2.0\"");
    return method ? read_call(o, method, m, e) : read_response(o, m, e);
}

int rpc_read(const char *text, size_t len, struct rpc_message *out, struct err *e)
{
    struct rpc_message m = {0};
    enum err_code rc;
    int code;

    *out = m;
    rc = json_parse_request(text, len, false, &m.whole, e);
    if (rc != ERR_OK)
        return rc == ERR_TOO_LARGE     ? RPC_INVALID_REQUEST
               : rc == ERR_UNAVAILABLE ? RPC_INTERNAL_ERROR
                                       : RPC_PARSE_ERROR;
    code = read_object(m.whole, &m, e);
    if (code == 0)
        *out = m;
    else
        json_decref(m.whole);
    return code;
}

void rpc_message_free(struct rpc_message *m)
{
    json_decref(m->whole);
    *m = (struct rpc_message){0};
}

/* -- made -------------------------------------------------------------------------------------- */

static json_t *new_message(const json_t *id)
{
    json_t *o = json_pack("{s:s}", "jsonrpc", "2.0");

    if (id)
        json_object_set(o, "id", (json_t *)id);
    return o;
}

json_t *rpc_result(const json_t *id, json_t *result)
{
    json_t *o = new_message(id);

    json_object_set_new(o, "result", result);
    return o;
}

json_t *rpc_error(const json_t *id, int code, const char *message, json_t *data)
{
    json_t *o = new_message(id), *error = json_pack("{s:i}", "code", code);

    if (!id) /* JSON-RPC 2.0, section 5, requires the member */
        json_object_set_new(o, "id", json_null());
    json_object_set_new(error, "message", rpc_text(message, strlen(message)));
    if (data)
        json_object_set_new(error, "data", data);
    json_object_set_new(o, "error", error);
    return o;
}

json_t *rpc_notification(const char *method, json_t *params)
{
    json_t *o = new_message(NULL);

    json_object_set_new(o, "method", json_string(method));
    json_object_set_new(o, "params", params);
    return o;
}

bool rpc_same_id(const json_t *a, const json_t *b)
{
    return a && b && json_equal(a, b);
}

int rpc_put_event(struct buf *b, const json_t *message)
{
    CLEANUP_FREE char *text = json_text(message, JSON_COMPACT);
    int rc = text ? buf_append_str(b, "event: message\ndata: ") : -ENOMEM;

    if (rc == 0)
        rc = buf_append_str(b, text);
    return rc == 0 ? buf_append_str(b, "\n\n") : rc;
}

json_t *rpc_text(const char *bytes, size_t n)
{
    json_t *text = json_stringn(bytes, n);
    CLEANUP_BUF struct buf b;

    buf_init(&b, 8 * n + 16);
    if (!text && json_append_text(&b, bytes, n) == 0)
        text = json_load_output(b.data, b.len);
    if (!text)
        json_set_cut(); /* a value without it is not whole */
    return text;
}
