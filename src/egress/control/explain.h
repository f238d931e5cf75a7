#pragma once
/* Predicts the verdict of cay-egress on a connection or request of a sandbox: policy/explanation.h,
 * with the answers that its owner has given, what of its limits is used up at this moment, and the
 * proxy that it goes through. Nothing is dialled, asked outside or counted. */

#include "base/err.h"

#include <jansson.h>

struct policy;
struct sandbox;

/* The "policy" of a question, which is asked instead of the sandbox's own: *out is NULL where there
 * is none. Pure. */
enum err_code explain_policy(const json_t *question, struct policy **out, struct err *e);

/* question: {"to": "https://HOST:PORT" (policy_query_parse), "address", "said", "method", "path":
 * texts or absent, "policy": was read to instead, or absent, "credentials": [{"name", "bind"}]}.
 * The answer as policy_explanation_json has it; NULL and *e: ERR_INVALID, ERR_EXHAUSTED. */
json_t *explain(const struct sandbox *s, const json_t *question, const struct policy *instead,
                struct err *e);
