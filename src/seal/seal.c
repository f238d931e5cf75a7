/* The form of a sealed file (seal.h). A single piece is in memory at a time, in either direction,
 * or a few of a reader that reads ahead; the writer keeps a full piece until it knows whether more
 * comes, as the last is marked. The reader knows the last one by the length of the file, which it
 * asks once: a file that was cut or continued has its mark in the wrong place. */

#include "seal/seal.h"

#include "base/ids.h"
#include "base/io.h"
#include "seal/ahead.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>
#include <sys/stat.h>

#define MAGIC       "cayseal"
#define NONCE_BYTES 12

static const uint8_t for_header[] = "cay-seal header 1", for_pieces[] = "cay-seal pieces 1";

/* HMAC-SHA256 of purpose and data. */
static int mac(const uint8_t *key, const uint8_t *purpose, size_t purpose_size, const void *data,
               size_t n, uint8_t out[static SEAL_MAC_BYTES])
{
    uint8_t text[64 + sizeof(struct seal_header)];
    unsigned len = SEAL_MAC_BYTES;

    if (purpose_size > 64 || n > sizeof(struct seal_header))
        return -EINVAL;
    memcpy(text, purpose, purpose_size);
    memcpy(text + purpose_size, data, n);
    return HMAC(EVP_sha256(), key, SEAL_KEY_BYTES, text, purpose_size + n, out, &len) ? 0 : -ENOMEM;
}

/* The key of this file alone, so that the numbers of pieces may be its nonces. */
static int derive(struct seal *s, const struct seal_secret *secret, const struct seal_header *h,
                  bool to_write)
{
    uint8_t key[SEAL_MAC_BYTES];
    EVP_CIPHER_CTX *cipher = EVP_CIPHER_CTX_new();
    int rc = mac(secret->key, for_pieces, sizeof(for_pieces), h, offsetof(struct seal_header, mac),
                 key);

    s->cipher = cipher;
    if (rc == 0 &&
        (!cipher || EVP_CipherInit_ex(cipher, EVP_aes_256_gcm(), NULL, key, NULL, to_write) != 1))
        rc = -ENOMEM;
    OPENSSL_cleanse(key, sizeof(key));
    return rc;
}

static void put_nonce(uint64_t number, bool last, uint8_t nonce[static NONCE_BYTES])
{
    memset(nonce, 0, NONCE_BYTES);
    nonce[0] = last;
    for (int i = 0; i < 8; i++)
        nonce[NONCE_BYTES - 1 - i] = (uint8_t)(number >> (8 * i));
}

uint64_t seal_piece_at(uint64_t number)
{
    return sizeof(struct seal_header) + number * (SEAL_PIECE_BYTES + SEAL_TAG_BYTES);
}

void seal_forget(struct seal *s)
{
    ahead_end(s->ahead);
    EVP_CIPHER_CTX_free(s->cipher);
    OPENSSL_cleanse(s, sizeof(*s));
    s->fd = -1;
}

/* -- writing ----------------------------------------------------------------------------------- */

static int put(struct seal *s, const void *bytes, size_t n)
{
    if (n > s->left_bytes)
        return -EFBIG;
    s->left_bytes -= n;
    return io_write_full(s->fd, bytes, n);
}

int seal_write_begin(struct seal *s, int fd, const struct seal_secret *secret,
                     uint64_t file_bytes_max)
{
    struct seal_header h = {
        .magic = MAGIC, .version = SEAL_VERSION, .piece_bytes = SEAL_PIECE_BYTES};
    int rc;

    memset(s, 0, sizeof(*s));
    s->fd = fd;
    s->left_bytes = file_bytes_max;
    ids_random_bytes(h.salt, sizeof(h.salt));
    memcpy(h.label, secret->label, sizeof(h.label));
    rc = mac(secret->key, for_header, sizeof(for_header), &h, offsetof(struct seal_header, mac),
             h.mac);
    if (rc == 0)
        rc = derive(s, secret, &h, true);
    return rc == 0 ? put(s, &h, sizeof(h)) : rc;
}

static int write_piece(struct seal *s, bool last)
{
    uint8_t nonce[NONCE_BYTES];
    int len = 0, tail = 0;

    put_nonce(s->number, last, nonce);
    if (EVP_CipherInit_ex(s->cipher, NULL, NULL, NULL, nonce, 1) != 1 ||
        EVP_CipherUpdate(s->cipher, s->sealed, &len, s->plain, (int)s->used) != 1 ||
        EVP_CipherFinal_ex(s->cipher, s->sealed + len, &tail) != 1 ||
        EVP_CIPHER_CTX_ctrl(s->cipher, EVP_CTRL_GCM_GET_TAG, SEAL_TAG_BYTES, s->sealed + s->used) !=
            1)
        return -EIO;
    int rc = put(s, s->sealed, s->used + SEAL_TAG_BYTES);
    s->number++;
    s->used = 0;
    return rc;
}

int seal_write(struct seal *s, const void *bytes, size_t n)
{
    const uint8_t *from = bytes;

    while (n > 0) {
        int rc = s->used == SEAL_PIECE_BYTES ? write_piece(s, false) : 0;
        size_t some = MIN(n, SEAL_PIECE_BYTES - s->used);

        if (rc < 0)
            return rc;
        memcpy(s->plain + s->used, from, some);
        s->used += some;
        from += some;
        n -= some;
    }
    return 0;
}

int seal_write_end(struct seal *s)
{
    int rc = s->last ? -EINVAL : write_piece(s, true);

    s->last = true;
    return rc == 0 && fsync(s->fd) < 0 ? -errno : rc;
}

/* -- reading ----------------------------------------------------------------------------------- */

static int check_header(const struct seal_secret *secret, const struct seal_header *h)
{
    uint8_t expected[SEAL_MAC_BYTES];
    int rc;

    if (memcmp(h->magic, MAGIC, sizeof(h->magic)) != 0)
        return -EBADMSG;
    rc = mac(secret->key, for_header, sizeof(for_header), h, offsetof(struct seal_header, mac),
             expected);
    if (rc < 0)
        return rc;
    if (CRYPTO_memcmp(expected, h->mac, sizeof(expected)) != 0)
        return -EBADMSG;
    if (h->version != SEAL_VERSION || h->piece_bytes != SEAL_PIECE_BYTES)
        return -EPROTO;
    return memcmp(h->label, secret->label, sizeof(h->label)) == 0 ? 0 : -ESTALE;
}

int seal_read_begin(struct seal *s, int fd, const struct seal_secret *secret)
{
    struct seal_header h;
    struct stat st;
    int rc;

    memset(s, 0, sizeof(*s));
    s->fd = fd;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (st.st_size < (off_t)sizeof(h))
        return -EBADMSG;
    s->left_bytes = (uint64_t)st.st_size - sizeof(h);
    rc = io_read_full(fd, &h, sizeof(h));
    if (rc == 0)
        rc = check_header(secret, &h);
    return rc == 0 ? derive(s, secret, &h, false) : rc;
}

/* s->sealed has n bytes of it. */
static int open_piece(struct seal *s, uint64_t number, bool last, size_t n, uint8_t *to)
{
    uint8_t nonce[NONCE_BYTES];
    size_t plain = n - SEAL_TAG_BYTES;
    int len = 0, tail = 0;

    put_nonce(number, last, nonce);
    if (EVP_CipherInit_ex(s->cipher, NULL, NULL, NULL, nonce, 0) == 1 &&
        EVP_CIPHER_CTX_ctrl(s->cipher, EVP_CTRL_GCM_SET_TAG, SEAL_TAG_BYTES, s->sealed + plain) ==
            1 &&
        EVP_CipherUpdate(s->cipher, to, &len, s->sealed, (int)plain) == 1 &&
        EVP_CipherFinal_ex(s->cipher, to + len, &tail) == 1)
        return 0;
    OPENSSL_cleanse(to, SEAL_PIECE_BYTES);
    return -EBADMSG;
}

/* The next piece of the file; called by one thread alone, whose the fields are that it uses. */
static int read_piece(void *arg, uint8_t *to, size_t *have, bool *last)
{
    struct seal *s = arg;
    size_t n = (size_t)MIN(s->left_bytes, (uint64_t)sizeof(s->sealed));

    *have = 0;
    *last = false;
    if (n < SEAL_TAG_BYTES)
        return -EBADMSG;
    s->left_bytes -= n;
    *last = s->left_bytes == 0;
    int rc = io_read_full(s->fd, s->sealed, n);
    if (rc < 0)
        return rc == -ENODATA ? -EBADMSG : rc;
    rc = open_piece(s, s->opened++, *last, n, to);
    if (rc == 0)
        *have = n - SEAL_TAG_BYTES;
    return rc;
}

void seal_read_ahead(struct seal *s)
{
    if (!s->ahead && !s->begun)
        s->ahead = ahead_begin(read_piece, s, SEAL_PIECE_BYTES);
}

/* The number is that of the piece in s->piece, or of the one that could not be read. */
static int next_piece(struct seal *s)
{
    if (s->last)
        return -ENODATA;
    s->number += s->begun;
    s->begun = true;
    s->used = s->have = 0;
    if (s->ahead)
        return ahead_take(s->ahead, &s->piece, &s->have, &s->last);
    s->piece = s->plain;
    return read_piece(s, s->plain, &s->have, &s->last);
}

int seal_read(struct seal *s, void *out, size_t n)
{
    uint8_t *to = out;

    while (n > 0) {
        int rc = s->used == s->have ? next_piece(s) : 0;
        size_t some = MIN(n, s->have - s->used);

        if (rc < 0)
            return rc;
        memcpy(to, s->piece + s->used, some);
        s->used += some;
        to += some;
        n -= some;
    }
    return 0;
}

int seal_read_end(struct seal *s)
{
    int rc = s->begun ? 0 : next_piece(s);

    if (rc < 0)
        return rc;
    return s->last && s->used == s->have ? 0 : -EBADMSG;
}
