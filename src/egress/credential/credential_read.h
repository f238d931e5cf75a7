/* From JSON to a credential: what it is bound to, and its value. For credential.c, which seals and
 * opens them. Nothing blocks. */
#pragma once

#include "egress/credential/credential.h"

/* Reads `bind` into c; it is checked whole. ERR_INVALID with the place, or ERR_EXHAUSTED; in every
 * case credential_clear. */
enum err_code credential_read_bind(struct credential *c, json_t *bind, struct err *e);

/* The value that c->kind needs, likewise. */
enum err_code credential_read_value(struct credential *c, const json_t *json, struct err *e);

/* -- credential.c, for credential_oauth.c ------------------------------------------------------ */

/* The additional data that are authenticated with a value: equal bindings give equal texts. of
 * NULL: a credential's own value. malloc'd. */
char *credential_aad(const char *tenant, const char *name, const json_t *bind, const char *of);
enum err_code credential_seal_json(const struct sealer *s, const char *aad, const json_t *value,
                                   char **out, struct err *e);
enum err_code credential_open_json(const struct sealer *s, const char *aad, const json_t *sealed,
                                   json_t **out, struct err *e);

/* -- credential_oauth.c ------------------------------------------------------------------------ */

/* "token" (credential_seal_token's) and "refused" ({"why", "final", "retry_ms"}) of an item of kind
 * oauth2, into c. */
enum err_code credential_read_token(const struct sealer *s, const char *tenant, const json_t *item,
                                    struct credential *c, struct err *e);

/* Frees what c points to; values are wiped. */
void credential_clear(struct credential *c);
