/* Each route has its kind in its table (api.h): docs/tenants.md lists all of them, and the unit
 * test api_roles compares. */
#include "core/role.h"

#include "base/util.h"
#include "core/key.h"

enum verdict {
    NOT_DECIDED, /* refused: an entry that was not written */
    ALLOW,
    DENY
};

static const enum verdict table[][ROLE_ACCESS_COUNT] = {
    [CORE_ROLE_NONE] = {[ROLE_READ] = DENY, [ROLE_WRITE] = DENY, [ROLE_OPERATE] = DENY},
    [CORE_ROLE_OPERATOR] = {[ROLE_READ] = ALLOW, [ROLE_WRITE] = ALLOW, [ROLE_OPERATE] = ALLOW},
    [CORE_ROLE_OWNER] = {[ROLE_READ] = ALLOW, [ROLE_WRITE] = ALLOW, [ROLE_OPERATE] = DENY},
    [CORE_ROLE_READ_ONLY] = {[ROLE_READ] = ALLOW, [ROLE_WRITE] = DENY, [ROLE_OPERATE] = DENY},
};

_Static_assert(ARRAY_SIZE(table) == CORE_ROLE_COUNT && ROLE_ACCESS_COUNT == 5,
               "each role is asked about each kind of call");

bool role_may(enum core_role role, enum role_access access)
{
    return (size_t)role < ARRAY_SIZE(table) && (size_t)access < ROLE_ACCESS_COUNT &&
           table[role][access] == ALLOW;
}
