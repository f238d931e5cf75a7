#include "egress/http/unzip.h"

#include "base/util.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

#define GZIP_WINDOW (15 + 16) /* zlib's way to say gzip */

struct unzip {
    enum unzip_coding coding;
    z_stream z;
    bool started, ended; /* ended: the last byte was a member's last */
    struct buf in;
};

enum unzip_coding unzip_coding_of(const char *name, size_t n)
{
    static const struct {
        const char *name;
        enum unzip_coding coding;
    } all[] = {{"", UNZIP_NONE},
               {"identity", UNZIP_NONE},
               {"gzip", UNZIP_GZIP},
               {"x-gzip", UNZIP_GZIP},
               {"deflate", UNZIP_DEFLATE}};

    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        if (strlen(all[i].name) == n && strncasecmp(all[i].name, name, n) == 0)
            return all[i].coding;
    return UNZIP_OTHER;
}

struct unzip *unzip_new(enum unzip_coding coding, size_t waiting_max)
{
    struct unzip *u = calloc(1, sizeof(*u));

    if (!u)
        return NULL;
    u->coding = coding;
    buf_init(&u->in, waiting_max);
    return u;
}

void unzip_free(struct unzip *u)
{
    if (!u)
        return;
    if (u->started)
        (void)inflateEnd(&u->z);
    buf_free(&u->in);
    free(u);
}

int unzip_feed(struct unzip *u, const char *data, size_t n)
{
    return buf_append(&u->in, data, n);
}

size_t unzip_waiting(const struct unzip *u)
{
    return u->in.len;
}

size_t unzip_memory(const struct unzip *u)
{
    return u->in.cap;
}

bool unzip_is_whole(const struct unzip *u)
{
    return u->in.len == 0 && (u->ended || !u->started);
}

/* deflate is zlib's format by its definition, and without zlib's head by many a server: the first
 * two bytes tell (RFC 1950 section 2.2). 1: started; 0: they are not there yet. */
static int start(struct unzip *u)
{
    const unsigned char *s = (const unsigned char *)u->in.data;
    int window = GZIP_WINDOW;

    if (u->in.len < 2)
        return 0;
    if (u->coding == UNZIP_DEFLATE)
        window = (s[0] & 15) == 8 && (s[0] * 256 + s[1]) % 31 == 0 ? 15 : -15;
    if (inflateInit2(&u->z, window) != Z_OK)
        return -ENOMEM;
    u->started = true;
    return 1;
}

/* gzip may be several members, one after the other (RFC 1952 section 2.2). */
static int go_on(struct unzip *u)
{
    if (u->in.len == 0)
        return 0;
    if (u->coding != UNZIP_GZIP || inflateReset(&u->z) != Z_OK)
        return -EBADMSG;
    u->ended = false;
    return 1;
}

static int step(struct unzip *u, struct buf *out)
{
    size_t before = out->len;
    int rc = buf_reserve(out, UNZIP_STEP_BYTES), status;

    if (rc < 0)
        return rc;
    u->z.next_in = (unsigned char *)u->in.data;
    u->z.avail_in = (unsigned)u->in.len;
    u->z.next_out = (unsigned char *)out->data + before;
    u->z.avail_out = (unsigned)UNZIP_STEP_BYTES;
    status = inflate(&u->z, Z_NO_FLUSH);
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
        return status == Z_MEM_ERROR ? -ENOMEM : -EBADMSG;
    u->ended = status == Z_STREAM_END;
    buf_commit(out, UNZIP_STEP_BYTES - u->z.avail_out);
    buf_consume(&u->in, u->in.len - u->z.avail_in);
    return (int)(out->len - before);
}

int unzip_next(struct unzip *u, struct buf *out)
{
    int rc = 0;

    for (;;) {
        size_t waiting = u->in.len;

        rc = u->started ? 1 : start(u);
        if (rc > 0 && u->ended)
            rc = go_on(u);
        if (rc > 0)
            rc = step(u, out);
        else
            return rc;
        if (rc != 0 || u->in.len == waiting) /* some came out, or nothing moves */
            return rc;
    }
}
