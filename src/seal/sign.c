/* Pieces of a file and their MACs (sign.h). A single piece is in memory at a time; MACs are read
 * and written one by one where they lie. */

#include "seal/sign.h"

#include "base/util.h"
#include "contract/archive.h"
#include "contract/exchange.h"

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
static const uint8_t for_exchange[] = "cay-seal exchange 1";

struct signing {
    int fd;
    uint64_t bytes; /* of the contents */
    uint8_t key[ARCHIVE_MAC_BYTES];
    struct sign_why *why;
    const char *what;  /* the file, for people */
    bool binds_header; /* the last bytes of the contents are a part of the key */
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

static int read_at(const struct signing *s, void *out, size_t n, uint64_t at);

static int make_key(struct signing *s, const struct seal_secret *secret)
{
    uint8_t
        text[sizeof(for_exchange) + SEAL_LABEL_BYTES + sizeof(uint64_t) + EXCHANGE_HEADER_BYTES];
    uint64_t length = htole64(s->bytes);
    size_t n = s->binds_header ? sizeof(for_exchange) : sizeof(for_archives);
    int rc = 0;

    memcpy(text, s->binds_header ? for_exchange : for_archives, n);
    memcpy(text + n, secret->label, SEAL_LABEL_BYTES);
    n += SEAL_LABEL_BYTES;
    memcpy(text + n, &length, sizeof(length));
    n += sizeof(length);
    if (s->binds_header) {
        rc = read_at(s, text + n, EXCHANGE_HEADER_BYTES, s->bytes - EXCHANGE_HEADER_BYTES);
        n += EXCHANGE_HEADER_BYTES;
    }
    if (rc < 0)
        return rc;
    return mac(secret->key, text, n, s->key) < 0 ? fail(s, -ENOMEM, "memory is out") : 0;
}

static int begin(struct signing *s, int fd, uint64_t bytes, bool binds_header,
                 const struct seal_secret *secret, struct sign_why *why)
{
    s->fd = fd;
    s->bytes = bytes;
    s->why = why;
    s->what = binds_header ? "file" : "archive";
    s->binds_header = binds_header;
    if (bytes <= (binds_header ? EXCHANGE_HEADER_BYTES : 0) || bytes > ARCHIVE_BYTES_MAX)
        return fail(s, -EFBIG, "the %s has no size that it may have", s->what);
    return make_key(s, secret);
}

static int read_at(const struct signing *s, void *out, size_t n, uint64_t at)
{
    for (size_t have = 0; have < n;) {
        ssize_t got = pread(s->fd, (uint8_t *)out + have, n - have, (off_t)(at + have));

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return fail(s, got < 0 ? -errno : -EBADMSG, "the %s cannot be read at byte %" PRIu64,
                        s->what, at + have);
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
    return fail(s, put < 0 ? -errno : -ENOSPC, "writing the MACs of the %s: %s", s->what,
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
        rc = fail(s, -errno, "the %s does not get to the disk: %s", s->what, strerror(errno));
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
                      "the %s is damaged, or signed with another key: piece %" PRIu64
                      ", from byte %" PRIu64 " on",
                      s->what, i, i * ARCHIVE_PIECE_BYTES);
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
    snprintf(why->text, sizeof(why->text), "the file cannot be looked at");
    return -EIO;
}

static int write_macs(int fd, bool binds_header, const struct seal_secret *secret,
                      struct sign_why *why)
{
    static struct signing s; /* large */
    uint64_t bytes;
    int rc = length_of(fd, &bytes, why);

    if (rc == 0)
        rc = begin(&s, fd, bytes, binds_header, secret, why);
    if (rc == 0)
        rc = sign_all(&s);
    OPENSSL_cleanse(s.key, sizeof(s.key));
    return rc;
}

static int check_macs(int fd, bool binds_header, const struct seal_secret *secret,
                      struct sign_why *why)
{
    static struct signing s;
    uint64_t bytes;
    int rc = archive_length(fd, &bytes);

    if (rc < 0) {
        snprintf(why->text, sizeof(why->text), "the %s is damaged: its end",
                 binds_header ? "file" : "archive");
        return rc;
    }
    rc = begin(&s, fd, bytes, binds_header, secret, why);
    if (rc == 0)
        rc = check_all(&s);
    OPENSSL_cleanse(s.key, sizeof(s.key));
    return rc;
}

int sign_write(int fd, const struct seal_secret *secret, struct sign_why *why)
{
    return write_macs(fd, false, secret, why);
}

int sign_write_exchange(int fd, const struct seal_secret *secret, struct sign_why *why)
{
    return write_macs(fd, true, secret, why);
}

int sign_check(int fd, const struct seal_secret *secret, struct sign_why *why)
{
    return check_macs(fd, false, secret, why);
}

int sign_check_exchange(int fd, const struct seal_secret *secret, struct sign_why *why)
{
    return check_macs(fd, true, secret, why);
}
