#include "egress/flow/target.h"

#include "egress/flow/names.h"
#include "egress/flow/sandbox.h"
#include "policy/policy.h"

#include <errno.h>
#include <string.h>

int target_of_own(const struct sandbox *s, struct target *t)
{
    if (t->name || !names_is_own(&t->address))
        return 0;
    t->name = names_of(s->names, &t->address);
    if (!t->name)
        return -ENOENT;
    t->address = (struct policy_address){0};
    return 0;
}

bool target_is_resolved(const struct target *t)
{
    static const struct policy_address none;

    return memcmp(&t->address, &none, sizeof(none)) != 0;
}
