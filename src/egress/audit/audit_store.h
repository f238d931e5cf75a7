#pragma once
/* The files of the audit log: a chain of lines for each tenant (audit_chain.h), and one for what
 * has no tenant yet. STATE/audit-SHARD.TENANT.log is the newest file of one; when it is full it
 * becomes audit-SHARD.TENANT.log.NUMBER, numbers rise, and the chain goes on in a new one.
 *
 * All together have at most so many bytes. Beyond, the oldest file of the tenant that holds most
 * goes, also while others write: a tenant that writes without end loses its own lines, and none of
 * another that holds less.
 *
 * Lines leave in audit_store_flush, in one write for each tenant; fdatasync is done by libuv's
 * helper threads, at most AUDIT_SYNC_MS after, so that no disk holds up the loop. A machine that
 * crashes may have lost the lines of that time and of the fdatasync under way; a program that
 * crashes, none that was flushed. No descriptor is held meanwhile but one in reserve: a log can be
 * written when descriptors are out. A log that cannot be written ends the program: nothing passes
 * unrecorded. */

#include "base/buf.h"
#include "base/err.h"
#include "egress/audit/audit_chain.h"

#include <uv.h>

#define AUDIT_SYNC_MS        1000u
#define AUDIT_FULL_PARTS     8u             /* a tenant's share is kept in at least so many files */
#define AUDIT_FILE_MIN_BYTES (128u * 1024u) /* however many tenants there are */
#define AUDIT_NAME_SIZE      256u

struct audit_store;

/* Of one tenant; lives as long as the store. */
struct audit_log {
    struct audit_log *next, *next_dirty; /* audit_store.c's */
    char *tenant;
    char name[AUDIT_NAME_SIZE - 16]; /* of the newest file */
    char prev[AUDIT_HASH_SIZE];      /* hash of the last line */
    uint64_t seq;                    /* number of the last line, from 1 */
    uint64_t bytes, file_bytes;      /* of all files; of the newest */
    uint32_t first, end;             /* numbers of the full files: first <= n < end */
    uint32_t unsynced;               /* full files from here on may not be on the disk yet */
    bool is_dirty, is_unsynced;
    struct buf pending;
};

struct audit_store_limits {
    uint64_t file_bytes;  /* of one file at most */
    uint64_t total_bytes; /* of all */
};

enum err_code audit_store_open(uv_loop_t *loop, const char *dir, uint32_t shard,
                               const struct audit_store_limits *limits, struct audit_store **out,
                               struct err *e);

/* Flushes, waits for the disk; freed when the loop has turned. */
void audit_store_free(struct audit_store *s);

/* The tenant's, made if there is none; NULL: memory is out. */
struct audit_log *audit_store_log(struct audit_store *s, const char *tenant);

/* Of all tenants. */
struct audit_log *audit_store_first(const struct audit_store *s);

/* A whole line without its newline; *l then ends with it. Kept until audit_store_flush where there
 * is memory for it, else written at once; ends the process where it cannot be written. */
void audit_store_append(struct audit_store *s, struct audit_log *l, const char *line, size_t n);
void audit_store_flush(struct audit_store *s);

/* The name of a full file, or (n == UINT32_MAX) of the newest. */
void audit_store_file(const struct audit_log *l, uint32_t n, char out[static AUDIT_NAME_SIZE]);
