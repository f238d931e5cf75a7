#pragma once
/* Which role may make which kind of call: the one table, for the API's routes (api.h), MCP's, and
 * for what the gateway opens by a key. Pure. */

#include "core/core.h"
#include "core/key.h"

/* The kind of a call. 0 is not decided, and refused to all. */
enum role_access {
    ROLE_NOT_DECIDED,
    ROLE_OPEN,    /* no key needed: in no row, as there is no role */
    ROLE_READ,    /* changes nothing, and shows no token */
    ROLE_WRITE,   /* changes what is the tenant's, opens a sandbox, or shows a token that does */
    ROLE_OPERATE, /* is about the server, or all tenants */
    ROLE_ACCESS_COUNT
};

bool role_may(enum core_role role, enum role_access access);
