#include "cayd/key_owner.h"

#include "base/fnv.h"

#include <stdio.h>
#include <string.h>

/* Ids are hashes of keys, which no client chooses. */
static size_t index_of(const char *key_id)
{
    return fnv_32(FNV_32_START, key_id) % KEY_OWNERS_MAX;
}

const char *key_owner_find(const struct key_owners *o, const char *key)
{
    char key_id[CORE_KEY_ID_SIZE];
    size_t i;

    core_key_id(key, key_id);
    i = index_of(key_id);
    return strcmp(o->entries[i].key_id, key_id) == 0 ? o->entries[i].tenant : "";
}

void key_owner_remember(struct key_owners *o, const char *key, const char *tenant)
{
    char key_id[CORE_KEY_ID_SIZE];
    size_t i;

    core_key_id(key, key_id);
    i = index_of(key_id);
    memcpy(o->entries[i].key_id, key_id, sizeof(key_id));
    (void)snprintf(o->entries[i].tenant, sizeof(o->entries[i].tenant), "%s", tenant);
}

void key_owner_forget(struct key_owners *o, const char *key_id)
{
    size_t i = key_id ? index_of(key_id) : 0;

    if (!key_id)
        memset(o, 0, sizeof(*o));
    else if (strcmp(o->entries[i].key_id, key_id) == 0)
        o->entries[i].key_id[0] = '\0';
}
