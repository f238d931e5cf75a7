#include "unpack/source.h"

#include "unpack/layer.h"

#include <archive_entry.h>

#define PIECE_BYTES (256u * 1024)

#define COMPRESSIONS_MAX 1

static enum err_code failed(struct archive *a, const char *path, struct err *e)
{
    const char *why = archive_error_string(a);

    return err_set(e, ERR_INVALID, "the archive cannot be read%s%.80s: %.80s", path ? " in " : "",
                   path ? path : "", why ? why : "it is damaged");
}

enum err_code source_failed(const struct source *s, const char *path, struct err *e)
{
    if (s->is_over)
        return err_set(e, ERR_TOO_LARGE, "over %llu GiB of archives would have to be read%s%.80s",
                       UNPACK_READ_MAX >> 30, path ? ", in " : "", path ? path : "");
    return failed(s->is_torn ? s->packed : s->tar, path, e);
}

/* libarchive keeps no reason that is given here. */
static la_ssize_t next_piece(struct archive *tar, void *arg, const void **bytes)
{
    struct source *s = arg;
    la_int64_t at;
    size_t n = 0;
    int r;

    do
        r = archive_read_data_block(s->packed, bytes, &n, &at);
    while (r == ARCHIVE_OK && n == 0);
    if (r == ARCHIVE_EOF)
        return 0;
    s->is_torn = r != ARCHIVE_OK;
    s->is_over = !s->is_torn && n > s->max - s->read;
    if (s->is_torn || s->is_over)
        return -1;
    s->read += n;
    return (la_ssize_t)n;
}

/* No other format or compression: each is code that a stranger's bytes would reach. */
static enum err_code open_packed(struct source *s, int fd, struct err *e)
{
    struct archive_entry *whole;

    archive_read_support_format_raw(s->packed);
    archive_read_support_filter_gzip(s->packed);
    archive_read_support_filter_zstd(s->packed);
    if (archive_read_open_fd(s->packed, fd, PIECE_BYTES) != ARCHIVE_OK)
        return failed(s->packed, NULL, e);
    /* It counts the file itself. Of two, some KiB would be all that may be read. */
    if (archive_filter_count(s->packed) > 1 + COMPRESSIONS_MAX)
        return err_set(e, ERR_INVALID, "the archive is compressed more than once; once is allowed");
    return archive_read_next_header(s->packed, &whole) == ARCHIVE_OK ? ERR_OK
                                                                     : failed(s->packed, NULL, e);
}

enum err_code source_open(struct source *s, int fd, uint64_t max, struct err *e)
{
    *s = (struct source){.packed = archive_read_new(), .tar = archive_read_new(), .max = max};
    if (!s->packed || !s->tar)
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    if (open_packed(s, fd, e) != ERR_OK)
        return e->code;
    archive_read_support_format_tar(s->tar);
    return archive_read_open2(s->tar, s, NULL, next_piece, NULL, NULL) == ARCHIVE_OK
               ? ERR_OK
               : failed(s->tar, NULL, e);
}

/* The upper first: it may look at the lower. */
void source_close(struct source *s)
{
    if (s->tar)
        archive_read_free(s->tar);
    if (s->packed)
        archive_read_free(s->packed);
    *s = (struct source){.packed = NULL};
}
