#pragma once
/* The store's rows of sealed credentials. */

#include "core/credential.h"
#include "core/store.h"

#define CREDENTIALS_OF_A_TENANT 1024u
#define CREDENTIALS_MAX_BYTES   (1024u * 1024u) /* of what they say, without their values */

/* Adds or replaces: its version rises then. ERR_EXHAUSTED above these. sealed:
 * text, base64. metadata NULL: as it was. */
enum err_code store_credential_put(struct store *st, const char *tenant, const char *name,
                                   const json_t *bind, const char *sealed, const json_t *metadata,
                                   int64_t made_ms, struct err *e);

/* Puts `sealed` in the place of `old` and waits until that is on the disk: it is the same value for
 * its owner, so that version and time stay. ERR_NOT_FOUND: it is another one by now. */
enum err_code store_credential_renew(struct store *st, const char *tenant, const char *name,
                                     const char *old, const char *sealed, struct err *e);

/* Its metadata alone: value, version and time stay. ERR_NOT_FOUND. */
enum err_code store_credential_describe(struct store *st, const char *tenant, const char *name,
                                        const json_t *metadata, struct err *e);

/* {"name", "bind", "sealed"} as cay-egress takes it; out may be NULL. ERR_NOT_FOUND. */
enum err_code store_credential_get(struct store *st, const char *tenant, const char *name,
                                   json_t **out, struct err *e);

/* By name; k lives during the call. name NULL: all. Stops when fn fails. */
enum err_code store_credential_each(struct store *st, const char *tenant, const char *name,
                                    enum err_code (*fn)(void *arg, const struct core_credential *k,
                                                        struct err *e),
                                    void *arg, struct err *e);
enum err_code store_credential_delete(struct store *st, const char *tenant, const char *name,
                                      struct err *e);
