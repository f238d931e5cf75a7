#pragma once
/* The body of PUT /v1/sandboxes/SLOT/GENERATION. */

#include "base/err.h"

#include <jansson.h>
#include <stdint.h>

struct egress;
struct http_exchange;
struct sandbox_rules;

/* Of o, whole or not at all; of eg it uses only what never changes, so that it may run on a helper
 * thread. ERR_INVALID: with the field that is wrong; ERR_UNIMPLEMENTED: credentials on a server
 * that holds none; ERR_EXHAUSTED: memory is out. */
enum err_code control_policy_read(struct egress *eg, const json_t *o, struct sandbox_rules **out,
                                  struct err *e);
void control_policy_drop(struct sandbox_rules *r); /* NULL is none */

/* On the loop: puts them in force for that slot's generation. rules are taken over in every case.
 * ERR_UNAVAILABLE: memory is out; others are registry_policy's. */
enum err_code control_policy_put(struct egress *eg, uint32_t slot, uint32_t gen,
                                 struct sandbox_rules *rules, struct err *e);

/* The same, and answers x: 204, once nothing that is open is against the policy any more; 409 where
 * the sandbox ends before. An error: x is not answered, and the policy of before is in force. */
enum err_code control_policy_take(struct egress *eg, uint32_t slot, uint32_t gen,
                                  struct sandbox_rules *rules, struct http_exchange *x,
                                  struct err *e);
