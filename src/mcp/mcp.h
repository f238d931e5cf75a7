#pragma once
/* A server of the Model Context Protocol, on cayd's port: a client's model gets tools that make a
 * sandbox, run commands and work on files in it (docs/mcp.md). A dialect of the API: its routes run
 * on the control loop, and its tools call the functions of core that the other dialects call.
 *
 * http.c has the routes and the checks before a message is read; rpc.c reads it; revision.c says
 * which revision it speaks; request.c is one request on its way to its answer; methods.c has the
 * methods, tools.c the tools, each with the right that it needs. session.c knows whose sandbox is
 * meant.
 *
 * Sources: modelcontextprotocol.io/specification, revisions 2025-03-26 to 2026-07-28; RFC 9728
 * (metadata of a protected resource), RFC 6750 (bearer tokens). */

#include "api/api.h"

#include <uv.h>

struct mcp_config {
    uint64_t pause_ms; /* a sandbox of which nothing was asked for so long is paused */
    /* one that stayed paused for so long is killed, and an unused session forgotten */
    uint64_t keep_ms;
};

struct mcp;
enum err_code mcp_new(struct core *c, uv_loop_t *loop, const struct mcp_config *config,
                      struct mcp **out, struct err *e);

/* Closes its timer. Before core_free; mcp_free after it, since core answers what is under way. */
void mcp_stop(struct mcp *m);
void mcp_free(struct mcp *m);

/* For struct api_config. */
const struct api_dialect *const *mcp_dialects(const struct mcp *m);
