/* CRIU's files begin with two numbers, which say what they are, and go on with messages of
 * protobuf's, each after its length (criu's images/ has their fields). The image was sealed, so
 * that it is the one that was dumped; but a fault in a dump is not to become a sandbox with a
 * process in which something is missing. Runs as the sandbox's root, without a right on the
 * host. */

#include "checkpoint/criu_image.h"

#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAGIC_COMMON  0x54564319u
#define MAGIC_PSTREE  0x50273030u
#define MAGIC_CORE    0x55053847u
#define MAGIC_MM      0x57492820u
#define MAGIC_PAGEMAP 0x56084025u
#define HEAD_SIZE     8

/* Fields, by their numbers in CRIU's definitions. */
#define PSTREE_PID      1
#define PSTREE_PPID     2
#define PSTREE_THREAD   5
#define CORE_TC         3
#define TC_STATE        1
#define TASK_STATE_DEAD 2 /* a zombie, which has no memory */

#define WIRE_NUMBER 0
#define WIRE_64     1
#define WIRE_BYTES  2
#define WIRE_32     5

/* -- protobuf ---------------------------------------------------------------------------------- */

static int take_number(const uint8_t **at, size_t *n, uint64_t *out)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64 && *n > 0; shift += 7) {
        uint8_t byte = **at;

        (*at)++;
        (*n)--;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *out = value;
            return 0;
        }
    }
    return -EBADMSG;
}

static int skip(const uint8_t **at, size_t *n, size_t bytes)
{
    if (bytes > *n)
        return -EBADMSG;
    *at += bytes;
    *n -= bytes;
    return 0;
}

int criu_image_next_field(const uint8_t **at, size_t *n, struct criu_image_field *out)
{
    struct criu_image_field f = {0};
    uint64_t key, length = 0;
    int rc;

    if (*n == 0)
        return 0;
    if (take_number(at, n, &key) < 0 || key >> 3 == 0 || key >> 3 > UINT32_MAX)
        return -EBADMSG;
    f.number = (uint32_t)(key >> 3);
    switch (key & 7) {
    case WIRE_NUMBER: rc = take_number(at, n, &f.value); break;
    case WIRE_BYTES:
        rc = take_number(at, n, &length);
        f.bytes = *at;
        f.n = (size_t)length;
        if (rc == 0)
            rc = skip(at, n, f.n);
        break;
    case WIRE_64: rc = skip(at, n, 8); break;
    case WIRE_32: rc = skip(at, n, 4); break;
    default: rc = -EBADMSG;
    }
    if (rc < 0)
        return rc;
    *out = f;
    return 1;
}

/* -- files ------------------------------------------------------------------------------------- */

struct file {
    uint8_t *bytes;
    const uint8_t *at; /* the next message's length */
    size_t n;          /* bytes that are left */
};

static void file_close(struct file *f)
{
    free(f->bytes);
}

static int check_head(const uint8_t *head, uint32_t magic)
{
    uint32_t found[2];

    memcpy(found, head, sizeof(found));
    return found[0] == MAGIC_COMMON && found[1] == magic ? 0 : -EBADMSG;
}

static int read_all(int fd, off_t max, struct file *out)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_size < HEAD_SIZE || st.st_size > max)
        return -EBADMSG;
    out->n = (size_t)st.st_size;
    out->bytes = malloc(out->n);
    return out->bytes ? io_read_full(fd, out->bytes, out->n) : -ENOMEM;
}

static int file_open_long(int dir_fd, const char *name, uint32_t magic, off_t max, struct file *out)
{
    CLEANUP_CLOSE int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct file f = {0};
    int rc = fd < 0 ? -errno : read_all(fd, max, &f);

    if (rc == 0)
        rc = check_head(f.bytes, magic);
    if (rc < 0) {
        file_close(&f);
        return rc;
    }
    f.at = f.bytes + HEAD_SIZE;
    f.n -= HEAD_SIZE;
    *out = f;
    return 0;
}

static int file_open(int dir_fd, const char *name, uint32_t magic, struct file *out)
{
    return file_open_long(dir_fd, name, magic, CRIU_IMAGE_FILE_MAX, out);
}

/* 1; 0: there is none; -EBADMSG. */
static int next_message(struct file *f, const uint8_t **message, size_t *n)
{
    uint32_t length;

    if (f->n == 0)
        return 0;
    if (f->n < sizeof(length))
        return -EBADMSG;
    memcpy(&length, f->at, sizeof(length));
    f->at += sizeof(length);
    f->n -= sizeof(length);
    *message = f->at;
    *n = length;
    return skip(&f->at, &f->n, length) < 0 ? -EBADMSG : 1;
}

int criu_image_each(int dir_fd, const char *name, uint32_t magic,
                    int (*each)(void *arg, const uint8_t *message, size_t n), void *arg)
{
    CLEANUP(file_close) struct file f = {0};
    const uint8_t *message;
    size_t n;
    int more, rc = file_open_long(dir_fd, name, magic, CRIU_IMAGE_FILES_MAX, &f);

    if (rc < 0)
        return rc;
    while ((more = next_message(&f, &message, &n)) == 1)
        if ((rc = each(arg, message, n)) != 0)
            return rc;
    return more;
}

/* That it is there, of that kind, and has more than its head. */
static int check_there(int dir_fd, const char *format_name, uint32_t pid, uint32_t magic,
                       struct checkpoint_why *why)
{
    char name[48];
    uint8_t head[HEAD_SIZE + 1];

    snprintf(name, sizeof(name), "%s-%u.img", format_name, pid);
    CLEANUP_CLOSE int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    int rc = fd < 0 ? -errno : io_read_full(fd, head, sizeof(head));
    if (rc == 0)
        rc = check_head(head, magic);
    return rc < 0 ? checkpoint_fail(why, -EBADMSG, "the image has no %s that is whole", name) : 0;
}

/* -- processes --------------------------------------------------------------------------------- */

/* The first field of that number; false: there is none before the message's end or a fault. */
static bool find_field(const uint8_t *at, size_t n, uint32_t number, struct criu_image_field *out)
{
    while (criu_image_next_field(&at, &n, out) == 1)
        if (out->number == number)
            return true;
    return false;
}

/* Of a process: whether it has memory. */
static int read_state(int dir_fd, uint32_t pid, bool *has_memory)
{
    CLEANUP(file_close) struct file f = {0};
    struct criu_image_field tc, state;
    const uint8_t *message;
    size_t n;
    char name[32];

    snprintf(name, sizeof(name), "core-%u.img", pid);
    int rc = file_open(dir_fd, name, MAGIC_CORE, &f);
    if (rc < 0)
        return rc;
    if (next_message(&f, &message, &n) != 1 || !find_field(message, n, CORE_TC, &tc) || !tc.bytes ||
        !find_field(tc.bytes, tc.n, TC_STATE, &state) || state.bytes)
        return -EBADMSG;
    *has_memory = state.value != TASK_STATE_DEAD;
    return 0;
}

static int check_process(int dir_fd, uint32_t pid, bool *has_memory, struct checkpoint_why *why)
{
    if (read_state(dir_fd, pid, has_memory) < 0)
        return checkpoint_fail(why, -EBADMSG, "the image has no core-%u.img that is whole", pid);
    if (!*has_memory)
        return 0;
    int rc = check_there(dir_fd, "mm", pid, MAGIC_MM, why);
    return rc < 0 ? rc : check_there(dir_fd, "pagemap", pid, MAGIC_PAGEMAP, why);
}

static int check_entry(int dir_fd, const uint8_t *at, size_t n, bool first,
                       struct checkpoint_why *why)
{
    struct criu_image_field f, pid, ppid;
    bool has_memory = false;
    int rc, more;

    if (!find_field(at, n, PSTREE_PID, &pid) || !find_field(at, n, PSTREE_PPID, &ppid) ||
        pid.value == 0 || pid.value > INT32_MAX)
        return checkpoint_fail(why, -EBADMSG, "the image has a process without a number");
    if (first && (pid.value != 1 || ppid.value != 0))
        return checkpoint_fail(why, -EBADMSG, "the image does not begin with a PID 1");
    rc = check_process(dir_fd, (uint32_t)pid.value, &has_memory, why);
    /* The thread that CRIU notes of a zombie has no number: it did not set one. */
    while (rc == 0 && has_memory && (more = criu_image_next_field(&at, &n, &f)) != 0) {
        if (more < 0)
            return checkpoint_fail(why, -EBADMSG, "the image's list of processes is damaged");
        if (f.number == PSTREE_THREAD && f.value != pid.value)
            rc = check_there(dir_fd, "core", (uint32_t)f.value, MAGIC_CORE, why);
    }
    return rc;
}

int criu_image_check(int dir_fd, struct checkpoint_why *why)
{
    CLEANUP(file_close) struct file f = {0};
    const uint8_t *message;
    size_t n, count = 0;
    int more;
    int rc = file_open(dir_fd, "pstree.img", MAGIC_PSTREE, &f);

    if (rc < 0)
        return checkpoint_fail(why, rc, "the image has no list of processes that is whole");
    while ((more = next_message(&f, &message, &n)) == 1) {
        if (count == CRIU_IMAGE_PROCESSES_MAX)
            return checkpoint_fail(why, -E2BIG, "the image has more than %u processes",
                                   CRIU_IMAGE_PROCESSES_MAX);
        rc = check_entry(dir_fd, message, n, count++ == 0, why);
        if (rc < 0)
            return rc;
    }
    if (more < 0 || count == 0)
        return checkpoint_fail(why, -EBADMSG, "the image's list of processes is damaged");
    return 0;
}
