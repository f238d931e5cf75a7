#include "mcp/revision.h"

#include "base/base64.h"

#include <string.h>

#define SENTINEL_BEGIN "=?base64?"
#define SENTINEL_END   "?="
#define WITHOUT_HEADER "2025-03-26" /* of a client without the header */

static const struct revision revisions[] = {
    {.name = "2026-07-28", .stateless = true},  {.name = "2025-11-25", .negotiable = true},
    {.name = "2025-06-18", .negotiable = true}, {.name = "2025-03-26", .negotiable = true},
    {.name = "2024-11-05", .negotiable = true},
};

const struct revision *revision_find(const char *name)
{
    for (size_t i = 0; name && i < ARRAY_SIZE(revisions); i++)
        if (strcmp(revisions[i].name, name) == 0)
            return &revisions[i];
    return NULL;
}

const struct revision *revision_negotiate(const char *requested)
{
    const struct revision *found = revision_find(requested);

    if (found && found->negotiable)
        return found;
    for (size_t i = 0; i < ARRAY_SIZE(revisions); i++)
        if (revisions[i].negotiable)
            return &revisions[i];
    return NULL;
}

json_t *revision_names(void)
{
    json_t *all = json_array();

    for (size_t i = 0; i < ARRAY_SIZE(revisions); i++)
        json_array_append_new(all, json_string(revisions[i].name));
    return all;
}

static int unsupported(const char *requested, json_t **data, struct err *e)
{
    *data = json_pack("{s:o, s:o}", "supported", revision_names(), "requested",
                      rpc_text(requested, strlen(requested)));
    err_set(e, ERR_INVALID, "Unsupported protocol version: %.32s", requested);
    return RPC_UNSUPPORTED_VERSION;
}

static int mismatch(struct err *e, const char *header, const char *value, const char *wanted)
{
    if (value)
        err_set(e, ERR_INVALID, "Header mismatch: %s is \"%.64s\", and the body says \"%.64s\"",
                header, value, wanted);
    else
        err_set(e, ERR_INVALID, "Header mismatch: %s is missing; the body says \"%.64s\"", header,
                wanted);
    return RPC_HEADER_MISMATCH;
}

/* Is the header's value, which may be in base64, that text? */
static bool is_value(const char *value, const char *wanted)
{
    size_t n = strlen(value), begin = strlen(SENTINEL_BEGIN), end = strlen(SENTINEL_END);
    CLEANUP_FREE char *decoded = NULL;
    ssize_t got;

    if (n < begin + end || strncmp(value, SENTINEL_BEGIN, begin) != 0 ||
        strcmp(value + n - end, SENTINEL_END) != 0)
        return strcmp(value, wanted) == 0;
    n -= begin + end;
    decoded = malloc(base64_decoded_max(n) + 1);
    got = decoded ? base64_decode(value + begin, n, decoded) : -1;
    return got >= 0 && (size_t)got == strlen(wanted) && memcmp(decoded, wanted, (size_t)got) == 0;
}

/* The text that Mcp-Name repeats of this message; NULL: none. */
static const char *name_of(const struct rpc_message *m)
{
    if (strcmp(m->method, "tools/call") == 0 || strcmp(m->method, "prompts/get") == 0)
        return json_string_value(json_object_get(m->params, "name"));
    if (strcmp(m->method, "resources/read") == 0)
        return json_string_value(json_object_get(m->params, "uri"));
    return NULL;
}

static int check_headers(char *const headers[API_HEADER_ID_COUNT], const struct rpc_message *m,
                         const char *version, struct err *e)
{
    const char *name = name_of(m);

    if (!headers[API_MCP_VERSION] || strcmp(headers[API_MCP_VERSION], version) != 0)
        return mismatch(e, "MCP-Protocol-Version", headers[API_MCP_VERSION], version);
    if (m->kind != RPC_REQUEST)
        return 0;
    if (!headers[API_MCP_METHOD] || strcmp(headers[API_MCP_METHOD], m->method) != 0)
        return mismatch(e, "Mcp-Method", headers[API_MCP_METHOD], m->method);
    if (name && (!headers[API_MCP_NAME] || !is_value(headers[API_MCP_NAME], name)))
        return mismatch(e, "Mcp-Name", headers[API_MCP_NAME], name);
    return 0;
}

static int malformed(struct err *e, const char *what)
{
    err_set(e, ERR_INVALID, "Invalid params: %s", what);
    return RPC_INVALID_PARAMS;
}

/* The header names a stateless revision, or _meta has a version of any type. */
static int check_stateless(char *const headers[API_HEADER_ID_COUNT], const struct rpc_message *m,
                           const struct revision **out, json_t **data, struct err *e)
{
    const json_t *meta = json_object_get(m->params, "_meta");
    const json_t *version = json_object_get(meta, REVISION_META_VERSION);
    const char *name = json_string_value(version);
    int code;

    if (m->kind == RPC_NOTIFICATION && !version) { /* it needs no _meta: the header names one */
        *out = revision_find(headers[API_MCP_VERSION]);
        return 0;
    }
    if (!name)
        return malformed(e, "_meta needs \"" REVISION_META_VERSION "\", a text");
    code = check_headers(headers, m, name, e);
    if (code != 0)
        return code;
    *out = revision_find(name);
    if (!*out || !(*out)->stateless)
        return unsupported(name, data, e);
    if (m->kind == RPC_REQUEST &&
        !json_is_object(json_object_get(meta, REVISION_META_CAPABILITIES)))
        return malformed(e, "_meta needs \"" REVISION_META_CAPABILITIES "\", an object");
    return 0;
}

int revision_of(char *const headers[API_HEADER_ID_COUNT], const struct rpc_message *m,
                const struct revision **out, json_t **data, struct err *e)
{
    const char *said = headers[API_MCP_VERSION];
    const struct revision *by_header = revision_find(said ? said : WITHOUT_HEADER);
    const json_t *meta = json_object_get(m->params, "_meta");

    *data = NULL;
    if ((by_header && by_header->stateless) || json_object_get(meta, REVISION_META_VERSION))
        return check_stateless(headers, m, out, data, e);
    if (!by_header)
        return unsupported(said, data, e);
    *out = by_header;
    return 0;
}
