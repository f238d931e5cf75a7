#pragma once
/* Users of the sandbox, read from its own /etc/passwd and /etc/group.
 *
 * cay-init is static and uses no NSS: the two files are the whole truth. They belong to the tenant,
 * so they are read with a maximum size, only as regular files, and every line is checked. Reads are
 * of small files in the page cache; nothing else blocks. No state is kept between calls but in a
 * struct user_names, which its holder owns. */

#include "base/buf.h"
#include "http/message.h"

#define USER_NAME_SIZE  256
#define USER_PATH_SIZE  1024
#define USER_MAX_GROUPS 64
#define USER_FILE_MAX   (1024u * 1024u)

struct user {
    uint32_t uid, gid;
    char name[USER_NAME_SIZE];
    char home[USER_PATH_SIZE];  /* "/" when the line has none */
    char shell[USER_PATH_SIZE]; /* "/bin/sh" when the line has none (passwd(5)) */
    size_t group_count;         /* supplementary groups, without gid */
    uint32_t groups[USER_MAX_GROUPS];
};

/* 0; -ENOENT no such user; -EMSGSIZE file or field too long; -errno. out is untouched on failure.
 */
int user_find(const char *name, struct user *out) WARN_UNUSED;

/* Who asks: the name in `Authorization: Basic`, else default_name (may be NULL or ""). The password
 * is ignored: it proves nothing here, tokens are checked by cayd. A header that is not well-formed
 * Basic counts as absent, as with upstream. asked gets the name that was looked up ("" when none),
 * safe to put into an error's text.
 * 0; -ENODATA nobody named; -ENOENT unknown; else as user_find. */
int user_from_head(const struct http_head *head, const char *default_name,
                   char asked[static USER_NAME_SIZE], struct user *out) WARN_UNUSED;

/* Names of ids, for listings: reads the files once, when first asked. */
struct user_names {
    struct buf passwd, group;
    bool loaded;
    struct user_name_memo {
        bool valid;
        uint32_t id;
        char name[USER_NAME_SIZE];
    } uids[8], gids[8];
};

#define CLEANUP_USER_NAMES CLEANUP(user_names_free)

void user_names_init(struct user_names *n);
void user_names_free(struct user_names *n);

/* The name, or the number as text when it has none. Valid until the next call on n. */
const char *user_names_uid(struct user_names *n, uint32_t uid);
const char *user_names_gid(struct user_names *n, uint32_t gid);

/* The same on text instead of files, for tests. group may be NULL. */
int user_find_in(const char *passwd, const char *group, const char *name,
                 struct user *out) WARN_UNUSED;
