/* Files of a directory to a sealed stream and back (pack.h). Contents of files are not parsed:
 * buffers go from the one side to the other. A failure says which file, or which piece of the
 * sealed file and where that lies in it, so that a disk's fault can be told from another's file. */

#include "seal/pack.h"

#include "base/io.h"
#include "base/util.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define COPY_BYTES SEAL_PIECE_BYTES

PRINTF(3, 4) static int fail(struct pack_why *why, int rc, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(why->text, sizeof(why->text), format, args);
    va_end(args);
    return rc;
}

bool pack_is_name(const char *name)
{
    size_t n = strnlen(name, PACK_NAME_MAX + 1);

    if (n == 0 || n > PACK_NAME_MAX || name[0] == '.' || name[n - 1] == '.')
        return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr("_-.", name[i]))
            return false;
    return true;
}

/* -- writing ----------------------------------------------------------------------------------- */

struct packing {
    struct seal *seal;
    int dir_fd;
    uint64_t files;
    int rc;
    struct pack_why *why;
    uint8_t bytes[COPY_BYTES];
};

static int write_failed(struct packing *p, const char *name, int rc)
{
    if (rc == -EFBIG)
        return fail(p->why, rc, "the image would be larger than it may be");
    return fail(p->why, rc, "writing the sealed file, at %.63s: %s", name, strerror(-rc));
}

/* As long as it was when it was opened: a file that changes meanwhile is not whole. */
static int copy_out(struct packing *p, int fd, const char *name, uint64_t left)
{
    while (left > 0) {
        ssize_t n = io_read_some(fd, p->bytes, (size_t)MIN(left, (uint64_t)sizeof(p->bytes)));
        int rc;

        if (n <= 0)
            return fail(p->why, n < 0 ? (int)n : -EIO, "%.63s became shorter", name);
        rc = seal_write(p->seal, p->bytes, (size_t)n);
        if (rc < 0)
            return write_failed(p, name, rc);
        left -= (uint64_t)n;
    }
    return 0;
}

static int write_file(struct packing *p, const char *name)
{
    struct pack_head head = {0};
    struct stat st;
    int rc;

    if (!pack_is_name(name))
        return fail(p->why, -EINVAL, "a file of the image has a name that no image has");
    if (p->files == PACK_FILES_MAX)
        return fail(p->why, -E2BIG, "the image has more than %u files", PACK_FILES_MAX);
    CLEANUP_CLOSE int fd = openat(p->dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return fail(p->why, -errno, "opening %.63s: %s", name, strerror(errno));
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return fail(p->why, -EINVAL, "%.63s is no regular file", name);
    head.size = (uint64_t)st.st_size;
    memcpy(head.name, name, strlen(name));
    rc = seal_write(p->seal, &head, sizeof(head));
    if (rc < 0)
        return write_failed(p, name, rc);
    p->files++;
    return copy_out(p, fd, name, head.size);
}

static bool each_file(void *arg, const char *name)
{
    struct packing *p = arg;

    p->rc = write_file(p, name);
    return p->rc == 0;
}

int pack_write(struct seal *s, int dir_fd, struct pack_why *why)
{
    struct packing p = {.seal = s, .dir_fd = dir_fd, .why = why};
    struct pack_head end = {0};
    int rc = io_each_name_at(dir_fd, ".", each_file, &p);

    if (p.rc < 0)
        return p.rc;
    if (rc < 0)
        return fail(why, rc, "reading the names of the image: %s", strerror(-rc));
    end.size = p.files;
    rc = seal_write(s, &end, sizeof(end));
    return rc < 0 ? write_failed(&p, "its end", rc) : 0;
}

/* -- reading ----------------------------------------------------------------------------------- */

static int read_failed(const struct packing *p, int rc)
{
    uint64_t number = p->seal->number;

    if (rc == -EBADMSG)
        return fail(p->why, rc, "the image is damaged: piece %" PRIu64 ", from byte %" PRIu64 " on",
                    number, seal_piece_at(number));
    if (rc == -ENODATA)
        return fail(p->why, -EBADMSG, "the image ends too early");
    return fail(p->why, rc, "reading the sealed file, piece %" PRIu64 ": %s", number,
                strerror(-rc));
}

/* A head that was authenticated was written by pack_write; it is looked at all the same. */
static int read_file(struct packing *p, const struct pack_head *head)
{
    if (!memchr(head->name, '\0', sizeof(head->name)) || !pack_is_name(head->name) ||
        p->files == PACK_FILES_MAX)
        return fail(p->why, -EINVAL, "the image is none of cay's");
    CLEANUP_CLOSE int fd = openat(p->dir_fd, head->name,
                                  O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return fail(p->why, -errno, "making %.63s: %s", head->name, strerror(errno));
    p->files++;
    bool of_file;
    int rc = seal_read_to(p->seal, fd, head->size, &of_file);
    if (rc == 0)
        return 0;
    return of_file ? fail(p->why, rc, "writing %.63s: %s", head->name, strerror(-rc))
                   : read_failed(p, rc);
}

static int read_all(struct packing *p)
{
    struct pack_head head;
    int rc;

    while ((rc = seal_read(p->seal, &head, sizeof(head))) == 0 && head.name[0] != '\0') {
        rc = read_file(p, &head);
        if (rc < 0)
            return rc;
    }
    if (rc == 0)
        rc = seal_read_end(p->seal);
    if (rc < 0)
        return read_failed(p, rc);
    return head.size == p->files ? 0 : fail(p->why, -EINVAL, "the image is none of cay's");
}

static bool found(void *arg, const char *name UNUSED)
{
    bool *any = arg;

    *any = true;
    return false;
}

/* All that is there: it was empty. */
static bool remove_file(void *arg, const char *name)
{
    const struct packing *p = arg;

    (void)unlinkat(p->dir_fd, name, 0);
    return true;
}

int pack_read(struct seal *s, int dir_fd, struct pack_why *why)
{
    struct packing p = {.seal = s, .dir_fd = dir_fd, .why = why};
    bool any = false;
    int rc = io_each_name_at(dir_fd, ".", found, &any);

    if (rc < 0)
        return fail(why, rc, "reading the names of the directory: %s", strerror(-rc));
    if (any)
        return fail(why, -ENOTEMPTY, "the image's directory is not empty");
    rc = read_all(&p);
    if (rc < 0)
        (void)io_each_name_at(dir_fd, ".", remove_file, &p);
    return rc;
}
