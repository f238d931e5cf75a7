#include "egress/audit_chain.h"

#include "base/ids.h"
#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define TAIL_BYTES 65536 /* a line is far shorter */
#define PREV_KEY   "\"prev\":\""

void audit_hash(const char *line, size_t n, char out[static AUDIT_HASH_SIZE])
{
    unsigned char sum[SHA256_DIGEST_LENGTH];

    SHA256((const unsigned char *)line, n, sum);
    ids_hex(sum, sizeof(sum), out);
}

/* The last line of the file, when it has one. 1, 0 or -errno. */
static int last_of(int dir_fd, const char *name, char *out, bool *cut)
{
    CLEANUP_CLOSE int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    CLEANUP_FREE char *tail = NULL;
    struct stat st;
    const char *end, *start;
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
    *cut = tail[n - 1] != '\n';
    end = *cut ? tail + n : tail + n - 1; /* the rest of a line will be ended, and is then a line */
    start = memrchr(tail, '\n', (size_t)(end - tail));
    start = start ? start + 1 : tail;
    audit_hash(start, (size_t)(end - start), out);
    return 1;
}

int audit_last_hash(int dir_fd, const char *name, char out[static AUDIT_HASH_SIZE], bool *cut)
{
    char older[128];
    bool ignored;
    int rc;

    *cut = false;
    rc = last_of(dir_fd, name, out, cut);
    if (rc == 0) {
        snprintf(older, sizeof(older), "%s.1", name);
        rc = last_of(dir_fd, older, out, &ignored);
    }
    if (rc == 0)
        memcpy(out, AUDIT_FIRST, AUDIT_HASH_SIZE);
    return rc < 0 ? rc : 0;
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

struct walk {
    struct audit_check *out;
    char prev[AUDIT_HASH_SIZE];
    bool first; /* the oldest line there is: what was before it is gone */
};

static void check_line(struct walk *w, const char *file, const char *line, size_t n)
{
    const char *prev = prev_of(line, n);

    w->out->lines++;
    if (!prev)
        w->out->cut++;
    if (prev && !w->first && w->out->broken == 0 &&
        memcmp(prev, w->prev, AUDIT_HASH_SIZE - 1) != 0) {
        w->out->broken = w->out->lines;
        snprintf(w->out->file, sizeof(w->out->file), "%s", file);
    }
    w->first = false;
    audit_hash(line, n, w->prev);
}

static int check_file(struct walk *w, int dir_fd, const char *name)
{
    int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    FILE *f;

    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    f = fdopen(fd, "r");
    if (!f) {
        close(fd);
        return -ENOMEM;
    }
    while ((n = getline(&line, &room, f)) > 0) {
        if (line[n - 1] == '\n')
            n--;
        check_line(w, name, line, (size_t)n);
    }
    free(line);
    fclose(f);
    return 0;
}

int audit_verify(int dir_fd, const char *name, uint32_t files, struct audit_check *out)
{
    struct walk w = {.out = out, .first = true};
    char older[128];
    int rc = 0;

    *out = (struct audit_check){0};
    for (uint32_t i = files; i > 0 && rc == 0; i--) {
        snprintf(older, sizeof(older), "%s.%u", name, i);
        rc = check_file(&w, dir_fd, older);
    }
    return rc == 0 ? check_file(&w, dir_fd, name) : rc;
}
