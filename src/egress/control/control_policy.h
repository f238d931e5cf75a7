#pragma once
/* The body of PUT /v1/sandboxes/SLOT/GENERATION. */

#include "base/err.h"

#include <jansson.h>
#include <stdint.h>

struct egress;
struct http_exchange;

/* Puts the policy that o describes in force for that slot's generation, whole or not at all. o
 * stays the caller's. ERR_INVALID: with the field that is wrong; ERR_UNIMPLEMENTED: credentials on
 * a server that holds none; ERR_UNAVAILABLE: memory is out; others are registry_policy's. */
enum err_code control_policy_put(struct egress *eg, uint32_t slot, uint32_t gen, const json_t *o,
                                 struct err *e);

/* After it: 204, once nothing that is open is against the policy any more; 409 where the sandbox
 * ends before. */
void control_policy_answer(struct egress *eg, uint32_t slot, uint32_t gen, struct http_exchange *x);
