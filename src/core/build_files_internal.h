#pragma once
/* Shared by build_files.c (archives that are there, and those that come whole) and build_storage.c
 * (those that come in parts). The lists are the core's (c->build_files). */

#include "core/build_files.h"
#include "core/timers.h"

#define BUILD_FILES_NAME_SIZE (CORE_BUILD_OWNER_LEN + CORE_BUILD_HASH_MAX + 1)
#define BUILD_FILES_TEMP_SIZE 17

struct build_file {
    struct build_file *next;
    char name[BUILD_FILES_NAME_SIZE]; /* its owner's digits, then the hash */
    uint64_t bytes;
    int64_t used_real_ms;
    uint64_t turn; /* of the use, among all: two may be of one millisecond */
};

struct upload {
    struct upload *next;
    uint64_t number;
    char name[BUILD_FILES_NAME_SIZE], temp[BUILD_FILES_TEMP_SIZE];
    int64_t until_real_ms;
    uint32_t *parts;        /* bytes of each that is there; NULL: it comes whole */
    unsigned parts_written; /* that are just being received */
    bool given_up;          /* it goes with the last of them */
};

struct build_files {
    struct core *core;
    struct timer sweep;
    int dir_fd;
    struct build_file *files;
    struct upload *uploads;
    uint64_t last;  /* number of an upload */
    uint64_t turns; /* uses of archives so far */
};

/* -- build_files_token.c ----------------------------------------------------------------------- */

/* Whose digits stand for the tenant. */
void build_files_owner(const char *tenant, char out[static CORE_BUILD_OWNER_LEN + 1]);

bool build_files_is_hex(const char *text, size_t len);

/* Whose an address's token is. ERR_DENIED. */
enum err_code build_files_read_token(const struct core *c, const char *hash, const char *token,
                                     char owner[static CORE_BUILD_OWNER_LEN + 1], struct err *e);

/* hash is digits already. */
void build_files_name(const char *owner, const char *hash, char out[static BUILD_FILES_NAME_SIZE]);

/* -- build_files.c ----------------------------------------------------------------------------- */

/* NULL: there is none. */
struct build_file *build_files_find(const struct build_files *all, const char *name);

/* Its last use is at that time: those that were not used for longest go first. */
void build_files_use(struct build_files *all, struct build_file *f, int64_t at_real_ms);

/* A file for an archive of that name, or the reason why there may be none. *fd is the caller's. */
enum err_code build_files_receive(struct core *c, const char *owner, const char *hash,
                                  struct upload **out, int *fd, struct err *e);

/* It is whole, with so many bytes: from now on it is found. u is the caller's to remove. */
enum err_code build_files_keep(struct build_files *all, const struct upload *u, uint64_t bytes,
                               struct err *e);
void build_files_remove_upload(struct build_files *all, struct upload *u);

/* Those that took too long go, and archives that were not used for long: at each call, and every
 * CORE_BUILD_SWEEP_MS. */
void build_files_sweep(struct build_files *all);
