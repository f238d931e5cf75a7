#pragma once
/* Credentials of a tenant: what cay-egress puts on requests so that no sandbox has to hold it.
 *
 * A value passes through here once, on its way to be sealed (cay-egress alone has the key): what
 * held it is wiped when it is freed, and no log, error or answer has it. The store has the sealed
 * record with its name and its binding (egress/credential/credential.h says how), and that is sent
 * to cay-egress with the policy of every sandbox that names it. Nothing blocks. */

#include "core/core.h"

#define CORE_CREDENTIAL_NAME_MAX 64u

struct core_credential {
    char name[CORE_CREDENTIAL_NAME_MAX + 1];
    json_t *bind;
    int64_t made_real_ms, first_real_ms; /* its value of now, and its first */
    int64_t version;                     /* 1 and up: values that it has had */
    json_t *metadata;                    /* the owner's own; NULL: none */
};

/* [{"name", "bind", "value"}], at most 64, -> [{"name", "bind", "sealed"}], a new reference that is
 * the callback's to keep (json_incref) or leave. All or none. items is not kept longer than that.
 * done is never called from inside. */
typedef void (*core_sealed_cb)(void *arg, json_t *sealed, const struct err *why);
void core_credentials_seal(struct core *c, const char *tenant, json_t *items, core_sealed_cb done,
                           void *arg);

/* Makes or replaces one; sandboxes whose policies name it get the new one at once. done gets
 * no sandbox. ERR_INVALID with what is wrong, ERR_UNAVAILABLE while cay-egress is away. */
struct core_credential_value {
    const char *name;
    json_t *bind, *value, *metadata; /* borrowed; metadata NULL: as it was */
    bool only_new;                   /* ERR_EXISTS where there is one of the name */
};
void core_credential_set(struct core *c, const char *tenant, const struct core_credential_value *v,
                         core_sandbox_cb done, void *arg);

/* Calls fn for each of a tenant, by name; of name alone when that is not NULL. k lives during the
 * call. */
enum err_code core_credential_each(struct core *c, const char *tenant, const char *name,
                                   enum err_code (*fn)(void *arg, const struct core_credential *k,
                                                       struct err *e),
                                   void *arg, struct err *e);

/* Whether one of a policy's "inject" is of this credential. injections may be NULL: none. */
bool core_credential_is_injected(const json_t *injections, const char *name);

/* Its metadata alone. ERR_NOT_FOUND. */
enum err_code core_credential_describe(struct core *c, const char *tenant, const char *name,
                                       const json_t *metadata, struct err *e);

/* Withdraws it from the sandboxes that use it: requests that would have had it are refused then. */
enum err_code core_credential_remove(struct core *c, const char *tenant, const char *name,
                                     struct err *e);
