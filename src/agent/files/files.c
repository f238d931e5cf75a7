#include "agent/files/files.h"

#include "agent/common/path.h"
#include "agent/common/user.h"

#include <errno.h>
#include <string.h>

int files_status(int error)
{
    switch (error) {
    case -ENOENT: return 404;
    case -EISDIR:
    case -ENOTDIR:
    case -EINVAL:
    case -ENAMETOOLONG:
    case -ELOOP: return 400;
    case -EACCES:
    case -EPERM:
    case -EROFS: return 403;
    case -ENOSPC:
    case -EDQUOT: return 507;
    default: return 500;
    }
}

bool files_user(struct http_exchange *x, const struct agent *a, const char *username,
                struct user *u)
{
    struct err e;

    if (!username)
        username = a->default_user;
    if (!username[0]) {
        http_respond_error(x, 400, "username not provided");
        return false;
    }
    if (user_find(username, u, &e) == ERR_OK) {
        u->own_rights = user_own_rights(x);
        return true;
    }
    http_respond_error(x, e.code == ERR_UNAUTHENTICATED ? 401 : 500,
                       "error looking up user '%s': %s", username, e.text);
    return false;
}

bool files_query(struct http_exchange *x, const char *name, const char **out)
{
    char value[AGENT_PATH_SIZE];
    ssize_t n = http_query_get(http_exchange_head(x)->query, name, value, sizeof(value));

    *out = NULL;
    if (n == -ENOENT)
        return true;
    if (n >= 0)
        *out = arena_strndup(http_exchange_arena(x), value, (size_t)n);
    if (*out)
        return true;
    http_respond_error(x, 400, "query parameter '%s' is malformed or longer than %d bytes", name,
                       AGENT_PATH_SIZE - 1);
    return false;
}

bool files_path(struct http_exchange *x, const struct agent *a, const char *path,
                const struct user *u, char out[static AGENT_PATH_SIZE])
{
    struct err e;

    if (path_resolve(path, u, a->default_workdir, out, &e) == ERR_OK)
        return true;
    http_respond_error(x, 400, "error resolving path: %s", e.text);
    return false;
}
