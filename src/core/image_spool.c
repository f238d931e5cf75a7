/* Folders are made by path and the rest by descriptor, since cayd may make them so alone
 * (src/cayd/confine.c). Nothing but cayd's user can write here. */
#include "core/image_spool.h"

#include "base/disk_space.h"
#include "base/io.h"
#include "base/log.h"
#include "core/core_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Beside cayd's own directory. */
static void path_of(const struct core *c, const char *name, char out[static PATH_MAX])
{
    (void)snprintf(out, PATH_MAX, "%s/../images/%s", c->config.state_dir, name);
}

static int open_folder(const struct core *c, const char *name)
{
    char path[PATH_MAX];
    int fd;

    path_of(c, name, path);
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static void name_of(uint32_t number, char out[static 16])
{
    (void)snprintf(out, 16, "%u", number);
}

/* -- removing ---------------------------------------------------------------------------------- */

static bool remove_file(void *arg, const char *name)
{
    (void)!unlinkat(*(const int *)arg, name, 0);
    return true;
}

static void remove_folder(const struct core *c, const char *name)
{
    CLEANUP_CLOSE int fd = open_folder(c, name);
    char path[PATH_MAX];

    if (fd < 0)
        return;
    io_each_name_at(fd, ".", remove_file, &fd);
    path_of(c, name, path);
    if (unlinkat(AT_FDCWD, path, AT_REMOVEDIR) < 0 && errno != ENOENT)
        log_warn("%s cannot be removed: %s", path, strerror(errno));
}

void image_spool_remove(const struct core *c, uint32_t number)
{
    char name[16];

    name_of(number, name);
    remove_folder(c, name);
}

static bool remove_left(void *arg, const char *name)
{
    remove_folder(arg, name);
    return true;
}

void image_spool_init(struct core *c)
{
    CLEANUP_CLOSE int fd = open_folder(c, "");

    if (fd >= 0)
        io_each_name_at(fd, ".", remove_left, c);
}

/* -- filling ----------------------------------------------------------------------------------- */

enum err_code image_spool_make(const struct core *c, uint32_t number, struct err *e)
{
    char name[16], path[PATH_MAX];

    image_spool_remove(c, number);
    name_of(number, name);
    path_of(c, name, path);
    if (mkdir(path, 0700) == 0)
        return ERR_OK;
    return err_set_sys(e, ERR_UNAVAILABLE, errno, "making a folder for the image");
}

static enum err_code check_space(int fd, uint64_t bytes, struct err *e)
{
    int r = disk_space_leaves(fd, bytes, IMAGE_SPOOL_FREE_PERCENT);

    if (r < 0)
        return err_set_sys(e, ERR_INTERNAL, r, "looking at the disk of images");
    if (r > 0)
        return ERR_OK;
    return err_set(e, ERR_NO_SPACE, "the server's disk would be left with less than %u %% free",
                   IMAGE_SPOOL_FREE_PERCENT);
}

int image_spool_open(const struct core *c, uint32_t number, size_t layer, uint64_t bytes,
                     struct err *e)
{
    CLEANUP_CLOSE int dir = -1;
    char name[24];
    int fd;

    name_of(number, name);
    dir = open_folder(c, name);
    if (dir >= 0 && check_space(dir, bytes, e) != ERR_OK)
        return -1;
    (void)snprintf(name, sizeof(name), "%zu", layer);
    fd = dir < 0 ? -1
                 : openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        err_set_sys(e, ERR_INTERNAL, errno, "making a file for layer %zu", layer + 1);
    return fd;
}

int image_spool_read(const struct core *c, uint32_t number, size_t layer)
{
    CLEANUP_CLOSE int dir = -1;
    char name[24];
    int fd;

    name_of(number, name);
    dir = open_folder(c, name);
    if (dir < 0)
        return dir;
    (void)snprintf(name, sizeof(name), "%zu", layer);
    fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

enum err_code image_spool_write(int fd, const char *bytes, size_t n, size_t layer, struct err *e)
{
    enum err_code code = check_space(fd, n, e);
    int r = code == ERR_OK ? io_write_full(fd, bytes, n) : 0;

    return r < 0 ? err_set_sys(e, err_code_from_errno(r), r, "keeping layer %zu", layer + 1) : code;
}

enum err_code image_spool_note(const struct core *c, uint32_t number, const char *name,
                               const char *text, struct err *e)
{
    CLEANUP_CLOSE int dir = -1, fd = -1;
    char folder[16];
    int r;

    if (!text || strlen(text) > IMAGE_SPOOL_NOTE_MAX)
        return err_set(e, ERR_TOO_LARGE, "the image's variables and commands are over %u KiB",
                       IMAGE_SPOOL_NOTE_MAX >> 10);
    name_of(number, folder);
    dir = open_folder(c, folder);
    fd = dir < 0 ? -1 : openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    r = fd < 0 ? -errno : io_write_full(fd, text, strlen(text));
    return r < 0 ? err_set_sys(e, ERR_INTERNAL, r, "writing %s", name) : ERR_OK;
}
