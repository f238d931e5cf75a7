#include "agent/java_store.h"

#include "agent/sha1.h"
#include "base/base64.h"
#include "base/util.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MAGIC        0xfeedfeedu
#define VERSION      2u
#define HEAD_BYTES   12u /* magic, version, number of entries */
#define DIGEST_BYTES SHA1_DIGEST_BYTES
#define TAG_TRUSTED  2u
#define TYPE         "X.509"

/* -- the digest -------------------------------------------------------------------------------- */

static uint32_t read_u32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Of the store without its digest: the password as UTF-16, a constant, the bytes. */
static void digest_of(const char *store, size_t n, uint8_t out[static DIGEST_BYTES])
{
    static const char password[] = "\0c\0h\0a\0n\0g\0e\0i\0t", salt[] = "Mighty Aphrodite";
    struct sha1 s;

    sha1_begin(&s);
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

/* The head's number of entries, and the digest. */
static int finish(struct buf *out, uint32_t entries)
{
    uint8_t digest[DIGEST_BYTES];

    for (unsigned i = 0; i < 4; i++)
        out->data[8 + i] = (char)(entries >> (24 - 8 * i));
    digest_of(out->data, out->len, digest);
    return buf_append(out, digest, sizeof(digest)) < 0 ? -ENOMEM : 1;
}

int java_store_add(const char *store, size_t n, const char *pem, uint64_t now_ms, struct buf *out)
{
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
    return finish(out, read_u32((const uint8_t *)store + 8) + (uint32_t)count);
}

/* -- without ----------------------------------------------------------------------------------- */

/* So many bytes of a length field and what it announces, behind `at`; 0: there are not as many. */
static size_t field_end(const uint8_t *store, size_t n, size_t at, unsigned length_bytes)
{
    size_t length;

    if (n < length_bytes || at > n - length_bytes)
        return 0;
    length = length_bytes == 2 ? (size_t)store[at] << 8 | store[at + 1] : read_u32(store + at);
    at += length_bytes;
    return length > n - at ? 0 : at + length;
}

/* Of the entry at `at`: *der, where its certificate begins, and where the entry ends. 0: it is no
 * certificate's. */
static size_t entry_end(const uint8_t *store, size_t n, size_t at, size_t *der)
{
    size_t end;

    if (n < 4 || at > n - 4 || read_u32(store + at) != TAG_TRUSTED)
        return 0;
    end = field_end(store, n, at + 4, 2); /* the alias, behind which is the time */
    if (end == 0 || n - end < 8)
        return 0;
    *der = field_end(store, n, end + 8, 2); /* the type */
    if (*der == 0)
        return 0;
    end = field_end(store, n, *der, 4);
    *der += 4;
    return end;
}

/* 1, 0, or -errno. */
static int is_in(const char *pem, const uint8_t *der, size_t n)
{
    for (;;) {
        CLEANUP_FREE char *one = NULL;
        ssize_t len = next_certificate(&pem, &one);

        if (len <= 0)
            return (int)len;
        if ((size_t)len == n && memcmp(one, der, n) == 0)
            return 1;
    }
}

int java_store_remove(const char *store, size_t n, const char *pem, struct buf *out)
{
    const uint8_t *bytes = (const uint8_t *)store;
    uint32_t entries, left_out = 0;
    size_t at = HEAD_BYTES, der, end;

    if (!is_ours(store, n))
        return -EINVAL;
    n -= DIGEST_BYTES;
    entries = read_u32(bytes + 8);
    if (buf_append(out, store, HEAD_BYTES) < 0)
        return -ENOMEM;
    for (uint32_t i = 0; i < entries; i++, at = end) {
        int found;

        end = entry_end(bytes, n, at, &der);
        found = end ? is_in(pem, bytes + der, end - der) : -EINVAL;
        if (found == 0 && buf_append(out, store + at, end - at) < 0)
            found = -ENOMEM;
        if (found < 0) {
            buf_clear(out);
            return found;
        }
        left_out += (uint32_t)found;
    }
    if (at == n && left_out > 0)
        return finish(out, entries - left_out);
    buf_clear(out);
    return at == n ? 0 : -EINVAL;
}
