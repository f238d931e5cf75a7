#pragma once
/* The addressee of a request: the control plane, or a sandbox and one of its ports. Pure.
 *
 * In this order (source: E2B's proxy, host.go, and what its SDKs send):
 * 1. Host `{port}-{id}.{domain}` (anything after a second '-' of the label is ignored, as
 *    upstream), or with what core/ingress.h puts behind the id of a signed address.
 * 2. The headers E2b-Sandbox-Id and E2b-Sandbox-Port on any other Host; one alone is an error.
 * 3. /files with a signature in the query and neither of these: a signed URL of a client that has
 *    one base URL for all sandboxes. Which sandbox is found by its signature.
 * 4. /volumecontent/ID/... on any other Host: contents of a volume, with its token.
 * 5. Else the control plane. */

#include "base/ids.h"
#include "contract/agent_boot.h"
#include "core/ingress.h"
#include "http/message.h"

#include <stdbool.h>

#define ROUTE_HEADER_ID   "E2b-Sandbox-Id"
#define ROUTE_HEADER_PORT "E2b-Sandbox-Port"

enum route_kind {
    ROUTE_CONTROL_PLANE,
    ROUTE_SANDBOX, /* id and port are set */
    ROUTE_SIGNED,  /* port is the agent's, id is empty */
    /* by id or name and an API key, not by a request's head: what cayd itself says to the agent */
    ROUTE_KEYED,
    /* by id and a signed URL of one file (core/file_url.h), likewise */
    ROUTE_FILE_URL,
    /* contents of a volume: id is the volume's ("": it is no id), and port the agent's */
    ROUTE_VOLUME,
    ROUTE_BAD /* why says what is wrong: 400 */
};

struct route {
    enum route_kind kind;
    bool by_host; /* by the Host header's label */
    char id[IDS_SANDBOX_SIZE];
    char signed_until[INGRESS_SIGNED_LEN + 1]; /* "" when absent: not looked at here */
    uint16_t port;
    const char *why;
};

void route_request(const struct http_head *h, struct route *out);

/* The name of a header that says who asks, for what, or as what, and of which there is more than
 * one: a proxy or a log in front may have gone by the other one, so that such a request is refused.
 * NULL: there is none, or the request is for a port of a tenant's own, whose headers these are
 * not. */
const char *route_repeated(const struct http_head *h);

/* The parts, exported for tests and the fuzzer. host: a Host header's value. False: it does not
 * begin with digits and '-', so it is no sandbox's. */
bool route_parse_host(const char *host, struct route *out);

/* Is the path one that the agent serves to clients? Only plain paths pass: letters, digits, '.',
 * '_', '-' and single '/', without "." and ".." parts, so that nothing that the agent might decode
 * or fold can reach another. */
bool route_agent_path_is_open(const char *path);
