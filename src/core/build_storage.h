#pragma once
/* Archives for builds (build_files.h) of clients that send them to an object storage, in one piece
 * or in parts: its protocol is cayd/storage.c's. An archive is known there by its tenant and an MD5
 * that the client gives it. A part has CORE_STORAGE_PART_BYTES, the last one as many or fewer, as
 * all the SDKs' libraries have it, so that each has its place in the file before the others are
 * there.
 *
 * A client shows a token, which it got with its key: of one tenant, for CORE_STORAGE_MS, and not
 * longer than the key is there. */

#include "core/build_files.h"
#include "core/key.h"

#define CORE_STORAGE_MS         3600000ll
#define CORE_STORAGE_TOKEN_SIZE 160 /* NUL included */
#define CORE_STORAGE_DIGITS     32u /* of the MD5 */
#define CORE_STORAGE_PART_BYTES (5u * 1024u * 1024u)
#define CORE_STORAGE_PARTS_MAX \
    ((CORE_BUILD_FILE_MAX + CORE_STORAGE_PART_BYTES - 1) / CORE_STORAGE_PART_BYTES)
#define CORE_STORAGE_PARTS_OPEN  16u /* of one archive, received at a time */
#define CORE_STORAGE_UPLOAD_SIZE 17  /* name of an archive that comes in parts */

/* The archive before its hash as core knows it: zeros, and the digits of the MD5. */
#define CORE_STORAGE_ZEROS "00000000000000000000000000000000"

enum storage_op {
    STORAGE_STAT,     /* is it there: bytes, used_real_ms */
    STORAGE_PUT,      /* it comes whole: file */
    STORAGE_BEGIN,    /* it comes in parts: upload */
    STORAGE_PART,     /* one of them: file, offset */
    STORAGE_COMPLETE, /* all of them are there: bytes */
    STORAGE_ABORT,
};

struct core_storage_call {
    enum storage_op op;
    char tenant[CORE_TENANT_SIZE], token[CORE_STORAGE_TOKEN_SIZE];
    char digits[CORE_STORAGE_DIGITS + 1];
    char upload[CORE_STORAGE_UPLOAD_SIZE]; /* of STORAGE_PART and what follows; of BEGIN's answer */
    unsigned part;                         /* from 1 on */
    /* the answer */
    struct core_build_upload file;
    uint64_t bytes;
    int64_t used_real_ms;
};

/* For the tenant whose key that is. */
void core_storage_token(struct core *c, const struct core_identity *who, const char *key,
                        char out[static CORE_STORAGE_TOKEN_SIZE]);

/* ERR_DENIED: that is no token, its time is over, or its key is gone; ERR_NOT_FOUND: no archive or
 * no upload is there of that name, or it is another tenant's; ERR_INVALID; ERR_CONFLICT: parts are
 * missing or still coming; ERR_EXHAUSTED, ERR_NO_SPACE. */
enum err_code core_storage_call(struct core *c, struct core_storage_call *s, struct err *e);

/* Of STORAGE_PART: so many bytes are written, and it is whole; or it is no part. */
enum err_code core_storage_part_end(struct core *c, uint64_t number, unsigned part, uint64_t bytes,
                                    bool whole, struct err *e);
