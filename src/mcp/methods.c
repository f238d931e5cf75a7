#include "mcp/methods.h"

#include "mcp/resources.h"
#include "mcp/result.h"
#include "mcp/tool.h"

#include <stdio.h>
#include <string.h>

#define LIST_TTL_MS 3600000

#define INSTRUCTIONS                                                                               \
    "Tools to work in sandboxes: isolated Linux computers with a shell and files. Run commands "   \
    "with \"run\", look at "                                                                       \
    "and change files with \"read\", \"write\", \"edit\", \"list\" and \"search\". In a session "  \
    "a sandbox is made by itself when "                                                            \
    "it is first needed and kept for the next calls; otherwise make one with \"create\" and give " \
    "its id with each call. "                                                                      \
    "The network may be limited: a result's \"denied\" says by which rule."

enum { HANDSHAKE = 1u << 0, STATELESS = 1u << 1, BOTH = HANDSHAKE | STATELESS };

static json_t *capabilities(void)
{
    return json_pack("{s:{}, s:{}}", "tools", "resources");
}

/* -- initialize, server/discover, ping --------------------------------------------------------- */

static void initialize(struct request *r)
{
    const json_t *params = r->message.params;
    const char *requested = json_string_value(json_object_get(params, "protocolVersion"));
    struct session *s;
    struct err e;

    if (!requested || !json_is_object(json_object_get(params, "capabilities")) ||
        !json_is_object(json_object_get(params, "clientInfo"))) {
        request_error(r, 200, RPC_INVALID_PARAMS,
                      "initialize needs \"protocolVersion\", a text, and the objects "
                      "\"capabilities\" and \"clientInfo\"",
                      NULL);
        return;
    }
    if (session_begin(r->mcp->sessions, r->tenant, &s, &e) != ERR_OK) {
        char text[sizeof(e.text) + sizeof(e.hint) + 4];

        (void)snprintf(text, sizeof(text), "%s; %s", e.text, e.hint);
        request_error(r, 429, 429, text, NULL);
        return;
    }
    r->revision = revision_negotiate(requested);
    api_header_add(r->http, "Mcp-Session-Id", s->id);
    request_result(r, json_pack("{s:s, s:o, s:{s:s, s:s, s:s}, s:s}", "protocolVersion",
                                r->revision->name, "capabilities", capabilities(), "serverInfo",
                                "name", "cay", "title", "cay sandboxes", "version", CAY_VERSION,
                                "instructions", INSTRUCTIONS));
}

static void discover(struct request *r)
{
    request_result_cached(r,
                          json_pack("{s:o, s:o, s:s}", "supportedVersions", revision_names(),
                                    "capabilities", capabilities(), "instructions", INSTRUCTIONS),
                          LIST_TTL_MS, false);
}

static void ping(struct request *r)
{
    request_result(r, json_object());
}

/* Nothing changes that a client could subscribe to: the stream says so, and ends. */
static void subscribe(struct request *r)
{
    json_t *meta = json_object();

    if (!r->takes_stream) {
        json_decref(meta);
        request_error(r, 400, RPC_INVALID_REQUEST,
                      "subscriptions/listen needs \"Accept: text/event-stream\"", NULL);
        return;
    }
    json_object_set(meta, "io.modelcontextprotocol/subscriptionId", (json_t *)r->message.id);
    if (!request_stream(r)) {
        json_decref(meta);
        return;
    }
    request_notify(r, "notifications/subscriptions/acknowledged",
                   json_pack("{s:O, s:{}}", "_meta", meta, "notifications"));
    request_result(r, json_pack("{s:o}", "_meta", meta));
}

/* -- tools ------------------------------------------------------------------------------------- */

/* There is one page. */
static bool refuse_cursor(struct request *r)
{
    if (!json_object_get(r->message.params, "cursor"))
        return false;
    request_error(r, 200, RPC_INVALID_PARAMS, "\"cursor\" is none that this server gave", NULL);
    return true;
}

static void list_tools(struct request *r)
{
    if (!refuse_cursor(r))
        request_result_cached(
            r,
            json_pack("{s:o}", "tools",
                      tool_list(r->mcp->shown[r->revision->stateless], r->rights)),
            LIST_TTL_MS, r->rights != REQUEST_ALL_RIGHTS);
}

static void call_tool(struct request *r)
{
    const char *name = json_string_value(json_object_get(r->message.params, "name"));
    const struct tool *t = name ? tool_find(name) : NULL;
    char text[RPC_METHOD_MAX + 64];
    struct err e;

    if (!t) {
        (void)snprintf(text, sizeof(text), "Unknown tool: %.128s",
                       name ? name : "\"name\" is missing");
        request_error(r, 200, RPC_INVALID_PARAMS, text, NULL);
        return;
    }
    r->args = json_object_get(r->message.params, "arguments");
    if (!t->right || !t->run || !(t->right & r->rights))
        result_fail(r,
                    "this connection has no right to use \"%s\": X-Cay-Rights, which its owner "
                    "sets, does not name it",
                    t->name);
    else if (schema_check(t->in, r->args, &e) != ERR_OK)
        result_fail_err(r, &e);
    else
        t->run(r);
}

static void list_templates(struct request *r)
{
    if (!refuse_cursor(r))
        resources_templates(r);
}

/* -- the table --------------------------------------------------------------------------------- */

#define NONE_NEEDED (1u << 31) /* no right is needed: beyond all that there are */
_Static_assert(!(NONE_NEEDED & REQUEST_ALL_RIGHTS), "it is no right");

static const struct method {
    const char *name;
    unsigned generations;
    unsigned right; /* 0: not decided, and refused */
    void (*run)(struct request *r);
} methods[] = {
    {"initialize", HANDSHAKE, NONE_NEEDED, initialize},
    {"ping", HANDSHAKE, NONE_NEEDED, ping},
    {"server/discover", STATELESS, NONE_NEEDED, discover},
    {"subscriptions/listen", STATELESS, NONE_NEEDED, subscribe},
    {"tools/list", BOTH, NONE_NEEDED, list_tools},
    {"tools/call", BOTH, NONE_NEEDED, call_tool}, /* each tool has its own */
    {"resources/list", BOTH, REQUEST_READ, resources_list},
    {"resources/read", BOTH, REQUEST_READ, resources_read},
    {"resources/templates/list", BOTH, REQUEST_READ, list_templates},
};

static const struct method *find(const char *name, bool stateless)
{
    for (size_t i = 0; i < ARRAY_SIZE(methods); i++)
        if (strcmp(methods[i].name, name) == 0 &&
            (methods[i].generations & (stateless ? STATELESS : HANDSHAKE)))
            return &methods[i];
    return NULL;
}

static bool has_right(const struct method *m, const struct request *r)
{
    return m->right == NONE_NEEDED || (m->right && (m->right & r->rights) == m->right);
}

/* A token goes with each progress that is told. */
static bool has_good_token(const struct request *r)
{
    const json_t *meta = json_object_get(r->message.params, "_meta");
    const json_t *token = json_object_get(meta, "progressToken");

    return !token || json_is_null(token) || rpc_is_id(token);
}

void methods_call(struct request *r)
{
    const struct method *method = find(r->message.method, r->revision->stateless);
    char text[RPC_METHOD_MAX + 64];

    if (!method) {
        (void)snprintf(text, sizeof(text), "Method not found: %s", r->message.method);
        request_error(r, r->revision->stateless ? 404 : 200, RPC_METHOD_NOT_FOUND, text, NULL);
    } else if (!has_right(method, r)) {
        request_error(r, 200, RPC_INVALID_REQUEST,
                      "this connection has no right to do that: X-Cay-Rights, which its owner "
                      "sets, does not name it",
                      NULL);
    } else if (!has_good_token(r)) {
        request_error(r, 200, RPC_INVALID_PARAMS,
                      "\"progressToken\" must be a text of at most 256 bytes, or a whole number",
                      NULL);
    } else {
        method->run(r);
    }
}

void methods_notify(struct mcp *m, const char *tenant, const char *session,
                    const struct rpc_message *message)
{
    const json_t *id = json_object_get(message->params, "requestId");

    if (strcmp(message->method, "notifications/cancelled") == 0 && session[0] && id)
        request_cancel(m, tenant, session, id);
}
