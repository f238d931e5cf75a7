#pragma once
/* The headers of a message of the Model Context Protocol that `cay mcp` sends: what revision
 * 2026-07-28 repeats of the message, or the session of earlier ones, and what the owner of the
 * connection set by options. */

#include "cli/api.h"

/* Does the message begin a session? */
bool mcp_headers_begins(const json_t *message);

/* message may be NULL: it is no JSON, and the server says so. session and revision: of the session;
 * NULL: there is none. -EINVAL: a part of the message does not fit into a header; -ENOMEM. */
int mcp_headers_add(struct api_easy *x, const struct cli *c, const json_t *message,
                    const char *session, const char *revision);
