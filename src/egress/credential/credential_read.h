/* From JSON to a credential: what it is bound to, and its value. For credential.c, which seals and opens
 * them. Nothing blocks. */
#pragma once

#include "egress/credential/credential.h"

/* What `bind` says, into c; it is checked whole. ERR_INVALID with the place, or ERR_EXHAUSTED; in every
 * case credential_clear. */
enum err_code credential_read_bind(struct credential *c, json_t *bind, struct err *e);

/* The value that c->kind needs, likewise. */
enum err_code credential_read_value(struct credential *c, const json_t *json, struct err *e);

/* Frees what c points to; values are wiped. */
void credential_clear(struct credential *c);
