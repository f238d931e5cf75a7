#pragma once
/* Whose key that is, as a connection loop was told before, so that a request takes a share of its
 * tenant's (gateway/conn_share.h) without a question for each. It opens nothing: each call's key is
 * checked by the control loop. A key's tenant does not change; one that was revoked is forgotten,
 * since it must not take its tenant's shares. Belongs to one loop. */

#include "core/key.h"

#define KEY_OWNERS_MAX 256u

struct key_owners {
    struct {
        char key_id[CORE_KEY_ID_SIZE]; /* "": free */
        char tenant[CORE_TENANT_SIZE];
    } entries[KEY_OWNERS_MAX];
};

/* "": not known. Valid until the next key_owner_remember. */
const char *key_owner_find(const struct key_owners *o, const char *key);

/* Forgets whichever has its place. */
void key_owner_remember(struct key_owners *o, const char *key, const char *tenant);

/* The key with that id (core_key_id) is not known from now on; NULL: none is. */
void key_owner_forget(struct key_owners *o, const char *key_id);
