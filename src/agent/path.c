#include "agent/path.h"

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
            if (*len + 1 + n >= PATH_MAX)
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

int path_clean(const char *path, char out[static PATH_MAX])
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

int path_resolve(const char *path, const char *home, const char *workdir, char out[static PATH_MAX])
{
    size_t len = 0;
    int r = 0;

    if (!path[0] && workdir)
        path = workdir;
    if (path[0] == '~') {
        path++;
        if (path[0] && path[0] != '/')
            return -EINVAL;
        r = append_clean(home, out, &len);
    } else if (path[0] != '/') {
        r = append_clean(home, out, &len);
    }
    if (r == 0)
        r = append_clean(path, out, &len);
    if (r == 0)
        finish(out, len);
    return r;
}

const char *path_base(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash && slash[1] ? slash + 1 : path;
}

void path_dir(const char *path, char out[static PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;

    memcpy(out, path, n);
    finish(out, n);
}

int path_join(const char *dir, const char *name, char out[static PATH_MAX])
{
    int n = snprintf(out, PATH_MAX, "%s/%s", strcmp(dir, "/") == 0 ? "" : dir, name);

    return n < PATH_MAX ? 0 : -ENAMETOOLONG;
}
