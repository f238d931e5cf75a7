/* Which files of a hook directory are run, and why not the others. Links are followed nowhere: one
 * that is not there, or leads elsewhere, is no directory of hooks. */

#include "agent/hooks.h"

#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *const others_write = "it does not belong to root alone: who else may write it "
                                        "would run as root";

static bool is_roots_alone(const struct stat *st)
{
    return st->st_uid == 0 && (st->st_mode & 022) == 0;
}

/* -1: there is none; *why: it is not used. */
static int open_dir(int at, const char *name, const char **why)
{
    CLEANUP_CLOSE int fd = openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    if (fd < 0)
        return -1;
    if (fstat(fd, &st) < 0 || !is_roots_alone(&st)) {
        *why = others_write;
        return -1;
    }
    return TAKE_FD(fd);
}

static bool is_name(const char *s)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t n = strlen(s);

    return n <= HOOKS_NAME && s[0] != '.' && s[strspn(s, allowed)] == '\0';
}

static bool add(void *arg, const char *name)
{
    struct hooks_list *list = arg;
    bool full = list->n == HOOKS_MAX && is_name(name);

    if (full || ++list->entries > HOOKS_ENTRIES) {
        list->why_not = "it has too many files, so that none was run";
        return false;
    }
    if (is_name(name))
        memcpy(list->hooks[list->n++].name, name, strlen(name) + 1);
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct hook *)a)->name, ((const struct hook *)b)->name);
}

static const char *why_not(int dir, const char *name)
{
    struct stat st;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return "it cannot be read";
    if (!S_ISREG(st.st_mode))
        return "it is not a regular file";
    if (!is_roots_alone(&st))
        return others_write;
    return st.st_mode & 0111 ? NULL : "it is not executable";
}

void hooks_find(const char *dir, struct hooks_list *out)
{
    *out = (struct hooks_list){0};
    CLEANUP_CLOSE int parent = open_dir(AT_FDCWD, HOOKS_DIR, &out->why_not);
    CLEANUP_CLOSE int fd = parent < 0 ? -1 : open_dir(parent, dir, &out->why_not);

    if (fd < 0)
        return;
    if (io_each_name_at(fd, ".", add, out) < 0)
        out->why_not = "it cannot be read";
    if (out->why_not) {
        out->n = 0;
        return;
    }
    qsort(out->hooks, out->n, sizeof(out->hooks[0]), by_name);
    for (size_t i = 0; i < out->n; i++)
        out->hooks[i].why_not = why_not(fd, out->hooks[i].name);
}
