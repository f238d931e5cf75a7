#pragma once
/* The settings of a tenant that its sandboxes are under and may use: the ceiling that the
 * operator set for it (ceiling.h) and its credentials (credential.h), as cay-egress takes them.
 * They hang on the tenant's object (tenant.h): read from the store when they are first asked
 * for, and forgotten when they change and when the object goes. Nothing else of core reads or
 * writes these rows one by one, so that what is remembered is what the store has.
 *
 * Control loop only; nothing blocks. */

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>

struct core;
struct tenant;

/* Credentials that an object remembers, which are those that policies name: a further one takes the
 * place of all. */
#define TENANT_CREDENTIALS_REMEMBERED 64u

/* Of an object; all zero: nothing was asked for yet. */
struct tenant_settings {
    bool ceiling_known;
    json_t *ceiling;     /* NULL: none of its own */
    json_t *credentials; /* by name; NULL: none is remembered */
};

/* A new reference, never to be changed; NULL: it has none of its own. ERR_NOT_FOUND: no tenant of
 * that name was ever made, which is not remembered. */
enum err_code tenant_ceiling(struct tenant *t, json_t **out, struct err *e);

/* ceiling NULL: none. ERR_NOT_FOUND. */
enum err_code tenant_set_ceiling(struct tenant *t, const json_t *ceiling, struct err *e);

/* {"name", "bind", "sealed"}: a new object, to which the caller may add. out NULL: is there one?
 * ERR_NOT_FOUND. */
enum err_code tenant_credential(struct tenant *t, const char *name, json_t **out, struct err *e);

/* As store_credential_put and store_credential_renew (store_credential.h). */
enum err_code tenant_put_credential(struct tenant *t, const char *name, const json_t *bind,
                                    const char *sealed, const json_t *metadata, struct err *e);
enum err_code tenant_renew_credential(struct tenant *t, const char *name, const char *old,
                                      const char *sealed, struct err *e);

/* Of the tenant of that name, whose object is t; NULL: nothing of it lives. ERR_NOT_FOUND. */
enum err_code tenant_remove_credential(struct core *c, struct tenant *t, const char *tenant,
                                       const char *name, struct err *e);

/* At the object's end. */
void tenant_settings_free(struct tenant_settings *s);
