#include "agent/common/path.h"

#include "agent/common/user.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Appends the elements of path to the clean absolute path in out (len bytes, no trailing slash, 0
 * for the root). */
static int append_clean(const char *path, char *out, size_t *len)
{
    while (*path) {
        size_t n = strcspn(path, "/");

        if (n == 2 && path[0] == '.' && path[1] == '.') {
            while (*len > 0 && out[--*len] != '/')
                ;
        } else if (n > 0 && !(n == 1 && path[0] == '.')) {
            if (*len + 1 + n >= AGENT_PATH_SIZE)
                return -ENAMETOOLONG;
            out[(*len)++] = '/';
            memcpy(out + *len, path, n);
            *len += n;
        }
        path += n;
        path += strspn(path, "/");
    }
    return 0;
}

static void finish(char *out, size_t len)
{
    if (len == 0)
        out[len++] = '/';
    out[len] = '\0';
}

int path_clean(const char *path, char out[static AGENT_PATH_SIZE])
{
    size_t len = 0;
    int r;

    if (path[0] != '/')
        return -EINVAL;
    r = append_clean(path, out, &len);
    if (r == 0)
        finish(out, len);
    return r;
}

enum err_code path_resolve(const char *path, const struct user *u, const char *default_dir,
                           char out[static AGENT_PATH_SIZE], struct err *e)
{
    const char *rest = path[0] || !default_dir ? path : default_dir;
    bool home = rest[0] != '/';
    size_t len = 0;

    if (rest[0] == '~') {
        rest++;
        if (rest[0] && rest[0] != '/')
            return err_set(e, ERR_INVALID,
                           "failed to expand path '%s' for user '%s': cannot expand user-specific "
                           "home dir",
                           path, u->name);
    }
    if ((home && append_clean(u->home, out, &len) < 0) || append_clean(rest, out, &len) < 0)
        return err_set(e, ERR_INVALID, "path is longer than %d bytes", AGENT_PATH_SIZE - 1);
    finish(out, len);
    return ERR_OK;
}

const char *path_base(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash && slash[1] ? slash + 1 : path;
}

void path_dir(const char *path, char out[static AGENT_PATH_SIZE])
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;

    memcpy(out, path, n);
    finish(out, n);
}

int path_join(const char *dir, const char *name, char out[static AGENT_PATH_SIZE])
{
    int n = snprintf(out, AGENT_PATH_SIZE, "%s/%s", strcmp(dir, "/") == 0 ? "" : dir, name);

    return n < AGENT_PATH_SIZE ? 0 : -ENAMETOOLONG;
}
