/* Which role may make which kind of call. Each route has its kind in its table (api.h):
 * docs/tenants.md lists all of them, and the unit test api_roles compares. */
#include "api/api.h"

enum verdict {
    NOT_DECIDED, /* refused: an entry that was not written */
    ALLOW,
    DENY
};

/* API_OPEN needs no key, and so no role: it is in no row. */
static const enum verdict table[][API_ACCESS_COUNT] = {
    [CORE_ROLE_NONE] = {[API_READ] = DENY, [API_WRITE] = DENY, [API_OPERATE] = DENY},
    [CORE_ROLE_OPERATOR] = {[API_READ] = ALLOW, [API_WRITE] = ALLOW, [API_OPERATE] = ALLOW},
    [CORE_ROLE_OWNER] = {[API_READ] = ALLOW, [API_WRITE] = ALLOW, [API_OPERATE] = DENY},
    [CORE_ROLE_READ_ONLY] = {[API_READ] = ALLOW, [API_WRITE] = DENY, [API_OPERATE] = DENY},
};

_Static_assert(ARRAY_SIZE(table) == CORE_ROLE_COUNT && API_ACCESS_COUNT == 5,
               "each role is asked about each kind of call");

bool api_role_may(enum core_role role, enum api_access access)
{
    return (size_t)role < ARRAY_SIZE(table) && (size_t)access < API_ACCESS_COUNT &&
           table[role][access] == ALLOW;
}
