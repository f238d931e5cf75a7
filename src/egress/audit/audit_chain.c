#include "egress/audit/audit_chain.h"

#include "base/ids.h"
#include "base/util.h"
#include "http/digest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define TAIL_BYTES 65536 /* a line is far shorter */
#define PREV_KEY   "\"prev\":\""
#define SEQ_KEY    "\"seq\":"

void audit_hash(const char *line, size_t n, char out[static AUDIT_HASH_SIZE])
{
    unsigned char sum[DIGEST_SHA256_SIZE];

    digest_sha256(line, n, sum);
    ids_hex(sum, sizeof(sum), out);
}

/* "prev" is the last member, so that it is found without reading the line as JSON: a peer's text in
 * it has its quotes escaped. */
static const char *prev_of(const char *line, size_t n)
{
    size_t tail = strlen(PREV_KEY) + AUDIT_HASH_SIZE - 1 + 2;

    if (n < tail || line[0] != '{' || memcmp(line + n - 2, "\"}", 2) != 0 ||
        memcmp(line + n - tail, PREV_KEY, strlen(PREV_KEY)) != 0)
        return NULL;
    return line + n - 2 - (AUDIT_HASH_SIZE - 1);
}

/* "seq":N stands right before ,"prev": of that place. 0: it does not. */
static uint64_t seq_before(const char *line, const char *prev_key)
{
    const char *p = prev_key - 1; /* its comma */
    uint64_t n = 0, unit = 1;

    if (p <= line || *p != ',')
        return 0;
    for (p--; p > line && *p >= '0' && *p <= '9'; p--, unit *= 10)
        n += (uint64_t)(*p - '0') * unit;
    p -= strlen(SEQ_KEY) - 1;
    return p > line && memcmp(p, SEQ_KEY, strlen(SEQ_KEY)) == 0 ? n : 0;
}

/* The last line of the file, when it has one. */
int audit_last_of(int dir_fd, const char *name, struct audit_last *out)
{
    CLEANUP_CLOSE int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    CLEANUP_FREE char *tail = NULL;
    const char *end, *start, *prev;
    struct stat st;
    off_t from;
    ssize_t n;

    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    if (fstat(fd, &st) < 0)
        return -errno;
    tail = malloc(TAIL_BYTES);
    if (!tail)
        return -ENOMEM;
    from = st.st_size > TAIL_BYTES ? st.st_size - TAIL_BYTES : 0;
    n = pread(fd, tail, TAIL_BYTES, from);
    if (n <= 0)
        return n < 0 ? -errno : 0;
    out->cut = tail[n - 1] != '\n';
    end = out->cut ? tail + n
                   : tail + n - 1; /* the rest of a line will be ended, and is then a line */
    start = memrchr(tail, '\n', (size_t)(end - tail));
    start = start ? start + 1 : tail;
    audit_hash(start, (size_t)(end - start), out->hash);
    prev = prev_of(start, (size_t)(end - start));
    out->seq = prev ? seq_before(start, prev - strlen(PREV_KEY)) : 0;
    return 1;
}

static void broken_at(struct audit_walk *w, const char *file)
{
    if (w->out->broken)
        return;
    w->out->broken = w->out->lines;
    snprintf(w->out->file, sizeof(w->out->file), "%s", file);
}

/* A line that was cut short has no number; the next one's is not held against it. */
static void check_line(struct audit_walk *w, const char *file, const char *line, size_t n)
{
    const char *prev = prev_of(line, n);
    uint64_t seq = prev ? seq_before(line, prev - strlen(PREV_KEY)) : 0;

    w->out->lines++;
    if (!prev)
        w->out->cut++;
    if (!w->begun && seq > 0)
        w->out->rotated += seq - 1 - MIN(seq - 1, w->seq);
    if (prev && w->begun &&
        (memcmp(prev, w->prev, AUDIT_HASH_SIZE - 1) != 0 || (w->seq && seq != w->seq + 1)))
        broken_at(w, file);
    w->begun = true;
    w->seq = seq;
    audit_hash(line, n, w->prev);
}

int audit_walk_open(int dir_fd, const char *name, FILE **out, size_t *bytes)
{
    CLEANUP_CLOSE int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;
    FILE *f;

    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    f = fdopen(fd, "r");
    if (!f)
        return -ENOMEM;
    (void)TAKE_FD(fd);
    *out = f;
    *bytes = (size_t)st.st_size;
    return 1;
}

int audit_walk_on(struct audit_walk *w, FILE *f, const char *name, size_t *most)
{
    CLEANUP_FREE char *line = NULL;
    size_t capacity = 0;
    ssize_t n = 0;

    while (*most > 0 && (n = getline(&line, &capacity, f)) > 0) {
        *most -= MIN(*most, (size_t)n);
        if (line[n - 1] == '\n')
            n--;
        check_line(w, name, line, (size_t)n);
        if (w->canceled && *w->canceled)
            return -ECANCELED;
    }
    if (n < 0 && ferror(f))
        return -EIO;
    return n >= 0;
}

int audit_walk_file(struct audit_walk *w, int dir_fd, const char *name)
{
    size_t bytes, most = SIZE_MAX;
    FILE *f = NULL;
    int rc = audit_walk_open(dir_fd, name, &f, &bytes);

    if (rc <= 0)
        return rc;
    rc = audit_walk_on(w, f, name, &most);
    fclose(f);
    return rc;
}
