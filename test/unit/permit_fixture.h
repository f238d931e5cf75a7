#pragma once
/* Requests that privd permits, to be made wrong in one place each. */
#include "privd/permit.h"

#include <string.h>

#define OPEN_FILES 20000
#define SLOTS      100

static const struct permit_bounds bounds = {.open_files_max = OPEN_FILES, .slots_max = SLOTS};

static inline struct privsep_msg good_create(void)
{
    struct privsep_msg m = {.version = PRIVSEP_VERSION, .op = PRIVSEP_CREATE, .seq = 1};

    m.u.create.template_number = 1;
    m.u.create.limits = (struct privsep_limits){.memory_bytes = 512ull << 20,
                                                .disk_bytes = 1ull << 30,
                                                .cpu_milli = 1000,
                                                .pids = 256,
                                                .open_files = 1024};
    memcpy(m.u.create.id, "i0123456789", 11);
    return m;
}
