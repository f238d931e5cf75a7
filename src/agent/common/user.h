#pragma once
/* Users of the sandbox, read from its own /etc/passwd and /etc/group; the rest of the contract
 * (struct user, user_find, user_of_request) is in agent.h.
 *
 * cay-init is static and uses no NSS: the two files are the whole truth. They belong to the tenant,
 * so they are read with a maximum size, only as regular files, and every line is checked. Reads are
 * of small files in the page cache; nothing else blocks. No state is kept between calls but in a
 * struct user_names, which its holder owns. */

#include "agent/common/agent.h"
#include "base/buf.h"

#define USER_FILE_MAX (1024u * 1024u)

/* user_find on text instead of files. group may be NULL. 0; -ENOENT; -EMSGSIZE a field is too long.
 */
int user_find_in(const char *passwd, const char *group, const char *name,
                 struct user *out) WARN_UNUSED;

/* Names of ids, for listings: reads the files once, when first asked. One thread at a time. */
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
