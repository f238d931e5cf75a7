/* Pieces of a file and their MACs (sign.h). A single piece is in memory at a time; MACs are read
 * and written one by one where they lie. */

#include "seal/sign.h"

#include "base/util.h"
#include "contract/archive.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint8_t for_archives[] = "cay-seal archive 1";

struct signing {
    int fd;
    uint64_t bytes; /* of the contents */
    uint8_t key[ARCHIVE_MAC_BYTES];
    struct sign_why *why;
    uint8_t text[sizeof(uint64_t) + ARCHIVE_PIECE_BYTES]; /* number and contents of a piece */
};

PRINTF(3, 4) static int fail(const struct signing *s, int rc, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(s->why->text, sizeof(s->why->text), format, args);
    va_end(args);
    return rc;
}

static int mac(const uint8_t *key, const void *text, size_t n,
               uint8_t out[static ARCHIVE_MAC_BYTES])
{
    unsigned len = ARCHIVE_MAC_BYTES;

    return HMAC(EVP_sha256(), key, SEAL_KEY_BYTES, text, n, out, &len) ? 0 : -ENOMEM;
}

_Static_assert(SEAL_KEY_BYTES == ARCHIVE_MAC_BYTES, "a MAC is the key of a file");

static int begin(struct signing *s, int fd, uint64_t bytes, const struct seal_secret *secret,
                 struct sign_why *why)
{
    uint8_t text[sizeof(for_archives) + SEAL_LABEL_BYTES + sizeof(uint64_t)];
    uint64_t length = htole64(bytes);

    s->fd = fd;
    s->bytes = bytes;
    s->why = why;
    memcpy(text, for_archives, sizeof(for_archives));
    memcpy(text + sizeof(for_archives), secret->label, SEAL_LABEL_BYTES);
    memcpy(text + sizeof(for_archives) + SEAL_LABEL_BYTES, &length, sizeof(length));
    if (bytes == 0 || bytes > ARCHIVE_BYTES_MAX)
        return fail(s, -EFBIG, "the archive has no size that an archive may have");
    return mac(secret->key, text, sizeof(text), s->key) < 0 ? fail(s, -ENOMEM, "memory is out") : 0;
}

static int read_at(const struct signing *s, void *out, size_t n, uint64_t at)
{
    for (size_t have = 0; have < n;) {
        ssize_t got = pread(s->fd, (uint8_t *)out + have, n - have, (off_t)(at + have));

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return fail(s, got < 0 ? -errno : -EBADMSG,
                        "the archive cannot be read at byte %" PRIu64, at + have);
        have += (size_t)got;
    }
    return 0;
}

static int write_at(const struct signing *s, const void *bytes, size_t n, uint64_t at)
{
    ssize_t put;

    do
        put = pwrite(s->fd, bytes, n, (off_t)at);
    while (put < 0 && errno == EINTR);
    if (put == (ssize_t)n)
        return 0;
    return fail(s, put < 0 ? -errno : -ENOSPC, "writing the MACs of the archive: %s",
                strerror(put < 0 ? errno : ENOSPC));
}

static int mac_of_piece(struct signing *s, uint64_t number, uint8_t out[static ARCHIVE_MAC_BYTES])
{
    uint64_t at = number * ARCHIVE_PIECE_BYTES, name = htole64(number);
    size_t n = (size_t)MIN(s->bytes - at, (uint64_t)ARCHIVE_PIECE_BYTES);
    int rc = read_at(s, s->text + sizeof(name), n, at);

    if (rc < 0)
        return rc;
    memcpy(s->text, &name, sizeof(name));
    return mac(s->key, s->text, sizeof(name) + n, out) < 0 ? fail(s, -ENOMEM, "memory is out") : 0;
}

static int sign_all(struct signing *s)
{
    const struct archive_footer footer = {htole64(ARCHIVE_MAGIC), htole64(s->bytes)};
    uint8_t own[ARCHIVE_MAC_BYTES];
    uint64_t n = archive_pieces(s->bytes);
    int rc = 0;

    for (uint64_t i = 0; i < n && rc == 0; i++) {
        rc = mac_of_piece(s, i, own);
        if (rc == 0)
            rc = write_at(s, own, sizeof(own), s->bytes + i * sizeof(own));
    }
    if (rc == 0)
        rc = write_at(s, &footer, sizeof(footer), s->bytes + n * sizeof(own));
    if (rc == 0 && fsync(s->fd) < 0)
        rc = fail(s, -errno, "the archive does not get to the disk: %s", strerror(errno));
    return rc;
}

static int check_all(struct signing *s)
{
    uint8_t own[ARCHIVE_MAC_BYTES], there[ARCHIVE_MAC_BYTES];
    uint64_t n = archive_pieces(s->bytes);

    for (uint64_t i = 0; i < n; i++) {
        int rc = mac_of_piece(s, i, own);

        if (rc == 0)
            rc = read_at(s, there, sizeof(there), s->bytes + i * sizeof(there));
        if (rc == 0 && CRYPTO_memcmp(own, there, sizeof(own)) != 0)
            rc = fail(s, -EBADMSG,
                      "the archive is damaged: piece %" PRIu64 ", from byte %" PRIu64 " on", i,
                      i * ARCHIVE_PIECE_BYTES);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int length_of(int fd, uint64_t *out, struct sign_why *why)
{
    struct stat st;

    if (fstat(fd, &st) == 0 && st.st_size >= 0) {
        *out = (uint64_t)st.st_size;
        return 0;
    }
    snprintf(why->text, sizeof(why->text), "the archive cannot be looked at");
    return -EIO;
}

int sign_write(int fd, const struct seal_secret *secret, struct sign_why *why)
{
    static struct signing s; /* large */
    uint64_t bytes;
    int rc = length_of(fd, &bytes, why);

    if (rc == 0)
        rc = begin(&s, fd, bytes, secret, why);
    if (rc == 0)
        rc = sign_all(&s);
    OPENSSL_cleanse(s.key, sizeof(s.key));
    return rc;
}

int sign_check(int fd, const struct seal_secret *secret, struct sign_why *why)
{
    static struct signing s;
    uint64_t bytes;
    int rc = archive_length(fd, &bytes);

    if (rc < 0) {
        snprintf(why->text, sizeof(why->text), "the archive is damaged: its end");
        return rc;
    }
    rc = begin(&s, fd, bytes, secret, why);
    if (rc == 0)
        rc = check_all(&s);
    OPENSSL_cleanse(s.key, sizeof(s.key));
    return rc;
}
