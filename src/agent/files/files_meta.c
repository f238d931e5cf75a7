#include "agent/files/files_meta.h"

#include "agent/fs/fs_entry.h"
#include "base/log.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/xattr.h>

#define HEADER_PREFIX "X-Metadata-"
#define LIST_MAX      (64u * 1024u)

static const size_t prefix_len = sizeof(FS_ENTRY_METADATA_PREFIX) - 1;

void files_meta_free(struct files_meta *m)
{
    for (size_t i = 0; i < m->count; i++) {
        free(m->pairs[i].name);
        free(m->pairs[i].value);
    }
    m->count = 0;
}

static struct files_meta_pair *find_pair(struct files_meta *m, const char *name)
{
    for (size_t i = 0; i < m->count; i++)
        if (strcmp(m->pairs[i].name, name) == 0)
            return &m->pairs[i];
    return NULL;
}

static bool is_printable_ascii(const char *s)
{
    for (; *s; s++)
        if (*s < 0x20 || *s > 0x7e)
            return false;
    return true;
}

static enum err_code check_pair(const char *key, const char *value, struct err *e)
{
    if (strlen(key) > FILES_META_KEY_MAX)
        return err_set(e, ERR_INVALID,
                       "invalid metadata: metadata key \"%.32s...\" exceeds %u bytes", key,
                       FILES_META_KEY_MAX);
    if (!is_printable_ascii(key) || !is_printable_ascii(value))
        return err_set(e, ERR_INVALID,
                       "invalid metadata: metadata \"%.64s\" contains non-printable-ASCII bytes",
                       key);
    return ERR_OK;
}

/* The first of several headers with one name counts. */
static enum err_code add_pair(struct files_meta *m, const char *key, const char *value,
                              struct err *e)
{
    char name[FILES_META_KEY_MAX + sizeof(FS_ENTRY_METADATA_PREFIX)];
    struct files_meta_pair *p = &m->pairs[m->count];

    if (check_pair(key, value, e) != ERR_OK)
        return e->code;
    memcpy(name, FS_ENTRY_METADATA_PREFIX, prefix_len);
    for (size_t i = 0; i <= strlen(key); i++)
        name[prefix_len + i] = (char)tolower((unsigned char)key[i]);
    if (find_pair(m, name))
        return ERR_OK;
    p->name = strdup(name);
    p->value = strdup(value);
    m->count++;
    return p->name && p->value ? ERR_OK : err_set(e, ERR_EXHAUSTED, "out of memory in the agent");
}

enum err_code files_meta_read(const struct http_head *h, struct files_meta *out, struct err *e)
{
    const size_t skip = sizeof(HEADER_PREFIX) - 1;
    size_t total = 0;

    out->count = 0;
    for (size_t i = 0; i < h->header_count; i++) {
        const char *name = h->headers[i].name;

        if (strncasecmp(name, HEADER_PREFIX, skip) != 0 || !name[skip])
            continue;
        if (add_pair(out, name + skip, h->headers[i].value, e) != ERR_OK)
            return e->code;
    }
    for (size_t i = 0; i < out->count; i++)
        total += strlen(out->pairs[i].name) + strlen(out->pairs[i].value);
    if (total > FILES_META_MAX)
        return err_set(e, ERR_INVALID, "invalid metadata: total metadata size %zu exceeds %u bytes",
                       total, FILES_META_MAX);
    return ERR_OK;
}

static int remove_others(int fd, struct files_meta *m)
{
    CLEANUP_FREE char *list = NULL;
    ssize_t n = flistxattr(fd, NULL, 0);

    if (n <= 0)
        return n < 0 ? -errno : 0;
    list = malloc(LIST_MAX);
    if (!list)
        return -ENOMEM;
    n = flistxattr(fd, list, LIST_MAX);
    if (n < 0)
        return -errno;
    for (char *name = list; name < list + n; name += strlen(name) + 1) {
        if (strncmp(name, FS_ENTRY_METADATA_PREFIX, prefix_len) != 0 || find_pair(m, name))
            continue;
        if (fremovexattr(fd, name) < 0 && errno != ENODATA)
            return -errno;
    }
    return 0;
}

int files_meta_write(int fd, const struct files_meta *m)
{
    int r = remove_others(fd, (struct files_meta *)m);

    for (size_t i = 0; r == 0 && i < m->count; i++)
        if (fsetxattr(fd, m->pairs[i].name, m->pairs[i].value, strlen(m->pairs[i].value), 0) < 0)
            r = -errno;
    /* /proc and /sys keep none; the contents are written, and the answer shows what is there. */
    if (r == -EOPNOTSUPP || r == -ENOSYS) {
        if (m->count > 0)
            log_warn("files: this file system keeps no metadata");
        return 0;
    }
    return r;
}
