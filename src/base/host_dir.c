#include "base/host_dir.h"

#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define OTHERS_READ (S_IROTH | S_IXOTH)

#define NAME_FIRST "abcdefghijklmnopqrstuvwxyz0123456789"
#define NAME_CHARS NAME_FIRST "_-"

static bool is_name(const char *text, size_t n)
{
    return n > 0 && n < HOST_DIR_NAME_SIZE && strspn(text, NAME_CHARS) >= n &&
           strchr(NAME_FIRST, text[0]) != NULL;
}

/* Of whole names, so that the path is what its text says. Not the root: strlen is 1. */
static bool is_path(const char *path, size_t n)
{
    if (n < 2 || n >= HOST_DIR_PATH_SIZE || path[0] != '/' || strcspn(path, " \t,;") < n)
        return false;
    for (size_t at = 0; at < n;) {
        const char *part = path + at + 1;
        size_t len = strcspn(part, "/:");

        if (len == 0 || (len == 1 && part[0] == '.') || (len == 2 && memcmp(part, "..", 2) == 0))
            return false;
        at += 1 + len;
    }
    return true;
}

/* No empty name among them: it would be a mistake that allows less than was meant. */
static bool are_tenants(const char *text)
{
    size_t n = strlen(text);

    return n > 0 && text[0] != ',' && text[n - 1] != ',' && !strstr(text, ",,") &&
           strcspn(text, ": \t") == n;
}

const char *host_dir_parse(const char *text, struct host_dir *out)
{
    size_t name_len = strcspn(text, ":");
    const char *path = text + name_len + (text[name_len] == ':');
    size_t path_len = strcspn(path, ":");
    const char *tenants = path[path_len] ? path + path_len + 1 : NULL;

    if (!is_name(text, name_len))
        return "a name comes first, of 1 to 16 small letters, digits, '-' and '_', then ':' and "
               "the path";
    if (!is_path(path, path_len))
        return "after the name comes an absolute path of at most 179 bytes, without \".\", \"..\", "
               "blanks, ',', ';', ':' and a slash at its end";
    if (tenants && !are_tenants(tenants))
        return "after the path come names of tenants, with commas between and no blanks";
    *out = (struct host_dir){.tenants = tenants};
    (void)snprintf(out->name, sizeof(out->name), "%.*s", (int)name_len, text);
    (void)snprintf(out->path, sizeof(out->path), "%.*s", (int)path_len, path);
    return NULL;
}

bool host_dir_is_for(const struct host_dir *d, const char *tenant)
{
    size_t n = strlen(tenant), len;

    if (!d->name[0] || !d->tenants)
        return d->name[0] != '\0';
    for (const char *at = d->tenants; *at; at += len + (at[len] == ',')) {
        len = strcspn(at, ",");
        if (len == n && memcmp(at, tenant, n) == 0)
            return true;
    }
    return false;
}

int host_dir_open(const struct host_dir *d, struct stat *st, const char **why)
{
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                           .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    CLEANUP_CLOSE int fd = (int)syscall(SYS_openat2, AT_FDCWD, d->path, &how, sizeof(how));

    if (fd >= 0 && fstat(fd, st) == 0)
        return TAKE_FD(fd);
    *why = errno == ELOOP ? "a part of its path is a symbolic link: name it by what realpath says"
                          : strerror(errno);
    return -1;
}

const char *host_dir_unreadable(const struct stat *st)
{
    return (st->st_mode & OTHERS_READ) == OTHERS_READ
               ? NULL
               : "not all users may read and enter it (chmod o+rx)";
}
