#include "http/gzip.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

#include "base/util.h"

#define GZIP_WINDOW (15 + 16) /* the largest window, gzip's frame only */

struct gzip {
    z_stream z;
    bool inflating;
    bool ended;   /* zlib said so */
    bool pending; /* zlib may hold output that did not fit the last piece */
    uint64_t left;
    gzip_sink sink;
    void *arg;
    unsigned char piece[GZIP_PIECE_BYTES];
};

static int make(bool inflating, gzip_sink sink, void *arg, struct gzip **out)
{
    struct gzip *z = calloc(1, sizeof(*z));

    if (!z)
        return -ENOMEM;
    z->inflating = inflating;
    z->sink = sink;
    z->arg = arg;
    *out = z;
    return 0;
}

int gzip_inflate_new(uint64_t max, gzip_sink sink, void *arg, struct gzip **out)
{
    struct gzip *z;
    int r = make(true, sink, arg, &z);

    if (r < 0)
        return r;
    z->left = max;
    if (inflateInit2(&z->z, GZIP_WINDOW) != Z_OK) {
        free(z);
        return -ENOMEM;
    }
    *out = z;
    return 0;
}

int gzip_deflate_new(int level, gzip_sink sink, void *arg, struct gzip **out)
{
    struct gzip *z;
    int r = make(false, sink, arg, &z);

    if (r < 0)
        return r;
    z->left = UINT64_MAX;
    if (deflateInit2(&z->z, level, Z_DEFLATED, GZIP_WINDOW, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
        free(z);
        return -ENOMEM;
    }
    *out = z;
    return 0;
}

void gzip_free(struct gzip *z)
{
    if (!z)
        return;
    if (z->inflating)
        inflateEnd(&z->z);
    else
        deflateEnd(&z->z);
    free(z);
}

/* Runs zlib once and gives a piece to the sink. 0, 1 (sink full), 2 (nothing more to do now),
 * -errno. */
static int turn(struct gzip *z, int flush)
{
    size_t len;
    int r;

    z->z.next_out = z->piece;
    z->z.avail_out = sizeof(z->piece);
    r = z->inflating ? inflate(&z->z, flush) : deflate(&z->z, flush);
    len = sizeof(z->piece) - z->z.avail_out;
    z->pending = z->z.avail_out == 0;
    if (r == Z_STREAM_END)
        z->ended = true;
    else if (r == Z_MEM_ERROR)
        return -ENOMEM;
    else if (r != Z_OK && r != Z_BUF_ERROR)
        return -EBADMSG;
    if (len > z->left)
        return -EMSGSIZE;
    if (z->inflating && z->left != UINT64_MAX)
        z->left -= len;
    if (len == 0)
        return 2;
    r = z->sink(z->arg, z->piece, len);
    return r != 0 ? r : z->ended ? 2 : 0;
}

int gzip_feed(struct gzip *z, const void *data, size_t n, size_t *used)
{
    size_t done = 0;
    int r = 0;

    while ((done < n || (z->pending && !z->ended)) && r == 0) {
        unsigned take = (unsigned)MIN(n - done, (size_t)1 << 30);

        if (z->ended) { /* another member follows (RFC 1952 2.2) */
            if (!z->inflating || inflateReset(&z->z) != Z_OK) {
                r = -EBADMSG;
                break;
            }
            z->ended = false;
        }
        z->z.next_in = (unsigned char *)data + done;
        z->z.avail_in = take;
        r = turn(z, Z_NO_FLUSH);
        done += take - z->z.avail_in;
        if (r == 2)
            r = 0;
    }
    z->z.next_in = NULL;
    z->z.avail_in = 0;
    *used = done;
    return r;
}

int gzip_finish(struct gzip *z)
{
    int r = 0;

    if (z->inflating) {
        while (r == 0 && z->pending && !z->ended)
            r = turn(z, Z_NO_FLUSH);
        if (r == 1 || (r < 0))
            return r;
        return z->ended ? 0 : -EBADMSG;
    }
    while (r == 0 && !z->ended)
        r = turn(z, Z_FINISH);
    return r == 2 ? 0 : r;
}

/* "0.5" as 500: at most three decimals (RFC 9110 12.4.2); a malformed one counts as 1000. */
static int weight(const char *q)
{
    int value, unit = 100;

    if (*q != '0')
        return 1000;
    value = 0;
    for (q += q[1] == '.' ? 2 : 1; *q >= '0' && *q <= '9' && unit > 0; q++, unit /= 10)
        value += (*q - '0') * unit;
    return value;
}

/* The weight that an Accept-Encoding gives a coding; -1 when it is not named. */
static int weight_of(const char *list, const char *coding)
{
    for (const char *p = list; *p;) {
        size_t item, name;
        const char *q;

        p += strspn(p, ", \t");
        item = strcspn(p, ",");
        name = strcspn(p, "; \t,");
        q = memmem(p, item, "q=", 2);
        if (!q)
            q = memmem(p, item, "Q=", 2);
        if (name == strlen(coding) && strncasecmp(p, coding, name) == 0)
            return q ? weight(q + 2) : 1000;
        p += item;
    }
    return -1;
}

bool gzip_accepted(const char *accept_encoding)
{
    int gzip;

    if (!accept_encoding)
        return false;
    gzip = weight_of(accept_encoding, "gzip");
    if (gzip < 0)
        gzip = weight_of(accept_encoding, "x-gzip");
    if (gzip < 0)
        gzip = weight_of(accept_encoding, "*");
    return gzip > 0 && gzip >= weight_of(accept_encoding, "identity");
}

bool gzip_identity_refused(const char *accept_encoding)
{
    int identity;

    if (!accept_encoding)
        return false;
    identity = weight_of(accept_encoding, "identity");
    return identity == 0 || (identity < 0 && weight_of(accept_encoding, "*") == 0);
}
