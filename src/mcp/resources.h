#pragma once
/* Files of sandboxes as resources, cay://SANDBOX/PATH: the tenant's sandboxes that were made here
 * are listed, and files in the home directory of a session's own. */

#include "mcp/request.h"

void resources_list(struct request *r);
void resources_templates(struct request *r);
void resources_read(struct request *r);

/* The parts of such an address; path begins with '/'. False: it is none. Exported for tests. */
#define RESOURCES_PATH_SIZE 4096u
bool resources_parse(const char *uri, char sandbox[static IDS_SANDBOX_SIZE],
                     char path[static RESOURCES_PATH_SIZE]);
