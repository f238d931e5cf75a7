/* Snapshots as files for other servers (contract/exchange.h), in cay-privd's tasks. Another holder
 * of the key made such a file as this server would, so that the kernel parses no byte of SquashFS
 * that was not written by cay with the key: it is mounted as an archive, under the own MACs, which
 * it gets once cay-seal has found those of the key right. Between the one and the other nothing
 * can write: the copy is root's, in a directory that no mount shows. */

#include "contract/exchange.h"

#include "base/io.h"
#include "base/util.h"
#include "runtime/memory_image.h"
#include "runtime/state.h"
#include "sys/mnt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#define OS_RELEASE       "usr/lib/os-release"
#define OS_RELEASE_BYTES 4096
#define PATH_SIZE        64

static int open_new(const struct runtime *rt, uint32_t number)
{
    const struct disk *d = &rt->disk;

    return d->backend->archive_open_new ? d->backend->archive_open_new(d, number) : -EOPNOTSUPP;
}

/* key: the one that servers share. */
static int run_seal(const struct runtime *rt, const char *what, bool key, int file_fd,
                    char why[static TASK_WHY_SIZE])
{
    uint32_t uid = runtime_slot_uid(rt, 0);
    CLEANUP_CLOSE int nothing = rt->seal_path ? memory_image_dir(uid, 1 << 20) : -EOPNOTSUPP;

    if (nothing < 0)
        return nothing;
    if (key)
        return memory_image_sign_exchange(rt, what, rt->exchange_key, uid, nothing, file_fd,
                                          2 * ARCHIVE_BYTES_MAX, why);
    return memory_image_sign(rt, what, "cay archive 1", uid, nothing, file_fd,
                             2 * ARCHIVE_BYTES_MAX, why);
}

/* -- which system a template is ---------------------------------------------------------------- */

/* The value of a line of os-release, without its quotes; "" where there is none. */
static void find_value(const char *text, const char *name, char *out, size_t size)
{
    size_t n = strlen(name);

    out[0] = '\0';
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, n) != 0)
            continue;
        line += n;
        line += *line == '"';
        snprintf(out, size, "%.*s", (int)strcspn(line, "\"\n"), line);
        return;
    }
}

/* Of those that are of no image, whose files no digest names: layers of Debian 12 above the files
 * of another system are neither. These trees are root's. "" where it cannot be told. */
static void read_system(const struct runtime *rt, uint32_t template_number,
                        char out[static EXCHANGE_SYSTEM_SIZE])
{
    char path[PATH_SIZE], text[OS_RELEASE_BYTES], id[24], version[24];
    bool host = template_number == PRIVSEP_TEMPLATE_HOST;

    memset(out, 0, EXCHANGE_SYSTEM_SIZE);
    if (!host && template_number != PRIVSEP_TEMPLATE_BASE)
        return;
    snprintf(path, sizeof(path), "%u/rootfs/" OS_RELEASE, template_number);
    if (io_read_text_at(host ? AT_FDCWD : rt->disk.templates_fd, host ? "/" OS_RELEASE : path, text,
                        sizeof(text)) < 0)
        return;
    find_value(text, "ID=", id, sizeof(id));
    find_value(text, "VERSION_ID=", version, sizeof(version));
    if (id[0] && version[0])
        snprintf(out, EXCHANGE_SYSTEM_SIZE, "%s %s", id, version);
    if (!exchange_is_text(out, EXCHANGE_SYSTEM_SIZE))
        memset(out, 0, EXCHANGE_SYSTEM_SIZE);
}

/* -- export ------------------------------------------------------------------------------------ */

struct export_args {
    const struct runtime *rt;
    uint32_t template_number;
    struct exchange_header header;
};

static int note_dirs(const struct runtime *rt, struct exchange_dir *dirs)
{
    for (size_t i = 0; i < EXCHANGE_DIRS; i++) {
        char path[PATH_SIZE];
        struct stat st;

        snprintf(path, sizeof(path), "%u/%s", EXCHANGE_EXPORT_NUMBER, exchange_dir_names[i]);
        CLEANUP_CLOSE int fd = mnt_open_beneath(rt->disk.archiving_fd, path, O_PATH | O_DIRECTORY,
                                                0);
        if (fd < 0 || fstat(fd, &st) < 0)
            return fd < 0 ? fd : -errno;
        dirs[i] = (struct exchange_dir){.mode = st.st_mode & 07777,
                                        .uid = st.st_uid,
                                        .gid = st.st_gid,
                                        .changed_s = MIN(MAX(st.st_mtim.tv_sec, 0), UINT32_MAX)};
    }
    return 0;
}

static int add_header(const struct export_args *a, int file_fd)
{
    struct exchange_header h = a->header, checked;
    struct stat st;

    if (fstat(file_fd, &st) < 0)
        return -errno;
    h.magic = EXCHANGE_MAGIC;
    h.version = EXCHANGE_VERSION;
    h.bytes = (uint64_t)st.st_size;
    if (getrandom(h.nonce, sizeof(h.nonce), 0) != (ssize_t)sizeof(h.nonce))
        return -EIO;
    read_system(a->rt, a->template_number, h.system);
    int rc = note_dirs(a->rt, h.dirs);
    if (rc == 0)
        rc = exchange_parse(&h, &checked); /* none is written that no server would take */
    if (rc < 0)
        return rc;
    ssize_t n = pwrite(file_fd, &h, sizeof(h), st.st_size);
    return n == (ssize_t)sizeof(h) ? 0 : n < 0 ? -errno : -ENOSPC;
}

/* The descriptors that cayd gets can only be read, and the file is root's, so that it cannot be
 * opened anew. */
static int open_to_read(const struct runtime *rt, struct task_result *out)
{
    char path[PATH_SIZE];

    snprintf(path, sizeof(path), "%u/" ARCHIVE_FILE, EXCHANGE_EXPORT_NUMBER);
    for (out->n_fds = 0; out->n_fds < PRIVSEP_EXPORT_FDS; out->n_fds++) {
        int fd = mnt_open_beneath(rt->disk.archiving_fd, path, O_RDONLY, 0);

        if (fd < 0)
            return fd;
        out->fds[out->n_fds] = fd;
    }
    return 0;
}

static int sign_export(void *arg, struct task_result *out)
{
    const struct export_args *a = arg;
    CLEANUP_CLOSE int file = open_new(a->rt, EXCHANGE_EXPORT_NUMBER);
    int rc = file < 0 ? file : add_header(a, file);

    if (rc == 0)
        rc = run_seal(a->rt, "sign-exchange", true, file, out->why);
    if (rc == 0)
        rc = open_to_read(a->rt, out);
    if (rc == 0)
        rc = runtime_archive_undo(a->rt, EXCHANGE_EXPORT_NUMBER);
    if (rc < 0)
        out->n_fds = 0;
    return rc;
}

int runtime_export_begin(struct runtime *rt, uint32_t template_number,
                         const struct exchange_header *header, struct task *out)
{
    struct export_args args = {.rt = rt, .template_number = template_number, .header = *header};

    return rt->disk.backend->archive_put ? task_spawn(sign_export, &args, out) : -EOPNOTSUPP;
}

int runtime_export_finish(struct task *t, int out_fds[static PRIVSEP_EXPORT_FDS],
                          char why[static TASK_WHY_SIZE])
{
    struct task_result r;
    int rc = task_collect(t, &r);

    if (rc < 0)
        return rc;
    memcpy(why, r.why, TASK_WHY_SIZE);
    if (r.status == 0 && r.n_fds == PRIVSEP_EXPORT_FDS) {
        memcpy(out_fds, r.fds, PRIVSEP_EXPORT_FDS * sizeof(int));
        return 0;
    }
    for (uint32_t i = 0; i < r.n_fds; i++)
        close(r.fds[i]);
    return r.status < 0 ? r.status : -EIO;
}

/* -- import ------------------------------------------------------------------------------------ */

struct import_args {
    const struct runtime *rt;
    uint32_t number, template_number;
    int records_fd;
};

static int refuse_system(const struct import_args *a, const struct exchange_header *h,
                         char why[static TASK_WHY_SIZE])
{
    char here[EXCHANGE_SYSTEM_SIZE];

    read_system(a->rt, a->template_number, here);
    if (!h->system[0] || !here[0] || strcmp(h->system, here) == 0)
        return 0;
    snprintf(why, TASK_WHY_SIZE, "it lies on a template of %s, and this server's is of %s",
             h->system, here);
    return -ESTALE;
}

/* As the layers of archives have them (job/archive.c); the umask must not decide. */
static int make_dir(int layer_fd, const char *name, const struct exchange_dir *d)
{
    if (mkdirat(layer_fd, name, 0700) < 0)
        return -errno;
    CLEANUP_CLOSE int fd = mnt_open_beneath(layer_fd, name, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return fd;
    return fchown(fd, d->uid, d->gid) < 0 || fchmod(fd, d->mode) < 0 ? -errno : 0;
}

static int set_times(int layer_fd, const struct exchange_header *h)
{
    for (size_t i = 0; i < EXCHANGE_DIRS; i++) {
        const struct timespec at = {.tv_sec = (time_t)h->dirs[i].changed_s}, both[] = {at, at};

        if (utimensat(layer_fd, exchange_dir_names[i], both, AT_SYMLINK_NOFOLLOW) < 0)
            return -errno;
    }
    return 0;
}

static int make_dirs(int layer_fd, const struct exchange_header *h)
{
    static const struct exchange_dir work = {.mode = 0755};
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < EXCHANGE_DIRS; i++)
        rc = make_dir(layer_fd, exchange_dir_names[i], &h->dirs[i]);
    if (rc == 0)
        rc = make_dir(layer_fd, "root.work", &work);
    if (rc == 0)
        rc = make_dir(layer_fd, "usr.work", &work);
    return rc == 0 ? set_times(layer_fd, h) : rc;
}

/* The MACs were checked. */
static int make_whole(const struct import_args *a, int file_fd, char why[static TASK_WHY_SIZE])
{
    struct exchange_header h;
    char name[PATH_SIZE];
    int rc = exchange_read(file_fd, &h);

    if (rc < 0) {
        snprintf(why, TASK_WHY_SIZE, "it is of another version of cay");
        return rc == -EPROTO ? -EBADMSG : rc;
    }
    rc = refuse_system(a, &h, why);
    if (rc < 0)
        return rc;
    snprintf(name, sizeof(name), "%u", a->number);
    CLEANUP_CLOSE int layer = mnt_open_beneath(a->rt->disk.archiving_fd, name,
                                               O_RDONLY | O_DIRECTORY, 0);
    if (layer < 0)
        return layer;
    rc = make_dirs(layer, &h);
    return rc == 0 && ftruncate(file_fd, (off_t)h.bytes) < 0 ? -errno : rc;
}

static int check_and_put(void *arg, struct task_result *out)
{
    const struct import_args *a = arg;
    const struct disk *d = &a->rt->disk;
    CLEANUP_CLOSE int file = open_new(a->rt, a->number);

    if (file < 0)
        return file;
    int rc = run_seal(a->rt, "check-exchange", true, file, out->why);
    if (rc == 0)
        rc = make_whole(a, file, out->why);
    if (rc == 0)
        rc = run_seal(a->rt, "sign", false, file, out->why);
    if (rc == 0 && fdatasync(a->records_fd) < 0)
        rc = -errno;
    return rc == 0 ? d->backend->archive_put(d, a->number) : rc;
}

int runtime_import_begin(struct runtime *rt, uint32_t number, uint32_t template_number,
                         int records_fd, struct task *out)
{
    struct import_args args = {
        .rt = rt, .number = number, .template_number = template_number, .records_fd = records_fd};

    return rt->disk.backend->archive_put ? task_spawn(check_and_put, &args, out) : -EOPNOTSUPP;
}

int runtime_import_finish(struct task *t, char why[static TASK_WHY_SIZE])
{
    return task_collect_status(t, why);
}
