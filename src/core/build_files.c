#include "core/build_files_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/core_internal.h"
#include "http/digest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define DIRECTORY "builds"
#define OWNER_LEN CORE_BUILD_OWNER_LEN
#define NAME_SIZE BUILD_FILES_NAME_SIZE
#define TEMP_SIZE BUILD_FILES_TEMP_SIZE

/* -- names ------------------------------------------------------------------------------------- */

struct build_file *build_files_find(const struct build_files *all, const char *name)
{
    struct build_file *f = all->files;

    while (f && strcmp(f->name, name) != 0)
        f = f->next;
    return f;
}

void build_files_use(struct build_files *all, struct build_file *f, int64_t at_real_ms)
{
    f->used_real_ms = at_real_ms;
    f->turn = ++all->turns;
}

/* Of two that were used in one millisecond: the one that was used first. */
static bool is_older(const struct build_file *f, const struct build_file *than)
{
    return f->used_real_ms != than->used_real_ms ? f->used_real_ms < than->used_real_ms
                                                 : f->turn < than->turn;
}

/* -- what goes --------------------------------------------------------------------------------- */

static void remove_file(struct build_files *all, struct build_file *f)
{
    struct build_file **at = &all->files;

    while (*at != f)
        at = &(*at)->next;
    *at = f->next;
    if (unlinkat(all->dir_fd, f->name, 0) < 0 && errno != ENOENT)
        log_warn("an archive of a build cannot be removed: %s", strerror(errno));
    free(f);
}

void build_files_remove_upload(struct build_files *all, struct upload *u)
{
    struct upload **at = &all->uploads;

    while (*at != u)
        at = &(*at)->next;
    *at = u->next;
    (void)unlinkat(all->dir_fd, u->temp, 0); /* not there where it was whole */
    free(u->parts);
    free(u);
}

void build_files_sweep(struct build_files *all)
{
    int64_t now = clock_real_ms();
    struct build_file *f, *next;
    struct upload *u, *next_upload;

    for (f = all->files; f; f = next) {
        next = f->next;
        if (now - f->used_real_ms > CORE_BUILD_FILES_AGE_MS)
            remove_file(all, f);
    }
    for (u = all->uploads; u; u = next_upload) {
        next_upload = u->next;
        if (now > u->until_real_ms)
            build_files_remove_upload(all, u);
    }
}

static void on_sweep(struct timer *t)
{
    struct build_files *all = CONTAINER_OF(t, struct build_files, sweep);

    build_files_sweep(all);
    timers_set(&all->core->timers, t, clock_mono_ms() + CORE_BUILD_SWEEP_MS);
}

/* NULL: it has none. */
static struct build_file *oldest_of(const struct build_files *all, const char *owner, size_t *n,
                                    uint64_t *bytes)
{
    struct build_file *oldest = NULL;

    *n = 0;
    *bytes = 0;
    for (struct build_file *f = all->files; f; f = f->next) {
        if (strncmp(f->name, owner, OWNER_LEN) != 0)
            continue;
        ++*n;
        *bytes += f->bytes;
        if (!oldest || is_older(f, oldest))
            oldest = f;
    }
    return oldest;
}

/* Its owner's oldest go until so many bytes more are within what a tenant may have. */
static void make_room(struct build_files *all, const char *owner, uint64_t more)
{
    struct build_file *oldest;
    uint64_t bytes;
    size_t n;

    while ((oldest = oldest_of(all, owner, &n, &bytes)) &&
           (n >= CORE_BUILD_FILES_EACH || bytes + more > CORE_BUILD_FILES_BYTES))
        remove_file(all, oldest);
}

static enum err_code enter(struct build_files *all, const char *name, uint64_t bytes, int64_t used,
                           struct err *e)
{
    struct build_file *f = calloc(1, sizeof(*f));

    if (!f)
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    (void)snprintf(f->name, sizeof(f->name), "%.*s", NAME_SIZE - 1, name);
    f->bytes = bytes;
    build_files_use(all, f, used);
    f->next = all->files;
    all->files = f;
    return ERR_OK;
}

/* -- the start and the end --------------------------------------------------------------------- */

/* Scans the files of an earlier cayd: archives stay, incomplete ones are removed. */
static enum err_code scan(struct build_files *all, struct err *e)
{
    int fd = openat(all->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    enum err_code code = ERR_OK;
    struct dirent *one;
    struct stat st;

    if (!dir) {
        util_close(&fd);
        return err_set_sys(e, ERR_INTERNAL, errno, "reading the directory of builds' archives");
    }
    while (code == ERR_OK && (one = readdir(dir))) {
        if (build_files_is_hex(one->d_name, NAME_SIZE - 1) &&
            fstatat(all->dir_fd, one->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
            code = enter(all, one->d_name, (uint64_t)st.st_size, (int64_t)st.st_mtime * 1000, e);
        else if (build_files_is_hex(one->d_name, TEMP_SIZE - 1))
            (void)unlinkat(all->dir_fd, one->d_name, 0);
    }
    closedir(dir);
    return code;
}

enum err_code build_files_init(struct core *c, struct err *e)
{
    struct build_files *all = calloc(1, sizeof(*all));
    CLEANUP_FREE char *path = NULL;

    if (!all || asprintf(&path, "%s/%s", c->config.state_dir, DIRECTORY) < 0) {
        free(all);
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    }
    c->build_files = all;
    all->core = c;
    all->sweep.fire = on_sweep;
    all->dir_fd = -1;
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return err_set_sys(e, ERR_INTERNAL, errno, "making %s", path);
    all->dir_fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (all->dir_fd < 0)
        return err_set_sys(e, ERR_INTERNAL, errno, "opening %s", path);
    if (scan(all, e) != ERR_OK)
        return e->code;
    on_sweep(&all->sweep);
    return ERR_OK;
}

void build_files_free(struct core *c)
{
    struct build_files *all = c->build_files;
    struct build_file *next;

    if (!all)
        return;
    timers_cancel(&c->timers, &all->sweep);
    while (all->uploads)
        build_files_remove_upload(all, all->uploads);
    for (struct build_file *f = all->files; f; f = next) {
        next = f->next;
        free(f);
    }
    util_close(&all->dir_fd);
    free(TAKE_PTR(c->build_files));
}

/* -- reading ----------------------------------------------------------------------------------- */

static enum err_code check_hash(const char *hash, struct err *e)
{
    return build_files_is_hex(hash, CORE_BUILD_HASH_MAX)
               ? ERR_OK
               : err_set(e, ERR_INVALID, "the hash of files has to be %u hex digits",
                         CORE_BUILD_HASH_MAX);
}

enum err_code core_build_file_present(struct core *c, const char *tenant, const char *hash,
                                      bool *present, struct err *e)
{
    char owner[OWNER_LEN + 1], name[NAME_SIZE];
    struct build_file *f;

    if (check_hash(hash, e) != ERR_OK)
        return e->code;
    build_files_sweep(c->build_files);
    build_files_owner(tenant, owner);
    build_files_name(owner, hash, name);
    f = build_files_find(c->build_files, name);
    if (f)
        build_files_use(c->build_files, f, clock_real_ms());
    *present = f != NULL;
    return ERR_OK;
}

int build_file_open(struct core *c, const char *tenant, const char *hash)
{
    char owner[OWNER_LEN + 1], name[NAME_SIZE];
    struct build_file *f;
    int fd;

    if (!build_files_is_hex(hash, CORE_BUILD_HASH_MAX))
        return -ENOENT;
    build_files_owner(tenant, owner);
    build_files_name(owner, hash, name);
    f = build_files_find(c->build_files, name);
    if (!f)
        return -ENOENT;
    build_files_use(c->build_files, f, clock_real_ms());
    fd = openat(c->build_files->dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* -- receiving --------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp((*(struct build_file *const *)a)->name, (*(struct build_file *const *)b)->name);
}

/* Of n files by name, so each owner's in a row: the oldest of the owner with most bytes, who has
 * *most. */
static struct build_file *oldest_of_largest(struct build_file *const *files, size_t n,
                                            uint64_t *most)
{
    struct build_file *chosen = files[0], *oldest = files[0];
    uint64_t bytes = 0;

    *most = 0;
    for (size_t i = 0; i < n; i++) {
        if (strncmp(files[i]->name, oldest->name, OWNER_LEN) != 0) {
            oldest = files[i];
            bytes = 0;
        }
        bytes += files[i]->bytes;
        if (is_older(files[i], oldest))
            oldest = files[i];
        if (bytes > *most) {
            *most = bytes;
            chosen = oldest;
        }
    }
    return chosen;
}

/* NULL: there are none, or no memory to look. */
static struct build_file *largest_gives(const struct build_files *all, uint64_t *most)
{
    CLEANUP_FREE struct build_file **files = NULL;
    size_t n = 0;

    for (struct build_file *f = all->files; f; f = f->next)
        n++;
    files = n ? calloc(n, sizeof(struct build_file *)) : NULL;
    if (!files)
        return NULL;
    n = 0;
    for (struct build_file *f = all->files; f; f = f->next)
        files[n++] = f;
    qsort(files, n, sizeof(struct build_file *), by_name);
    return oldest_of_largest(files, n, most);
}

/* Where all tenants hold more than they may together, archives of the one that holds most go, its
 * oldest first. Where that is no more than this owner would have with what it sends, `mine`, its
 * own go instead. */
static struct build_file *who_gives_way(const struct build_files *all, const char *owner,
                                        uint64_t mine)
{
    uint64_t most = 0, bytes;
    struct build_file *f = largest_gives(all, &most);
    size_t n;

    return most > mine ? f : oldest_of(all, owner, &n, &bytes);
}

static bool share_space(struct build_files *all, const char *owner, uint64_t receiving,
                        uint64_t mine)
{
    struct build_file *f;
    uint64_t bytes = receiving;

    for (f = all->files; f; f = f->next)
        bytes += f->bytes;
    while (bytes > CORE_BUILD_FILES_ALL && (f = who_gives_way(all, owner, mine))) {
        bytes -= f->bytes;
        remove_file(all, f);
    }
    return bytes <= CORE_BUILD_FILES_ALL;
}

/* Those in parts of which none is just coming may belong to a client that is gone: the oldest. */
static void drop_left_one(struct build_files *all, const char *owner)
{
    struct upload *oldest = NULL;

    for (struct upload *u = all->uploads; u; u = u->next)
        if (u->parts && u->parts_written == 0 && strncmp(u->name, owner, OWNER_LEN) == 0)
            oldest = u;
    if (oldest)
        build_files_remove_upload(all, oldest);
}

static unsigned count_uploads(const struct build_files *all, const char *owner)
{
    unsigned n = 0;

    for (const struct upload *u = all->uploads; u; u = u->next)
        n += strncmp(u->name, owner, OWNER_LEN) == 0;
    return n;
}

/* An archive that is being received counts with the largest size that it may have. */
static enum err_code check_space(struct build_files *all, const char *owner, struct err *e)
{
    uint64_t receiving = CORE_BUILD_FILE_MAX, mine; /* with this one */
    unsigned n;
    size_t files;

    build_files_sweep(all);
    if (count_uploads(all, owner) >= CORE_BUILD_UPLOADS)
        drop_left_one(all, owner);
    n = count_uploads(all, owner);
    for (struct upload *u = all->uploads; u; u = u->next)
        receiving += CORE_BUILD_FILE_MAX;
    (void)oldest_of(all, owner, &files, &mine);
    if (n >= CORE_BUILD_UPLOADS)
        return err_set(e, ERR_EXHAUSTED,
                       "%u archives of this tenant are being received: %u at a "
                       "time; wait for one to end",
                       n, CORE_BUILD_UPLOADS);
    if (!share_space(all, owner, receiving, mine + (n + 1) * (uint64_t)CORE_BUILD_FILE_MAX))
        return err_set(e, ERR_NO_SPACE,
                       "the server holds as many archives of builds as it may, and no tenant has "
                       "more than this one would");
    return ERR_OK;
}

static enum err_code open_temp(struct build_files *all, struct upload *u, int *fd, struct err *e)
{
    uint8_t raw[TEMP_SIZE / 2];

    ids_random_bytes(raw, sizeof(raw));
    ids_hex(raw, sizeof(raw), u->temp);
    *fd = openat(all->dir_fd, u->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (*fd < 0)
        return err_set_sys(e, ERR_INTERNAL, errno, "making a file for what is sent");
    if (core_build_upload_space(*fd, e) == ERR_OK)
        return ERR_OK;
    (void)unlinkat(all->dir_fd, u->temp, 0);
    util_close(fd);
    return e->code;
}

enum err_code build_files_receive(struct core *c, const char *owner, const char *hash,
                                  struct upload **out, int *fd, struct err *e)
{
    struct build_files *all = c->build_files;
    struct upload *u;

    if (check_space(all, owner, e) != ERR_OK)
        return e->code;
    u = calloc(1, sizeof(*u));
    if (!u)
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    if (open_temp(all, u, fd, e) != ERR_OK) {
        free(u);
        return e->code;
    }
    build_files_name(owner, hash, u->name);
    u->number = ++all->last;
    u->until_real_ms = clock_real_ms() + CORE_BUILD_UPLOAD_MS;
    u->next = all->uploads;
    all->uploads = u;
    *out = u;
    return ERR_OK;
}

enum err_code core_build_upload_begin(struct core *c, const char *hash, const char *token,
                                      struct core_build_upload *out, struct err *e)
{
    char owner[OWNER_LEN + 1];
    struct upload *u = NULL;

    if (check_hash(hash, e) != ERR_OK ||
        build_files_read_token(c, hash, token, owner, e) != ERR_OK ||
        build_files_receive(c, owner, hash, &u, &out->fd, e) != ERR_OK)
        return e->code;
    out->number = u->number;
    out->most_bytes = CORE_BUILD_FILE_MAX;
    return ERR_OK;
}

enum err_code build_files_keep(struct build_files *all, const struct upload *u, uint64_t bytes,
                               struct err *e)
{
    struct build_file *old = build_files_find(all, u->name);

    if (old)
        remove_file(all, old);
    make_room(all, u->name, bytes);
    if (renameat(all->dir_fd, u->temp, all->dir_fd, u->name) < 0)
        return err_set_sys(e, ERR_INTERNAL, errno, "keeping what was sent");
    if (enter(all, u->name, bytes, clock_real_ms(), e) != ERR_OK)
        (void)unlinkat(all->dir_fd, u->name, 0);
    return e->code;
}

enum err_code core_build_upload_end(struct core *c, uint64_t number, uint64_t bytes, bool whole,
                                    struct err *e)
{
    struct upload *u = c->build_files->uploads;
    enum err_code code = ERR_OK;

    e->code = ERR_OK;
    while (u && (u->number != number || u->parts))
        u = u->next;
    if (!u)
        return err_set(e, ERR_TIMEOUT, "it took too long to send the files");
    if (whole)
        code = build_files_keep(c->build_files, u, bytes, e);
    build_files_remove_upload(c->build_files, u);
    return code;
}
