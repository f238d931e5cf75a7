#include "image/tar_index.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* -- headers ----------------------------------------------------------------------------------- */

/* Octal digits with blanks around, or GNU's base 256 (the first bit is set). */
static int read_number(const uint8_t *field, size_t n, uint64_t *out)
{
    uint64_t value = 0;
    size_t i = 0;

    if (field[0] & 0x80) {
        for (i = 0; i < n; i++) {
            if (value >> 55)
                return -EBADMSG;
            value = value << 8 | (i ? field[i] : field[i] & 0x7f);
        }
        *out = value;
        return 0;
    }
    while (i < n && field[i] == ' ')
        i++;
    for (; i < n && field[i] >= '0' && field[i] <= '7'; i++)
        value = value << 3 | (uint64_t)(field[i] - '0');
    if (i < n && field[i] != ' ' && field[i] != '\0')
        return -EBADMSG;
    *out = value;
    return 0;
}

static bool is_sum_right(const uint8_t *block)
{
    uint64_t said, sum = 0;

    for (size_t i = 0; i < TAR_INDEX_BLOCK; i++)
        sum += i >= 148 && i < 156 ? ' ' : block[i];
    return read_number(block + 148, 8, &said) == 0 && said == sum;
}

static bool is_zero(const uint8_t *block)
{
    for (size_t i = 0; i < TAR_INDEX_BLOCK; i++)
        if (block[i])
            return false;
    return true;
}

int tar_index_header(const uint8_t block[static TAR_INDEX_BLOCK], struct tar_index_member *out)
{
    const char *name = (const char *)block, *prefix = (const char *)block + 345;
    bool is_ustar = memcmp(block + 257, "ustar\0", 6) == 0;

    if (is_zero(block))
        return 1;
    if (!is_sum_right(block) || read_number(block + 124, 12, &out->size) < 0 ||
        out->size > INT64_MAX / 2)
        return -EBADMSG;
    out->type = block[156] ? (char)block[156] : '0';
    snprintf(out->name, sizeof(out->name), "%.155s%s%.100s", is_ustar ? prefix : "",
             is_ustar && prefix[0] ? "/" : "", name);
    return 0;
}

static int use_record(const char *record, size_t len, struct tar_index_member *out)
{
    if (!memchr(record, '=', len))
        return -EBADMSG;
    if (len > 5 && memcmp(record, "path=", 5) == 0) {
        len -= 5;
        if (len >= sizeof(out->name) || memchr(record + 5, '\0', len))
            len = 0; /* not one that is looked for */
        memcpy(out->name, record + 5, len);
        out->name[len] = '\0';
    } else if (len > 5 && memcmp(record, "size=", 5) == 0) {
        uint64_t value = 0;

        for (size_t i = 5; i < len; i++) {
            if (record[i] < '0' || record[i] > '9' || value > INT64_MAX / 20)
                return -EBADMSG;
            value = value * 10 + (uint64_t)(record[i] - '0');
        }
        out->size = value;
    }
    return 0;
}

/* Records: "LENGTH NAME=VALUE\n", LENGTH of the whole in decimal. */
int tar_index_pax(const char *text, size_t len, struct tar_index_member *out)
{
    for (size_t at = 0; at < len && text[at] != '\0';) {
        size_t total = 0, i = at;

        for (; i < len && text[i] >= '0' && text[i] <= '9' && total <= len; i++)
            total = total * 10 + (size_t)(text[i] - '0');
        if (i >= len || text[i] != ' ' || total > len - at || total < i - at + 2 ||
            text[at + total - 1] != '\n')
            return -EBADMSG;
        if (use_record(text + i + 1, at + total - 1 - (i + 1), out) < 0)
            return -EBADMSG;
        at += total;
    }
    return 0;
}

/* -- searching --------------------------------------------------------------------------------- */

struct search {
    int fd;
    uint64_t at, end;
    struct tar_index_member pax; /* of the pax header before; size UINT64_MAX: none */
    bool has_pax, name_unknown;
};

static int read_block(const struct search *s, void *out, size_t n)
{
    if (n > s->end || s->at > s->end - n)
        return -EBADMSG;
    return pread(s->fd, out, n, (off_t)s->at) == (ssize_t)n ? 0 : -EBADMSG;
}

static int read_pax(struct search *s, uint64_t size)
{
    CLEANUP_FREE char *text = size <= TAR_INDEX_PAX_MAX ? malloc((size_t)size + 1) : NULL;

    if (!text || read_block(s, text, (size_t)size) < 0)
        return -EBADMSG;
    s->has_pax = true;
    s->pax.name[0] = '\0';
    s->pax.size = UINT64_MAX;
    return tar_index_pax(text, (size_t)size, &s->pax);
}

/* 0: *m is the next member, s->at its contents; 1: the end. */
static int next(struct search *s, struct tar_index_member *m)
{
    uint8_t block[TAR_INDEX_BLOCK];
    int r;

    r = read_block(s, block, sizeof(block));
    r = r < 0 ? r : tar_index_header(block, m);
    if (r != 0)
        return r;
    s->at += TAR_INDEX_BLOCK;
    if (m->type == 'x')
        return read_pax(s, m->size);
    if (m->type == 'L')
        s->name_unknown = true;
    if (m->type == 'g' || m->type == 'L' || m->type == 'K')
        return 0;
    if (s->has_pax && s->pax.name[0])
        memcpy(m->name, s->pax.name, sizeof(m->name));
    if (s->has_pax && s->pax.size != UINT64_MAX)
        m->size = s->pax.size;
    if (s->name_unknown)
        m->name[0] = '\0';
    s->has_pax = s->name_unknown = false;
    return 0;
}

enum err_code tar_index_find(int fd, const char *what, const char *name, off_t *offset,
                             uint64_t *size, struct err *e)
{
    struct search s = {.fd = fd};
    struct tar_index_member m;
    struct stat st;

    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return err_set(e, ERR_INVALID, "%s is not a file", what);
    s.end = (uint64_t)st.st_size;
    for (unsigned i = 0; i < TAR_INDEX_MEMBERS_MAX; i++) {
        int r = next(&s, &m);

        if (r > 0)
            return err_set(e, ERR_NOT_FOUND, "%s has no file %s", what, name);
        if (r < 0 || m.size > s.end - s.at)
            break;
        if (m.type == '0' && strcmp(m.name, name) == 0) {
            *offset = (off_t)s.at;
            *size = m.size;
            return ERR_OK;
        }
        s.at += (m.size + TAR_INDEX_BLOCK - 1) / TAR_INDEX_BLOCK * TAR_INDEX_BLOCK;
    }
    return err_set(e, ERR_INVALID, "%s is no tar archive, is cut, or has over %u files", what,
                   TAR_INDEX_MEMBERS_MAX);
}
