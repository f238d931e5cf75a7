#include "base/instance.h"

#include <stdio.h>
#include <string.h>

/* FNV-1a, 32 bits: enough to tell a few places apart, and the same in every build. */
static uint32_t hash(const char *text)
{
    uint32_t h = 0x811c9dc5u;

    for (; *text; text++)
        h = (h ^ (uint8_t)*text) * 0x01000193u;
    return h;
}

void instance_cgroup(const char *privd_dir, char out[static INSTANCE_CGROUP_SIZE])
{
    if (strcmp(privd_dir, INSTANCE_PRIVD_DIR) == 0)
        snprintf(out, INSTANCE_CGROUP_SIZE, "cay");
    else
        snprintf(out, INSTANCE_CGROUP_SIZE, "cay-%08x", hash(privd_dir));
}
