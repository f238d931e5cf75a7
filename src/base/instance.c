#include "base/instance.h"

#include "base/fnv.h"

#include <stdio.h>
#include <string.h>

void instance_cgroup(const char *privd_dir, char out[static INSTANCE_CGROUP_SIZE])
{
    if (strcmp(privd_dir, INSTANCE_PRIVD_DIR) == 0)
        snprintf(out, INSTANCE_CGROUP_SIZE, "cay");
    else /* 32 bits are enough to tell a few places apart; the name is the same in every build */
        snprintf(out, INSTANCE_CGROUP_SIZE, "cay-%08x", fnv_32(FNV_32_START, privd_dir));
}
