#pragma once
/* Shared by the files of the store of logs. */

#include "egress/audit/audit_store.h"

#define AUDIT_SUFFIX ".log"
#define AUDIT_NEWEST UINT32_MAX /* the number of the file that is written to */

struct audit_store {
    uv_loop_t *loop;
    int dir_fd;
    int reserve_fd; /* closed for a moment where descriptors are out */
    char prefix[32];
    struct audit_store_limits limits;
    struct audit_log *logs, *dirty;
    uint64_t bytes;
    size_t count;
    uv_timer_t tick;
    bool syncing, closing, closed;
};

/* Finds all of them and counts them; log_of makes the log of a tenant, or has it. 0 or -errno. */
int audit_store_find_files(struct audit_store *s,
                           struct audit_log *(*log_of)(struct audit_store *s, const char *tenant));
