#pragma once
/* The routes of MCP, and the checks before a message is read: the origin of a web page, the key,
 * the content's type, the session. */

#include "api/api.h"

extern const struct api_route http_mcp_routes[], http_metadata_routes[];

/* For struct api_dialect. */
json_t *http_mcp_error(struct api_call *call, int status, const char *message, const char *hint);
bool http_mcp_admit(struct api_call *call);

/* May a page of that origin speak to this server? Its own names, and those of the machine that the
 * browser runs on; any other could have been led here by its DNS. Exported for tests. */
bool http_mcp_origin_is_own(const char *origin, const char *domain);
