#pragma once
/* Which lines of the audit log a question is about. Pure. */

#include "egress/flow/sandbox.h"

#include <stdbool.h>
#include <stddef.h>

struct audit_filter {
    char tenant[EGRESS_TENANT_MAX + 1], sandbox[PRIVSEP_ID_SIZE], verdict[8], since[64];
    size_t limit;
};

/* Of a query (audit_query.h says which parameters there are). 0 or -EINVAL. */
int audit_filter_read(const char *query, struct audit_filter *f);

/* Does a line of n bytes, without its end, fit? 1, 0, or -ENOMEM. *old: it does not, for it is from
 * before `since`. */
int audit_filter_fits(const struct audit_filter *f, const char *line, size_t n, bool *old);
