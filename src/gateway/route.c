#include "gateway/route.h"

#include "base/port.h"
#include "contract/proto.h"
#include "gateway/access.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

/* Paths that the agent serves to clients, each also with more behind a slash; all else is cayd's
 * own, or what upstream's specification reserves for its control plane (/init, /freeze, ...). A
 * path of the agent that is not written here is closed. */
static const char *const open_paths[] = {
    "/health",       "/metrics", "/envs", "/files", "/process.Process", "/filesystem.Filesystem",
    "/volumecontent"};

static const char bad_id[] = "Invalid sandbox ID";
static const char bad_port[] = "Invalid sandbox port: it is a number of 1 to 65535";
/* The answers of cay-egress there (refusals, the hosts allowed) are for programs inside, and it
 * cannot tell a connection of the gateway from theirs. No service of a sandbox can have it. */
static const char egress_port[] =
    "Invalid sandbox port: it is that of the sandbox's way out, and no service of its own";

static void bad(struct route *out, const char *why)
{
    out->kind = ROUTE_BAD;
    out->why = why;
}

/* An id ends where a '-' begins what older clients append (the client's id). */
static void set_target(const char *port, size_t port_len, const char *id, size_t id_len,
                       struct route *out)
{
    const char *dash = memchr(id, '-', id_len);
    size_t n = dash ? (size_t)(dash - id) : id_len;

    out->port = port_from_digits(port, port_len);
    if (out->port == 0) {
        bad(out, bad_port);
        return;
    }
    if (out->port == EGRESS_TCP_PORT) {
        bad(out, egress_port);
        return;
    }
    if (n == IDS_SANDBOX_LEN + INGRESS_SIGNED_LEN && out->by_host) {
        memcpy(out->signed_until, id + IDS_SANDBOX_LEN, INGRESS_SIGNED_LEN);
        n = IDS_SANDBOX_LEN;
    }
    if (n == 0 || n >= sizeof(out->id)) {
        bad(out, bad_id);
        return;
    }
    memcpy(out->id, id, n);
    out->id[n] = '\0';
    if (strspn(out->id, "abcdefghijklmnopqrstuvwxyz0123456789") != n)
        bad(out, bad_id);
    else
        out->kind = ROUTE_SANDBOX;
}

bool route_parse_host(const char *host, struct route *out)
{
    size_t digits = strspn(host, "0123456789"), label = strcspn(host, ".:");

    if (digits == 0 || host[digits] != '-' || host[label] != '.')
        return false;
    out->by_host = true;
    set_target(host, digits, host + digits + 1, label - digits - 1, out);
    return true;
}

static bool is_signed_url(const struct http_head *h)
{
    char signature[2];

    return strcmp(h->path, "/files") == 0 &&
           http_query_get(h->query, "signature", signature, sizeof(signature)) != -ENOENT;
}

static bool is_volume_url(const struct http_head *h, struct route *out)
{
    static const char prefix[] = "/volumecontent/";
    const char *id = h->path + sizeof(prefix) - 1;
    size_t n;

    if (strncmp(h->path, prefix, sizeof(prefix) - 1) != 0)
        return false;
    n = strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789");
    if (n < sizeof(out->id) && id[n] == '/') {
        memcpy(out->id, id, n);
        out->id[n] = '\0';
    }
    return true;
}

void route_request(const struct http_head *h, struct route *out)
{
    const char *id = http_head_get(h, ROUTE_HEADER_ID);
    const char *port = http_head_get(h, ROUTE_HEADER_PORT);

    memset(out, 0, sizeof(*out));
    if (route_parse_host(h->host, out))
        return;
    id = id && *id ? id : NULL;
    port = port && *port ? port : NULL;
    if (id && port) {
        set_target(port, strlen(port), id, strlen(id), out);
    } else if (id) {
        bad(out, "Missing header: " ROUTE_HEADER_PORT);
    } else if (port) {
        bad(out, "Missing header: " ROUTE_HEADER_ID);
    } else if (is_signed_url(h)) {
        out->kind = ROUTE_SIGNED;
        out->port = AGENT_PORT;
    } else if (is_volume_url(h, out)) {
        out->kind = ROUTE_VOLUME;
        out->port = AGENT_PORT;
    }
}

static bool is_repeated(const struct http_head *h, const char *name)
{
    size_t n = 0;

    for (size_t i = 0; i < h->header_count; i++)
        n += strcasecmp(h->headers[i].name, name) == 0;
    return n > 1;
}

const char *route_repeated(const struct http_head *h)
{
    static const char *const everywhere[] = {ROUTE_HEADER_ID, ROUTE_HEADER_PORT,
                                             ACCESS_TOKEN_HEADER, ACCESS_TRAFFIC_HEADER,
                                             ACCESS_PREVIEW_HEADER};
    static const char *const ours[] = {"X-API-Key", "Authorization", "Idempotency-Key"};
    struct route r;

    for (size_t i = 0; i < ARRAY_SIZE(everywhere); i++)
        if (is_repeated(h, everywhere[i]))
            return everywhere[i];
    route_request(h, &r);
    if (r.kind == ROUTE_SANDBOX && r.port != AGENT_PORT)
        return NULL;
    for (size_t i = 0; i < ARRAY_SIZE(ours); i++)
        if (is_repeated(h, ours[i]))
            return ours[i];
    return NULL;
}

static bool is_plain(const char *path)
{
    if (path[0] != '/')
        return false;
    for (const char *c = path; *c; c++) {
        if (*c == '/' && (c[1] == '/' || c[1] == '.'))
            return false;
        if (!isalnum((unsigned char)*c) && !strchr("/._-", *c))
            return false;
    }
    return true;
}

bool route_agent_path_is_open(const char *path)
{
    if (!is_plain(path))
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(open_paths); i++) {
        size_t n = strlen(open_paths[i]);

        if (strncmp(path, open_paths[i], n) == 0 && (path[n] == '\0' || path[n] == '/'))
            return true;
    }
    return false;
}
