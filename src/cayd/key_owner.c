#include "cayd/key_owner.h"

#include <stdio.h>
#include <string.h>

/* FNV-1a. Ids are hashes, which no client chooses: it chooses a key at most, and then knows it. */
static size_t place_of(const char *key_id)
{
    uint32_t h = 2166136261u;

    for (const unsigned char *c = (const unsigned char *)key_id; *c; c++)
        h = (h ^ *c) * 16777619u;
    return h % KEY_OWNERS_MAX;
}

const char *key_owner_find(const struct key_owners *o, const char *key)
{
    char key_id[CORE_KEY_ID_SIZE];
    size_t i;

    core_key_id(key, key_id);
    i = place_of(key_id);
    return strcmp(o->entries[i].key_id, key_id) == 0 ? o->entries[i].tenant : "";
}

void key_owner_remember(struct key_owners *o, const char *key, const char *tenant)
{
    char key_id[CORE_KEY_ID_SIZE];
    size_t i;

    core_key_id(key, key_id);
    i = place_of(key_id);
    memcpy(o->entries[i].key_id, key_id, sizeof(key_id));
    (void)snprintf(o->entries[i].tenant, sizeof(o->entries[i].tenant), "%s", tenant);
}

void key_owner_forget(struct key_owners *o, const char *key_id)
{
    size_t i = key_id ? place_of(key_id) : 0;

    if (!key_id)
        memset(o, 0, sizeof(*o));
    else if (strcmp(o->entries[i].key_id, key_id) == 0)
        o->entries[i].key_id[0] = '\0';
}
