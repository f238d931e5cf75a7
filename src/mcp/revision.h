#pragma once
/* The revisions of the Model Context Protocol, and which of them a message speaks. There are two
 * generations:
 *
 * - handshake (to 2025-11-25): `initialize` begins a session, Mcp-Session-Id names it in what
 *   follows;
 * - stateless (from 2026-07-28): each request carries its revision and its client's capabilities in
 *   `_meta`, and headers repeat parts of the body, which have to agree. There are no sessions.
 *
 * Pure. Source: modelcontextprotocol.io/specification, 2025-11-25 and 2026-07-28: versioning,
 * transports. */

#include "api/api.h"
#include "mcp/rpc.h"

struct revision {
    const char *name;
    bool stateless;
    bool negotiable; /* by initialize */
};

#define REVISION_META_VERSION      "io.modelcontextprotocol/protocolVersion"
#define REVISION_META_CAPABILITIES "io.modelcontextprotocol/clientCapabilities"
#define REVISION_META_SERVER       "io.modelcontextprotocol/serverInfo"

/* NULL: not known here. */
const struct revision *revision_find(const char *name);

/* For initialize: the one that was asked for, or the newest with a handshake. */
const struct revision *revision_negotiate(const char *requested);

/* Newest first: a new array. */
json_t *revision_names(void);

/* The revision of a request or notification that is none of initialize, from the headers and the
 * message. 0, or the code of the error, which is answered with 400; *data (a new reference, or
 * NULL) goes with it. */
int revision_of(char *const headers[API_HEADER_ID_COUNT], const struct rpc_message *m,
                const struct revision **out, json_t **data, struct err *e);
