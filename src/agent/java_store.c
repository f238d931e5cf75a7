#include "agent/java_store.h"

#include "base/base64.h"
#include "base/util.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MAGIC        0xfeedfeedu
#define VERSION      2u
#define HEAD_BYTES   12u /* magic, version, number of entries */
#define DIGEST_BYTES 20u
#define TAG_TRUSTED  2u
#define TYPE         "X.509"

/* -- SHA-1, FIPS 180-4 section 6.1 ------------------------------------------------------------- */

struct sha1 {
    uint32_t h[5];
    uint64_t bytes;
    uint8_t block[64];
};

static uint32_t rotate(uint32_t x, unsigned n)
{
    return x << n | x >> (32 - n);
}

static uint32_t read_u32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Ch, Parity and Maj of the round, with its constant. */
static uint32_t mix(unsigned t, uint32_t b, uint32_t c, uint32_t d)
{
    if (t < 20)
        return ((b & c) | (~b & d)) + 0x5a827999u;
    if (t < 40)
        return (b ^ c ^ d) + 0x6ed9eba1u;
    if (t < 60)
        return ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdcu;
    return (b ^ c ^ d) + 0xca62c1d6u;
}

static void take_block(struct sha1 *s, const uint8_t *block)
{
    uint32_t w[80], v[5];

    for (unsigned t = 0; t < 16; t++)
        w[t] = read_u32(block + (size_t)4 * t);
    for (unsigned t = 16; t < 80; t++)
        w[t] = rotate(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1);
    memcpy(v, s->h, sizeof(v));
    for (unsigned t = 0; t < 80; t++) {
        uint32_t next = rotate(v[0], 5) + mix(t, v[1], v[2], v[3]) + v[4] + w[t];

        v[4] = v[3];
        v[3] = v[2];
        v[2] = rotate(v[1], 30);
        v[1] = v[0];
        v[0] = next;
    }
    for (unsigned i = 0; i < 5; i++)
        s->h[i] += v[i];
}

static void sha1_add(struct sha1 *s, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;

    while (n > 0) {
        size_t at = s->bytes % sizeof(s->block), part = MIN(n, sizeof(s->block) - at);

        if (part == sizeof(s->block)) {
            take_block(s, p);
        } else {
            memcpy(s->block + at, p, part);
            if (at + part == sizeof(s->block))
                take_block(s, s->block);
        }
        s->bytes += part;
        p += part;
        n -= part;
    }
}

static void sha1_end(struct sha1 *s, uint8_t out[static DIGEST_BYTES])
{
    static const uint8_t padding[64] = {0x80};
    uint64_t bits = s->bytes * 8;
    uint8_t length[8];

    for (unsigned i = 0; i < 8; i++)
        length[i] = (uint8_t)(bits >> (56 - 8 * i));
    sha1_add(s, padding, 1 + (119 - s->bytes % 64) % 64);
    sha1_add(s, length, sizeof(length));
    for (unsigned i = 0; i < DIGEST_BYTES; i++)
        out[i] = (uint8_t)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}

/* Of the store without its digest: the password as UTF-16, a constant, the bytes. */
static void digest_of(const char *store, size_t n, uint8_t out[static DIGEST_BYTES])
{
    static const char password[] = "\0c\0h\0a\0n\0g\0e\0i\0t", salt[] = "Mighty Aphrodite";
    struct sha1 s = {.h = {0x67452301u, 0xefcdab89u, 0x98badcfeu, 0x10325476u, 0xc3d2e1f0u}};

    sha1_add(&s, password, sizeof(password) - 1);
    sha1_add(&s, salt, sizeof(salt) - 1);
    sha1_add(&s, store, n);
    sha1_end(&s, out);
}

/* -- entries ----------------------------------------------------------------------------------- */

static int put_number(struct buf *b, uint64_t value, unsigned bytes)
{
    char text[8];

    for (unsigned i = 0; i < bytes; i++)
        text[i] = (char)(value >> (8 * (bytes - 1 - i)));
    return buf_append(b, text, bytes);
}

static int put_text(struct buf *b, const char *text)
{
    int rc = put_number(b, strlen(text), 2);

    return rc == 0 ? buf_append_str(b, text) : rc;
}

static int put_entry(struct buf *b, const char *alias, uint64_t now_ms, const void *der, size_t n)
{
    int rc = put_number(b, TAG_TRUSTED, 4);

    if (rc == 0)
        rc = put_text(b, alias);
    if (rc == 0)
        rc = put_number(b, now_ms, 8);
    if (rc == 0)
        rc = put_text(b, TYPE);
    if (rc == 0)
        rc = put_number(b, n, 4);
    return rc == 0 ? buf_append(b, der, n) : rc;
}

/* The next certificate of *pem, malloc'd, and *pem behind it. Its length; 0: there is no more;
 * -errno. */
static ssize_t next_certificate(const char **pem, char **der)
{
    static const char begin[] = "-----BEGIN CERTIFICATE-----", end[] = "-----END CERTIFICATE-----";
    const char *from = strstr(*pem, begin), *to = from ? strstr(from, end) : NULL;
    size_t n = 0;
    char *text;

    if (!from)
        return 0;
    if (!to)
        return -EINVAL;
    from += sizeof(begin) - 1;
    text = malloc((size_t)(to - from) + 1);
    if (!text)
        return -ENOMEM;
    for (const char *p = from; p < to; p++)
        if (*p != '\n' && *p != '\r')
            text[n++] = *p;
    *pem = to + sizeof(end) - 1;
    *der = text;
    return base64_decode(text, n, text);
}

static bool is_ours(const char *store, size_t n)
{
    const uint8_t *p = (const uint8_t *)store;
    uint8_t digest[DIGEST_BYTES];

    if (n < HEAD_BYTES + DIGEST_BYTES || read_u32(p) != MAGIC || read_u32(p + 4) != VERSION)
        return false;
    digest_of(store, n - DIGEST_BYTES, digest);
    return memcmp(digest, store + n - DIGEST_BYTES, DIGEST_BYTES) == 0;
}

/* Those of pem that the store has not to out. How many, or -errno. */
static int put_entries(struct buf *out, const char *store, size_t n, const char *pem,
                       uint64_t now_ms)
{
    int count = 0;

    for (;;) {
        CLEANUP_FREE char *der = NULL;
        ssize_t len = next_certificate(&pem, &der);
        char alias[32];

        if (len <= 0)
            return len < 0 ? (int)len : count;
        if (memmem(store, n, der, (size_t)len))
            continue;
        (void)snprintf(alias, sizeof(alias), "cay-egress-%d-%llx", count,
                       (unsigned long long)now_ms);
        if (put_entry(out, alias, now_ms, der, (size_t)len) < 0)
            return -ENOMEM;
        count++;
    }
}

int java_store_add(const char *store, size_t n, const char *pem, uint64_t now_ms, struct buf *out)
{
    uint8_t digest[DIGEST_BYTES];
    uint32_t entries;
    int count;

    if (!is_ours(store, n))
        return -EINVAL;
    n -= DIGEST_BYTES;
    if (buf_append(out, store, n) < 0)
        return -ENOMEM;
    count = put_entries(out, store, n, pem, now_ms);
    if (count <= 0) {
        buf_clear(out);
        return count;
    }
    entries = read_u32((const uint8_t *)store + 8) + (uint32_t)count;
    for (unsigned i = 0; i < 4; i++)
        out->data[8 + i] = (char)(entries >> (24 - 8 * i));
    digest_of(out->data, out->len, digest);
    return buf_append(out, digest, sizeof(digest)) < 0 ? -ENOMEM : 1;
}
