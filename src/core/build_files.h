#pragma once
/* Archives that clients send for COPY steps of builds: held in a directory of cayd's own, by their
 * tenant and the hash that the client gives them, until they have not been used for
 * CORE_BUILD_FILES_AGE_MS or their tenant needs the room. Their names are 96 hex digits, made here;
 * one that is being received has 16. Nothing here reads what is in one: a sandbox does.
 *
 * A client sends an archive without its key, to an address that it was given: whose it is and until
 * when is in the address, under a MAC of the server's. */

#include "core/core.h"

#define CORE_BUILD_FILE_MAX     (512u * 1024u * 1024u)
#define CORE_BUILD_FILES_BYTES  (2048llu * 1024u * 1024u)  /* of a tenant, together */
#define CORE_BUILD_FILES_ALL    (16384llu * 1024u * 1024u) /* of all */
#define CORE_BUILD_FILES_EACH   256u                       /* of a tenant */
#define CORE_BUILD_FILES_FREE   5u /* percent of the disk that they leave, for what else is on it */
#define CORE_BUILD_FILES_AGE_MS (7ll * 86400 * 1000)
#define CORE_BUILD_SWEEP_MS     3600000u
#define CORE_BUILD_UPLOADS      4u /* of a tenant, at a time */
#define CORE_BUILD_UPLOAD_MS    3600000ll
#define CORE_BUILD_HASH_MAX     64u /* hex digits */
#define CORE_BUILD_UPLOAD_TOKEN 128 /* NUL included */

struct build_files;

/* Is it here? Then it was used. ERR_INVALID: hash is none. */
enum err_code core_build_file_present(struct core *c, const char *tenant, const char *hash,
                                      bool *present, struct err *e);

/* For the address that the client may send it to, for CORE_BUILD_UPLOAD_MS. */
void core_build_upload_token(struct core *c, const char *tenant, const char *hash,
                             char out[static CORE_BUILD_UPLOAD_TOKEN]);

/* A token begins with so many hex digits that are its tenant's: more than a tenant's name has. */
#define CORE_BUILD_OWNER_LEN 32

struct core_build_upload {
    int fd; /* to write to; the caller's */
    uint64_t number;
    uint64_t most_bytes;
};

/* ERR_DENIED: that is no token for the hash, or its time is over; ERR_EXHAUSTED; ERR_NO_SPACE. */
enum err_code core_build_upload_begin(struct core *c, const char *hash, const char *token,
                                      struct core_build_upload *out, struct err *e);

/* Whether the disk of an archive that is being received has room for more of it: to be asked each
 * CORE_BUILD_UPLOAD_STEP bytes. ERR_NO_SPACE. */
#define CORE_BUILD_UPLOAD_STEP (1024u * 1024u)
enum err_code core_build_upload_space(int fd, struct err *e);

/* An archive that is being received was given up, or its time is over: it counts no more, and bytes
 * written to it would be on the disk all the same. To be asked before each write. */
bool core_build_upload_is_gone(int fd);

/* bytes have been written, and it is whole; or it is dropped. */
enum err_code core_build_upload_end(struct core *c, uint64_t number, uint64_t bytes, bool whole,
                                    struct err *e);

/* -- for core's other files -------------------------------------------------------------------- */

/* To read; -ENOENT. */
int build_file_open(struct core *c, const char *tenant, const char *hash);

/* Before cayd gives up its rights: makes the directory, looks at what is there. */
enum err_code build_files_init(struct core *c, struct err *e);
void build_files_free(struct core *c);
