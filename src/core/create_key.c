/* Idempotency-Key of a create (draft-ietf-httpapi-idempotency-key-header): a client that did not
 * get the answer asks again with the same key, and gets the sandbox that the first create made, for
 * 24 hours, also after a restart. The key is written with the sandbox's row and goes with it when
 * the create fails, so that a failed create may be tried again. */

#include "core/create_key.h"

#include "base/clock.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/store.h"
#include "core/store_create_key.h"

#include <string.h>

#define KEY_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:"

static enum err_code check_key(const char *key, struct err *e)
{
    size_t n = strlen(key);

    if (n > 0 && n <= CORE_CREATE_KEY_MAX && strspn(key, KEY_CHARS) == n)
        return ERR_OK;
    err_set(e, ERR_INVALID,
            "Idempotency-Key must be 1 to %u letters, digits and -_.:", CORE_CREATE_KEY_MAX);
    err_hint(e, "a UUID is usual");
    return ERR_INVALID;
}

static enum err_code answer_again(struct core *c, const char *tenant,
                                  const struct store_create_key *known, const uint8_t *hash,
                                  const struct sandbox **out, struct err *e)
{
    if (memcmp(known->request_hash, hash, STORE_HASH_SIZE) != 0) {
        err_set(e, ERR_CONFLICT, "this Idempotency-Key was used for another request");
        err_hint(e, "send a new key with a request that differs");
        return ERR_CONFLICT;
    }
    if (!known->done)
        return err_set(e, ERR_UNAVAILABLE,
                       "the sandbox of this Idempotency-Key is still being made; ask again");
    *out = core_sandbox_find(c, tenant, known->sandbox);
    if (*out)
        return ERR_OK;
    err_set(e, ERR_CONFLICT, "sandbox %s of this Idempotency-Key has ended", known->sandbox);
    err_hint(e, "send a new key to create another");
    return ERR_CONFLICT;
}

enum err_code core_sandbox_of_create_key(struct core *c, const char *tenant, const char *key,
                                         const uint8_t hash[static CORE_HASH_SIZE],
                                         const struct sandbox **out, struct err *e)
{
    struct store_create_key known;
    enum err_code code = check_key(key, e);

    *out = NULL;
    if (code == ERR_OK)
        code = store_create_key_find(c->store, tenant, key, clock_real_ms(), &known, e);
    if (code == ERR_NOT_FOUND)
        return ERR_OK;
    return code == ERR_OK ? answer_again(c, tenant, &known, hash, out, e) : code;
}

enum err_code create_key_insert(struct core *c, const struct sandbox *s,
                                const struct sandbox_request *r, struct err *e)
{
    struct store_create_key known;
    int64_t now_ms = clock_real_ms();

    /* Another may have come while this one's header values were sealed. */
    if (store_create_key_find(c->store, s->tenant, r->create_key, now_ms, &known, NULL) == ERR_OK)
        return err_set(e, ERR_UNAVAILABLE,
                       "the sandbox of this Idempotency-Key is still being made; ask again");
    return store_create_key_insert(c->store, s->tenant, r->create_key, r->create_hash, s->id,
                                   now_ms, e);
}
