#pragma once
/* Checks the names in a sandbox's network setting. */

#include "core/core.h"

/* ERR_INVALID, with the place of the mistake, or the credential that neither own nor the tenant
 * has. NULL is good: nothing may leave. */
enum err_code sandbox_check_policy(struct core *c, const char *tenant, const json_t *policy,
                                   const json_t *own, struct err *e);
