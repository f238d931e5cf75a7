/* A request as the control loop gets it: copies of the parts that a connection loop has parsed,
 * owned by the call that they become. */

#include "api/api.h"

#include <string.h>

const char *const api_header_names[API_HEADER_ID_COUNT] = {
    [API_ACCEPT] = "Accept",
    [API_CONTENT_TYPE] = "Content-Type",
    [API_ORIGIN] = "Origin",
    [API_MCP_METHOD] = "Mcp-Method",
    [API_MCP_NAME] = "Mcp-Name",
    [API_MCP_POLICY] = "X-Cay-Policy",
    [API_MCP_RIGHTS] = "X-Cay-Rights",
    [API_MCP_SESSION] = "Mcp-Session-Id",
    [API_MCP_TEMPLATE] = "X-Cay-Template",
    [API_MCP_VERSION] = "MCP-Protocol-Version",
    [API_TRACEPARENT] = "traceparent",
};

struct api_request *api_request_new(const char *method, const char *path, const char *query,
                                    const char *host, const char *key, const char *body,
                                    size_t body_len)
{
    struct api_request *r = calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    r->method = strdup(method);
    r->path = strdup(path);
    r->query = strdup(query ? query : "");
    r->host = strdup(host ? host : "");
    r->key = strdup(key ? key : "");
    r->body = malloc(body_len + 1);
    if (!r->method || !r->path || !r->query || !r->host || !r->key || !r->body) {
        api_request_free(r);
        return NULL;
    }
    if (body_len)
        memcpy(r->body, body, body_len);
    r->body[body_len] = '\0';
    r->body_len = body_len;
    return r;
}

void api_request_free(struct api_request *r)
{
    if (!r)
        return;
    free(r->method);
    free(r->path);
    free(r->query);
    free(r->host);
    free(r->key);
    free(r->idempotency_key);
    for (size_t i = 0; i < API_HEADER_ID_COUNT; i++)
        free(r->headers[i]);
    if (r->body) /* environments and credentials' values */
        explicit_bzero(r->body, r->body_len);
    free(r->body);
    free(r);
}
