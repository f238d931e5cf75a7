#pragma once
/* Users of the sandbox, read from its own /etc/passwd and /etc/group, and whom a request's programs
 * and files belong to.
 *
 * cay-init is static and uses no NSS: the two files are the whole truth. They belong to the tenant,
 * so they are read with a maximum size, only as regular files, and every line is checked. Reads are
 * of small files in the page cache; nothing else blocks. No state is kept between calls but in a
 * struct user_names, which its holder owns. */

#include "agent/common/agent.h"
#include "base/buf.h"

#define USER_FILE_MAX   (1024u * 1024u)
#define USER_GROUPS_MAX 64

struct user {
    char name[AGENT_NAME_SIZE];
    char home[AGENT_PATH_SIZE];
    char shell[AGENT_PATH_SIZE];
    uint32_t uid, gid;
    size_t group_count; /* the primary group is among them */
    uint32_t groups[USER_GROUPS_MAX];
    /* its files are touched with its rights alone: AGENT_ACCESS_HEADER of the request */
    bool own_rights;
};

/* Reads the sandbox's own /etc/passwd and /etc/group, bounded, without NSS. ERR_UNAUTHENTICATED
 * with a text that names the user when there is none of that name. */
enum err_code user_find(const char *name, struct user *out, struct err *e);

/* The user of a request: Authorization: Basic base64("name:"), else default_user. */
enum err_code user_of_request(const struct http_exchange *x, const struct agent *a,
                              struct user *out, struct err *e);

/* Does the request say that files are to be touched with the user's rights alone? */
bool user_own_rights(const struct http_exchange *x);

/* user_find on text instead of files. group may be NULL. A name that no user has may be a user's
 * number, as USER of an image often is. 0; -ENOENT; -EMSGSIZE a field is too long. */
int user_find_in(const char *passwd, const char *group, const char *name,
                 struct user *out) WARN_UNUSED;

/* Names of ids, for listings: reads the files once, when first asked. Used by one thread at a
 * time. */
struct user_names {
    struct buf passwd, group;
    bool loaded;
    struct user_name_memo {
        bool valid;
        uint32_t id;
        char name[AGENT_NAME_SIZE];
    } uids[8], gids[8];
};

#define CLEANUP_USER_NAMES CLEANUP(user_names_free)

void user_names_init(struct user_names *n);
void user_names_free(struct user_names *n);

/* The name, or the number as text when it has none. Valid until the next call on n. */
const char *user_names_uid(struct user_names *n, uint32_t uid);
const char *user_names_gid(struct user_names *n, uint32_t gid);
