/* Tenants and API keys. A key is 160 random bits, so a plain SHA-256 of it is enough to store:
 * there is nothing to guess, and a copy of the store opens nothing. */

#include "core/key.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/build_log_follow.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/events.h"
#include "core/key_id.h"
#include "core/lifecycle.h"
#include "core/state_follow.h"
#include "core/store.h"
#include "core/store_key.h"

#include <stdio.h>
#include <string.h>

#define KEY_DIGITS (2 * (size_t)CORE_KEY_RANDOM)
#define HEX_DIGITS "0123456789abcdef"

_Static_assert(sizeof(((struct core_names *)NULL)->key_prefix) + KEY_DIGITS < CORE_TOKEN_SIZE,
               "a key fits where callers put it");

static bool is_well_formed(const struct core *c, const char *key)
{
    const char *prefix = c->config.names->key_prefix;
    size_t begin = strlen(prefix), len = begin + KEY_DIGITS;

    return strnlen(key, len + 1) == len && memcmp(key, prefix, begin) == 0 &&
           strspn(key + begin, HEX_DIGITS) == KEY_DIGITS;
}

static const char *const roles[] = {
    [CORE_ROLE_NONE] = "",
    [CORE_ROLE_OPERATOR] = "operator",
    [CORE_ROLE_OWNER] = "owner",
    [CORE_ROLE_READ_ONLY] = "read-only",
};

_Static_assert(ARRAY_SIZE(roles) == CORE_ROLE_COUNT, "each role has a name");

const char *core_role_name(enum core_role role)
{
    return (size_t)role < ARRAY_SIZE(roles) ? roles[role] : "";
}

enum core_role core_role_from(const char *name)
{
    for (int i = CORE_ROLE_NONE + 1; i < CORE_ROLE_COUNT; i++)
        if (strcmp(roles[i], name) == 0)
            return (enum core_role)i;
    return CORE_ROLE_NONE;
}

enum err_code core_authenticate(struct core *c, const char *key, struct core_identity *out,
                                struct err *e)
{
    uint8_t hash[STORE_HASH_SIZE];
    enum err_code code;

    lifecycle_check_clock(c);
    if (!key || !*key) {
        err_set(e, ERR_UNAUTHENTICATED, "no API key was sent");
        err_hint(e, "send the one that `cay env` prints");
        return ERR_UNAUTHENTICATED;
    }
    if (!is_well_formed(c, key)) {
        err_set(e, ERR_UNAUTHENTICATED, "the API key is malformed: it is \"%s\" and %zu hex digits",
                c->config.names->key_prefix, KEY_DIGITS);
        err_hint(e, "send the one that `cay env` prints");
        return ERR_UNAUTHENTICATED;
    }
    key_hash(key, hash);
    code = store_key_find(c->store, hash, out, e);
    if (code != ERR_NOT_FOUND)
        return code;
    err_set(e, ERR_UNAUTHENTICATED, "the API key is not known here");
    err_hint(e, "it may belong to another server, or be revoked; `cay env` prints this one's");
    return ERR_UNAUTHENTICATED;
}

static bool is_tenant_name(const char *name)
{
    static const char first[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    static const char rest[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
    size_t len = strnlen(name, CORE_TENANT_SIZE);

    return len > 0 && len < CORE_TENANT_SIZE && strchr(first, name[0]) && strspn(name, rest) == len;
}

static enum err_code check_identity(const struct core_identity *whose, struct err *e)
{
    if (!is_tenant_name(whose->tenant))
        return err_set(
            e, ERR_INVALID,
            "a tenant's name is 1 to %d of a-z, 0-9 and '-', and does not begin with '-'",
            CORE_TENANT_SIZE - 1);
    if (!*core_role_name(whose->role))
        return err_set(e, ERR_INVALID, "a key's role is owner, read-only or operator");
    if (whose->role == CORE_ROLE_OPERATOR && strcmp(whose->tenant, CORE_OPERATOR_TENANT) != 0)
        return err_set(e, ERR_INVALID, "only keys of the tenant %s can have the role operator",
                       CORE_OPERATOR_TENANT);
    return ERR_OK;
}

enum err_code core_key_create(struct core *c, const struct core_identity *whose, const char *label,
                              char out[static CORE_TOKEN_SIZE], struct err *e)
{
    const char *prefix = c->config.names->key_prefix;
    uint8_t bytes[CORE_KEY_RANDOM], hash[STORE_HASH_SIZE];
    char key[CORE_TOKEN_SIZE] = "", id[CORE_KEY_ID_SIZE];
    enum err_code code = check_identity(whose, e);

    if (code != ERR_OK)
        return code;
    if (strnlen(label, CORE_KEY_LABEL_MAX + 1) > CORE_KEY_LABEL_MAX)
        return err_set(e, ERR_INVALID, "a key's label has at most %d bytes", CORE_KEY_LABEL_MAX);
    ids_random_bytes(bytes, sizeof(bytes));
    memcpy(key, prefix, strlen(prefix));
    ids_hex(bytes, sizeof(bytes), key + strlen(prefix));
    key_hash(key, hash);
    code = store_key_insert(c->store, whose, label, hash, clock_real_ms(), e);
    if (code == ERR_OK) {
        memcpy(out, key, sizeof(key));
        core_key_id(key, id);
        log_info("tenant %s: API key %s was made, with the role %s", whose->tenant, id,
                 core_role_name(whose->role));
    }
    explicit_bzero(key, sizeof(key));
    explicit_bzero(bytes, sizeof(bytes));
    return code;
}

enum err_code core_key_each(struct core *c, const char *tenant,
                            enum err_code (*fn)(void *arg, const struct core_key *k, struct err *e),
                            void *arg, struct err *e)
{
    return store_key_each(c->store, tenant, fn, arg, e);
}

enum err_code core_key_revoke(struct core *c, const struct core_identity *by, const char *id,
                              struct err *e)
{
    uint8_t prefix[CORE_KEY_ID_BYTES];
    enum err_code code;

    if (strnlen(id, CORE_KEY_ID_SIZE) != CORE_KEY_ID_SIZE - 1 ||
        ids_unhex(id, prefix, sizeof(prefix)) < 0) {
        err_set(e, ERR_INVALID, "a key's id is %d hex digits", CORE_KEY_ID_SIZE - 1);
        err_hint(e, "`cay key ls` shows them");
        return ERR_INVALID;
    }
    code = store_key_delete(c->store, by->role == CORE_ROLE_OPERATOR ? NULL : by->tenant, prefix,
                            e);
    if (code == ERR_NOT_FOUND) {
        err_set(e, ERR_NOT_FOUND, "there is no key %s of yours", id);
        err_hint(e, "`cay key ls` shows them");
    } else if (code == ERR_OK) {
        log_info("API key %s was revoked", id);
        events_forget_key(c, id);
        state_follow_forget_key(c, id);
        build_log_follow_forget_key(c, id);
        if (c->on_key_revoked)
            c->on_key_revoked(c->on_key_revoked_arg, id);
    }
    return code;
}

void core_on_key_revoked(struct core *c, void (*fn)(void *arg, const char *key_id), void *arg)
{
    c->on_key_revoked = fn;
    c->on_key_revoked_arg = arg;
}
