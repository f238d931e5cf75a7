/* An archive in the bucket and back. Whatever ends at whatever moment:
 *
 * put: the key's file is on the disk before the object is sent, the mark before the archive is
 * emptied, so that there is an archive that is whole here, or one that is whole there; get: the
 * archive has no name before its hash is that of the mark, so that a job that is killed leaves
 * nothing; it takes its place in one step, and the mark goes after that. An object is live as long
 * as a kept layer has its mark, or its sender has its key's file locked; sweep removes the others.
 * Starts are refused while the mark is there (privd/sandbox.c). */

#include "job/bucket.h"

#include "base/ids.h"
#include "base/io.h"
#include "contract/archive.h"
#include "contract/bucket.h"
#include "job/bucket_request.h"
#include "job/say.h"
#include "sys/mnt.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>

#define COMING          ARCHIVE_FILE ".new"
#define MARK_SIZE       160
#define SPARE_BYTES     (UINT64_C(64) << 20)
#define BUCKET_SETTLE_S 60
#define BUCKET_KEYS_MAX 2048 /* twice the sandboxes: a bucket that removes nothing gets no more */
#define END_BYTES       4096u

struct mark {
    char key[BUCKET_KEY_CHARS + 1];
    char sha256[BUCKET_HASH_CHARS + 1];
    uint64_t bytes;
};

/* -- marks and keys ---------------------------------------------------------------------------- */

static bool is_key(const char *text)
{
    return strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789") == BUCKET_KEY_CHARS &&
           !text[BUCKET_KEY_CHARS];
}

/* -ENOENT: there is none. */
static int read_mark(int layer_fd, struct mark *out)
{
    char text[MARK_SIZE], end;
    ssize_t n = io_read_text_at(layer_fd, BUCKET_MARK, text, sizeof(text));

    if (n < 0)
        return (int)n;
    if (sscanf(text, "%32s %64s %" SCNu64 "%c", out->key, out->sha256, &out->bytes, &end) != 3 ||
        !is_key(out->key) || strlen(out->sha256) != BUCKET_HASH_CHARS ||
        out->bytes > 2 * ARCHIVE_BYTES_MAX)
        return -EBADMSG;
    return 0;
}

/* 1: there is one, 0: there is none, or a negative errno after the fault was said. */
static int find_mark(int layer_fd, struct mark *out)
{
    int rc = read_mark(layer_fd, out);

    if (rc == -ENOENT)
        return 0;
    return rc < 0 ? say_failure(-rc, "the mark of its object is damaged") : 1;
}

static int write_mark(int layer_fd, const struct mark *m)
{
    char text[MARK_SIZE];
    int n = snprintf(text, sizeof(text), "%s %s %" PRIu64 "\n", m->key, m->sha256, m->bytes);
    int rc = io_replace_file_at(layer_fd, BUCKET_MARK, text, (size_t)n, 0600);

    return rc < 0 ? rc : fsync(layer_fd) < 0 ? -errno : 0;
}

static int open_keys(void)
{
    if (mkdir("../" BUCKET_DIR, 0700) < 0 && errno != EEXIST)
        return -errno;
    int fd = open("../" BUCKET_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static bool count_key(void *arg, const char *name)
{
    return ++*(unsigned *)arg < BUCKET_KEYS_MAX;
}

/* The file of a new key, locked, and on the disk. */
static int make_key(char key[static BUCKET_KEY_CHARS + 1])
{
    CLEANUP_CLOSE int keys = open_keys();
    unsigned n = 0;
    int rc = keys < 0 ? keys : io_each_name_at(keys, ".", count_key, &n);

    if (rc < 0)
        return rc;
    if (n >= BUCKET_KEYS_MAX)
        return -EDQUOT;
    ids_random_text(key, BUCKET_KEY_CHARS);
    CLEANUP_CLOSE int fd = openat(keys, key, O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 || fsync(fd) < 0 || fsync(keys) < 0)
        return -errno;
    return TAKE_FD(fd);
}

static int open_layer(uint32_t number)
{
    char path[40];

    snprintf(path, sizeof(path), "../kept/%u", number);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? say_failure(ENOENT, "there are no such files") : fd;
}

/* -- there ------------------------------------------------------------------------------------- */

/* Its blocks are free from here on. */
static int empty_archive(int layer_fd)
{
    CLEANUP_CLOSE int fd = mnt_open_beneath(layer_fd, ARCHIVE_FILE, O_WRONLY, 0);

    if (fd < 0)
        return say_failure(-fd, "the archive is not there");
    if (ftruncate(fd, 0) < 0 || fsync(fd) < 0)
        return say_failure(errno, "the archive keeps its room: %s", strerror(errno));
    return 0;
}

/* Whether the object ends as the archive does: whatever answers 200 to a PUT may be no bucket. The
 * end is of MACs, which nothing else has. */
static int compare_end(int archive_fd, const struct mark *m)
{
    size_t bytes = (size_t)MIN(m->bytes, (uint64_t)END_BYTES);
    CLEANUP_CLOSE int fd = memfd_create("cay-bucket", MFD_CLOEXEC);
    const struct bucket_request r = {
        .method = BUCKET_GET_END, .key = m->key, .layer_fd = -1, .to_fd = fd, .bytes = bytes};
    char here[END_BYTES], there[END_BYTES];
    struct bucket_why why;

    if (fd < 0)
        return say_failure(errno, "its archive stays here: %s", strerror(errno));
    int rc = bucket_request(&r, &why);
    if (rc < 0)
        return say_failure(-rc, "its archive stays here: the bucket has taken it, but %s",
                           why.text);
    if (pread(archive_fd, here, bytes, (off_t)(m->bytes - bytes)) != (ssize_t)bytes ||
        pread(fd, there, bytes, 0) != (ssize_t)bytes || memcmp(here, there, bytes) != 0)
        return say_failure(EBADMSG, "its archive stays here: the bucket has taken it, but has "
                                    "something else");
    return 0;
}

static int send_archive(int layer_fd, struct mark *m)
{
    CLEANUP_CLOSE int fd = mnt_open_beneath(layer_fd, ARCHIVE_FILE, O_RDONLY, 0);
    struct bucket_request r = {.method = BUCKET_PUT, .key = m->key, .layer_fd = layer_fd};
    struct bucket_why why;
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return say_failure(ENOENT, "there is no archive");
    r.bytes = m->bytes = (uint64_t)st.st_size;
    if (bucket_hash(fd, m->sha256) < 0)
        return say_failure(EIO, "the archive cannot be read");
    r.sha256 = m->sha256;
    int rc = bucket_request(&r, &why);
    return rc < 0 ? say_failure(-rc, "its archive stays here: %s", why.text) : compare_end(fd, m);
}

static bool see(void *arg, const char *name)
{
    *(bool *)arg = false;
    return false;
}

/* Each start puts names there: files written since lie above the archive, and stay here. */
static int refuse_woken(int layer_fd)
{
    bool empty = true;
    int rc = io_each_name_at(layer_fd, "root/etc", see, &empty);

    if (rc == 0 && empty)
        return 0;
    return say_failure(EALREADY, "it was archived before: its archive lies below what it wrote "
                                 "since, and stays");
}

int bucket_put(uint32_t number)
{
    CLEANUP_CLOSE int layer = open_layer(number);
    struct mark m;

    if (layer < 0)
        return layer;
    int rc = find_mark(layer, &m);
    if (rc > 0) /* an earlier job ended just after it */
        return empty_archive(layer);
    if (rc == 0)
        rc = refuse_woken(layer);
    if (rc < 0)
        return rc;
    CLEANUP_CLOSE int lock = make_key(m.key);
    if (lock == -EDQUOT)
        return say_failure(EDQUOT,
                           "its archive stays here: %d objects are in the bucket or wait to be "
                           "removed there",
                           BUCKET_KEYS_MAX);
    if (lock < 0)
        return say_failure(-lock, "no key for its object: %s", strerror(-lock));
    rc = send_archive(layer, &m);
    if (rc < 0)
        return rc;
    rc = write_mark(layer, &m);
    return rc < 0 ? say_failure(-rc, "no mark for its object: %s", strerror(-rc))
                  : empty_archive(layer);
}

/* -- and back ---------------------------------------------------------------------------------- */

static int refuse_space(int layer_fd, const struct mark *m)
{
    struct statvfs fs;

    if (fstatvfs(layer_fd, &fs) < 0)
        return say_failure(errno, "the room of the state disk cannot be told");
    if ((uint64_t)fs.f_bavail * fs.f_frsize < m->bytes + SPARE_BYTES)
        return say_failure(ENOSPC,
                           "the state disk has less room than the %" PRIu64 " MiB of its "
                           "archive",
                           m->bytes >> 20);
    return 0;
}

/* It is the object that was sent, to the bit. */
static int check_archive(int fd, const struct mark *m)
{
    char sha256[BUCKET_HASH_CHARS + 1];
    struct stat st;

    if (fstat(fd, &st) < 0)
        return say_failure(errno, "the object cannot be read");
    if ((uint64_t)st.st_size != m->bytes)
        return say_failure(EBADMSG, "the object has %lld bytes, and %" PRIu64 " were stored",
                           (long long)st.st_size, m->bytes);
    if (bucket_hash(fd, sha256) < 0)
        return say_failure(EIO, "the object cannot be read");
    if (strcmp(sha256, m->sha256) != 0)
        return say_failure(EBADMSG, "the object is not what was stored: its SHA-256 differs");
    return fsync(fd) < 0 ? say_failure(errno, "the object is not on the disk: %s", strerror(errno))
                         : 0;
}

/* An earlier job may have ended between its two steps. */
static int put_in_place(int layer_fd, int fd)
{
    char path[40];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (unlinkat(layer_fd, COMING, 0) < 0 && errno != ENOENT)
        return -errno;
    if (linkat(AT_FDCWD, path, layer_fd, COMING, AT_SYMLINK_FOLLOW) < 0 ||
        renameat(layer_fd, COMING, layer_fd, ARCHIVE_FILE) < 0 || fsync(layer_fd) < 0 ||
        unlinkat(layer_fd, BUCKET_MARK, 0) < 0 || fsync(layer_fd) < 0)
        return -errno;
    return 0;
}

static int fetch_archive(int layer_fd, const struct mark *m)
{
    CLEANUP_CLOSE int fd = openat(layer_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    struct bucket_request r = {
        .method = BUCKET_GET, .key = m->key, .layer_fd = -1, .to_fd = fd, .bytes = m->bytes};
    struct bucket_why why;

    if (fd < 0)
        return say_failure(errno, "no file for its archive: %s", strerror(errno));
    int rc = bucket_request(&r, &why);
    if (rc < 0)
        return say_failure(rc == -EFBIG ? EBADMSG : -rc, "its archive cannot be fetched: %s",
                           why.text);
    rc = check_archive(fd, m);
    if (rc < 0)
        return rc;
    rc = put_in_place(layer_fd, fd);
    return rc < 0 ? say_failure(-rc, "its archive cannot take its place: %s", strerror(-rc)) : 0;
}

int bucket_get(uint32_t number)
{
    CLEANUP_CLOSE int layer = open_layer(number);
    struct mark m;

    if (layer < 0)
        return layer;
    int rc = find_mark(layer, &m);
    if (rc <= 0)
        return rc;
    rc = refuse_space(layer, &m);
    return rc < 0 ? rc : fetch_archive(layer, &m);
}

/* -- objects without a layer ------------------------------------------------------------------- */

struct sweep {
    const char *key;
    bool live;
    int failure; /* of the last that could not be removed */
    int keys_fd;
    struct bucket_why why;
};

static bool check_layer(void *arg, const char *name)
{
    struct sweep *s = arg;
    char path[40];
    struct mark m;

    snprintf(path, sizeof(path), "../kept/%.12s", name);
    CLEANUP_CLOSE int layer = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int rc = layer < 0 ? -errno : read_mark(layer, &m);
    /* A mark that cannot be read may be any object's. */
    s->live = rc == 0 ? strcmp(m.key, s->key) == 0 : rc != -ENOENT;
    return !s->live;
}

/* A server may have all of an object whose sender has ended, and store it after this: the key stays
 * until that cannot be. */
static int forget_key(const struct sweep *s, int key_fd)
{
    struct stat st;

    if (fstat(key_fd, &st) < 0)
        return -errno;
    if (time(NULL) - st.st_mtime < BUCKET_SETTLE_S)
        return -EAGAIN;
    return unlinkat(s->keys_fd, s->key, 0) < 0 || fsync(s->keys_fd) < 0 ? -errno : 0;
}

static int remove_object(struct sweep *s, int key_fd)
{
    const struct bucket_request r = {
        .method = BUCKET_DELETE, .key = s->key, .layer_fd = -1, .to_fd = -1};
    int rc = bucket_request(&r, &s->why);

    return rc < 0 ? rc : forget_key(s, key_fd);
}

/* After a failure the others are not tried: they are the same server's. */
static bool sweep_one(void *arg, const char *name)
{
    struct sweep *s = arg;

    if (!is_key(name))
        return true;
    CLEANUP_CLOSE int fd = openat(s->keys_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
        return true; /* it is just being sent */
    s->key = name;
    s->live = false;
    int rc = io_each_name_at(AT_FDCWD, "../kept", check_layer, s);
    if (rc == 0 && !s->live)
        rc = remove_object(s, fd);
    s->failure = rc < 0 ? rc : s->failure;
    return rc == 0 || rc == -EAGAIN;
}

int bucket_sweep(uint32_t number)
{
    CLEANUP_CLOSE int keys = open_keys();
    struct sweep s = {.keys_fd = keys};
    int rc = keys < 0 ? keys : io_each_name_at(keys, ".", sweep_one, &s);

    if (rc == 0)
        rc = s.failure;
    if (rc == -EAGAIN)
        return say_again("objects that were sent just now are looked for once more");
    return rc < 0 ? say_failure(-rc, "objects without a sandbox are left in the bucket: %s",
                                s.why.text[0] ? s.why.text : strerror(-rc))
                  : 0;
}
