#include "mcp/http.h"

#include "mcp/methods.h"
#include "mcp/tool.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define METADATA_PATH    "/.well-known/oauth-protected-resource"
#define BASE_SIZE        160
#define POLICY_DEFAULT   "deny"
#define TEMPLATE_DEFAULT "base"

static struct mcp *mcp_of(struct api_call *call)
{
    return call->dialect->owner;
}

/* -- before the key ---------------------------------------------------------------------------- */

/* A host is compared without its port: pages of a developer's own machine have any. */
static size_t host_len(const char *host)
{
    return host[0] == '[' ? strcspn(host, "]") + (strchr(host, ']') != NULL) : strcspn(host, ":/");
}

static bool is_host(const char *host, size_t n, const char *name)
{
    return strlen(name) == n && strncasecmp(host, name, n) == 0;
}

bool http_mcp_origin_is_own(const char *origin, const char *domain)
{
    static const char *const local[] = {"localhost", "127.0.0.1", "[::1]"};
    const char *host;
    size_t n;

    if (strncasecmp(origin, "http://", 7) == 0)
        host = origin + 7;
    else if (strncasecmp(origin, "https://", 8) == 0)
        host = origin + 8;
    else
        return false;
    n = host_len(host);
    if (host[n] != '\0' &&
        (host[n] != ':' || strspn(host + n + 1, "0123456789") != strlen(host + n + 1)))
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(local); i++)
        if (is_host(host, n, local[i]))
            return true;
    return domain[0] && host_len(domain) == n && strncasecmp(host, domain, n) == 0;
}

bool http_mcp_admit(struct api_call *call)
{
    const char *origin = call->request->headers[API_ORIGIN];

    if (!origin || http_mcp_origin_is_own(origin, api_config_of(call->api)->domain))
        return true;
    api_fail(
        call, 403,
        "a page of %.100s may not use this server: only those of its own domain and of localhost",
        origin);
    return false;
}

/* -- errors ------------------------------------------------------------------------------------ */

/* As the client named this server; where it did not, by its domain. */
static void base_address(const struct api_call *call, char *out, size_t size)
{
    const struct api_config *config = api_config_of(call->api);
    const char *host = call->request->host[0] ? call->request->host : config->domain;

    (void)snprintf(out, size, "%s://%.140s", config->https ? "https" : "http", host);
}

static void challenge(struct api_call *call)
{
    char base[BASE_SIZE], value[sizeof(call->response.headers[0].value)];

    base_address(call, base, sizeof(base));
    if (strpbrk(base, "\"\\")) /* nothing of a client's may end the quotes */
        return;
    (void)snprintf(value, sizeof(value), "Bearer %sresource_metadata=\"%s" METADATA_PATH "\"",
                   call->request->key[0] ? "error=\"invalid_token\", " : "", base);
    api_header_add(call, "WWW-Authenticate", value);
}

json_t *http_mcp_error(struct api_call *call, int status, const char *message, const char *hint)
{
    if (status == 401)
        challenge(call);
    return rpc_error(NULL, status == 400 ? RPC_INVALID_REQUEST : status, message, NULL);
}

/* RFC 9728. Keys are made by the operator (`cay key create`): there is no authorization server that
 * gives them. */
static void metadata(struct api_call *call)
{
    char base[BASE_SIZE];

    base_address(call, base, sizeof(base));
    api_header_add(call, "Cache-Control", "max-age=3600");
    api_reply_json(call, 200,
                   json_pack("{s:o, s:[s], s:s}", "resource", json_sprintf("%s/mcp", base),
                             "bearer_methods_supported", "header", "resource_name", "cay"));
}

/* -- POST -------------------------------------------------------------------------------------- */

static bool header_has(const struct api_call *call, enum api_header_id id, const char *word)
{
    const char *value = call->request->headers[id];

    return value && strcasestr(value, word) != NULL;
}

/* Where the client says nothing of what it takes, it takes all. */
static bool takes_stream(const struct api_call *call)
{
    return header_has(call, API_ACCEPT, "text/event-stream");
}

static bool check_type(struct api_call *call)
{
    const char *type = call->request->headers[API_CONTENT_TYPE];
    size_t n = type ? strcspn(type, "; ") : 0;

    if (n == strlen("application/json") && strncasecmp(type, "application/json", n) == 0)
        return true;
    api_fail(call, 415, "a message is sent as application/json, not as %.64s",
             type ? type : "nothing");
    return false;
}

static void refuse(struct api_call *call, const struct rpc_message *m, int status, int code,
                   const char *message, json_t *data)
{
    api_reply_json(call, status, rpc_error(m->id, code, message, data));
}

/* Reads the settings that a client's configuration sends as headers. False: the call was
 * answered. */
static bool read_settings(struct request *r)
{
    char *const *headers = r->http->request->headers;
    const char *policy = headers[API_MCP_POLICY] ? headers[API_MCP_POLICY] : POLICY_DEFAULT;
    const char *template_name = headers[API_MCP_TEMPLATE] ? headers[API_MCP_TEMPLATE]
                                                          : TEMPLATE_DEFAULT;
    struct err e;

    r->rights = REQUEST_ALL_RIGHTS;
    if (headers[API_MCP_RIGHTS] && tool_rights(headers[API_MCP_RIGHTS], &r->rights, &e) != ERR_OK)
        request_error(r, 400, RPC_INVALID_REQUEST, e.text, NULL);
    else if (strcmp(policy, "deny") != 0 && strcmp(policy, "public") != 0 &&
             strcmp(policy, "allow") != 0)
        request_error(r, 400, RPC_INVALID_REQUEST,
                      "X-Cay-Policy (of `cay mcp`: --policy): one of deny, public and allow", NULL);
    else if (strlen(template_name) >= sizeof(r->template_name))
        request_error(r, 400, RPC_INVALID_REQUEST,
                      "X-Cay-Template: there is no template of such a name", NULL);
    else {
        (void)snprintf(r->policy, sizeof(r->policy), "%s", policy);
        (void)snprintf(r->template_name, sizeof(r->template_name), "%s", template_name);
        r->policy_said = headers[API_MCP_POLICY];
        r->template_said = headers[API_MCP_TEMPLATE];
        return true;
    }
    return false;
}

static void take_request(struct api_call *call, struct rpc_message *m,
                         const struct revision *revision, const char *session)
{
    struct request *r = request_new(mcp_of(call), call, m);

    if (!r) {
        rpc_message_free(m);
        api_fail(call, 503, "memory is out");
        return;
    }
    r->revision = revision;
    r->takes_stream = takes_stream(call);
    (void)snprintf(r->session, sizeof(r->session), "%s", session);
    if (read_settings(r))
        methods_call(r);
}

/* The session that a message of a revision with a handshake names. False: the call was answered. */
static bool check_session(struct api_call *call, const struct rpc_message *m, const char *id)
{
    if (!id) {
        refuse(call, m, 400, RPC_INVALID_REQUEST,
               "Mcp-Session-Id is missing: begin with \"initialize\", whose answer has it", NULL);
        return false;
    }
    if (session_find(mcp_of(call)->sessions, call->who.tenant, id))
        return true;
    refuse(call, m, 404, 404,
           "there is no such session: it has ended; begin anew with \"initialize\"", NULL);
    return false;
}

static void take_message(struct api_call *call, struct rpc_message *m)
{
    char *const *headers = call->request->headers;
    const struct revision *revision = NULL;
    json_t *data = NULL;
    const char *id = headers[API_MCP_SESSION];
    struct err e;
    int code;

    if (m->kind == RPC_REQUEST && strcmp(m->method, "initialize") == 0) {
        take_request(call, m, revision_negotiate(""), "");
        return;
    }
    code = m->kind == RPC_RESPONSE ? 0 : revision_of(headers, m, &revision, &data, &e);
    if (code != 0) {
        refuse(call, m, 400, code, e.text, data);
        return;
    }
    if (revision && revision->stateless)
        id = "";
    else if (!check_session(call, m, id))
        return;
    if (m->kind == RPC_REQUEST) {
        take_request(call, m, revision, id);
        return;
    }
    if (m->kind == RPC_NOTIFICATION)
        methods_notify(mcp_of(call), call->who.tenant, id, m);
    api_reply_empty(call, 202);
}

static void post(struct api_call *call)
{
    struct rpc_message m;
    struct err e;
    int code;

    if (!check_type(call))
        return;
    code = rpc_read(call->request->body, call->request->body_len, &m, &e);
    if (code != 0) {
        api_reply_json(call, 400, rpc_error(NULL, code, e.text, NULL));
        return;
    }
    take_message(call, &m);
    rpc_message_free(&m);
}

/* -- GET, DELETE ------------------------------------------------------------------------------- */

/* A stream for what the server says by itself: it says nothing. */
static void get(struct api_call *call)
{
    api_header_add(call, "Allow", "POST, DELETE");
    api_fail(call, 405,
             "this server says nothing by itself: there is no stream to listen to; send messages "
             "with POST");
}

static void delete_session(struct api_call *call)
{
    const char *id = call->request->headers[API_MCP_SESSION];
    struct session *s = id ? session_find(mcp_of(call)->sessions, call->who.tenant, id) : NULL;

    if (!id) {
        api_fail(call, 400, "Mcp-Session-Id is missing: which session is to end?");
    } else if (!s) {
        api_fail(call, 404, "there is no such session");
    } else {
        session_end(mcp_of(call)->sessions, s);
        api_reply_empty(call, 204);
    }
}

const struct api_route http_mcp_routes[] = {
    {API_WRITE, "POST", "/mcp", post, NULL},
    {API_READ, "GET", "/mcp", get, NULL},
    {API_WRITE, "DELETE", "/mcp", delete_session, NULL},
    {API_NOT_DECIDED, NULL, NULL, NULL, NULL},
};

const struct api_route http_metadata_routes[] = {
    {API_OPEN, "GET", METADATA_PATH, metadata, NULL},
    {API_OPEN, "GET", METADATA_PATH "/mcp", metadata, NULL},
    {API_NOT_DECIDED, NULL, NULL, NULL, NULL},
};
