#include "cli/mcp_headers.h"

#include "base/base64.h"

#include <errno.h>
#include <string.h>

#define META_VERSION "io.modelcontextprotocol/protocolVersion"

/* In base64 what a header cannot carry as it is. */
static int add_name(struct api_easy *x, const char *name)
{
    size_t n = strlen(name);
    CLEANUP_FREE char *text = NULL;
    bool plain = n > 0 && name[0] != ' ' && name[n - 1] != ' ' &&
                 strncmp(name, "=?base64?", 9) != 0;

    for (size_t i = 0; i < n; i++)
        plain = plain && (unsigned char)name[i] >= ' ' && (unsigned char)name[i] < 0x7f;
    if (plain)
        return api_easy_header(x, "Mcp-Name: %s", name);
    text = malloc(base64_encoded_len(n) + 1);
    if (!text)
        return -ENOMEM;
    base64_encode(name, n, text);
    return api_easy_header(x, "Mcp-Name: =?base64?%s?=", text);
}

/* The fields that revision 2026-07-28 repeats in headers. */
static int add_stateless(struct api_easy *x, const json_t *message, const char *revision,
                         const char *method)
{
    const json_t *params = json_object_get(message, "params");
    const char *name = json_string_value(
        json_object_get(params, strcmp(method, "resources/read") == 0 ? "uri" : "name"));
    int rc = api_easy_header(x, "MCP-Protocol-Version: %s", revision);

    if (rc == 0)
        rc = api_easy_header(x, "Mcp-Method: %s", method);
    return rc == 0 && name ? add_name(x, name) : rc;
}

static int add_session(struct api_easy *x, const char *session, const char *revision)
{
    int rc = session ? api_easy_header(x, "Mcp-Session-Id: %s", session) : 0;

    return rc == 0 && revision ? api_easy_header(x, "MCP-Protocol-Version: %s", revision) : rc;
}

/* Headers that the owner of this connection sets. */
static int add_settings(const struct cli *c, struct api_easy *x)
{
    static const char *const names[][2] = {
        {"policy", "X-Cay-Policy"}, {"rights", "X-Cay-Rights"}, {"template", "X-Cay-Template"}};
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(names); i++)
        if (cli_value(c, names[i][0]))
            rc = api_easy_header(x, "%s: %s", names[i][1], cli_value(c, names[i][0]));
    return rc;
}

bool mcp_headers_begins(const json_t *message)
{
    const char *method = json_string_value(json_object_get(message, "method"));

    return method && strcmp(method, "initialize") == 0;
}

int mcp_headers_add(struct api_easy *x, const struct cli *c, const json_t *message,
                    const char *session, const char *revision)
{
    const json_t *meta = json_object_get(json_object_get(message, "params"), "_meta");
    const char *own = json_string_value(json_object_get(meta, META_VERSION));
    const char *method = json_string_value(json_object_get(message, "method"));
    int rc = api_easy_header(x, "Content-Type: application/json");

    if (rc == 0)
        rc = api_easy_header(x, "Accept: application/json, text/event-stream");
    if (rc == 0)
        rc = add_settings(c, x);
    if (rc < 0 || mcp_headers_begins(message))
        return rc;
    return own && method ? add_stateless(x, message, own, method)
                         : add_session(x, session, revision);
}
