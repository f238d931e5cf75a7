/* The form of a sealed file (seal.h). A single piece is in memory at a time, in either direction,
 * or one for each thread of a reader; the writer keeps a full piece until it knows whether more
 * comes, as the last is marked. The reader knows the last one by the length of the file, which it
 * asks once: a file that was cut or continued has its mark in the wrong place. */

#include "seal/seal.h"

#include "base/ids.h"
#include "base/io.h"
#include "seal/openers.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>
#include <sys/stat.h>

#define MAGIC       "cayseal"
#define NONCE_BYTES 12
#define LONG_PIECES 4u /* from so many on threads are worth what it takes to start them */

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
    int rc = mac(secret->key, for_pieces, sizeof(for_pieces), h, offsetof(struct seal_header, mac),
                 key);

    for (size_t i = 0; rc == 0 && i < (to_write ? 1 : SEAL_WORKERS); i++) {
        EVP_CIPHER_CTX *cipher = EVP_CIPHER_CTX_new();

        s->workers[i].seal = s;
        s->workers[i].cipher = cipher;
        if (!cipher || EVP_CipherInit_ex(cipher, EVP_aes_256_gcm(), NULL, key, NULL, to_write) != 1)
            rc = -ENOMEM;
    }
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
    for (size_t i = 0; i < SEAL_WORKERS; i++)
        EVP_CIPHER_CTX_free(s->workers[i].cipher);
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
    struct seal_worker *w = &s->workers[0];
    uint8_t nonce[NONCE_BYTES];
    int len = 0, tail = 0;

    put_nonce(s->number, last, nonce);
    if (EVP_CipherInit_ex(w->cipher, NULL, NULL, NULL, nonce, 1) != 1 ||
        EVP_CipherUpdate(w->cipher, w->sealed, &len, w->plain, (int)s->used) != 1 ||
        EVP_CipherFinal_ex(w->cipher, w->sealed + len, &tail) != 1 ||
        EVP_CIPHER_CTX_ctrl(w->cipher, EVP_CTRL_GCM_GET_TAG, SEAL_TAG_BYTES, w->sealed + s->used) !=
            1)
        return -EIO;
    int rc = put(s, w->sealed, s->used + SEAL_TAG_BYTES);
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
        memcpy(s->workers[0].plain + s->used, from, some);
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
    s->file_bytes = (uint64_t)st.st_size;
    rc = io_read_full(fd, &h, sizeof(h));
    if (rc == 0)
        rc = check_header(secret, &h);
    return rc == 0 ? derive(s, secret, &h, false) : rc;
}

/* w->sealed has n bytes of it. */
static int open_piece(struct seal_worker *w, uint64_t number, bool last, size_t n)
{
    uint8_t nonce[NONCE_BYTES];
    size_t plain = n - SEAL_TAG_BYTES;
    int len = 0, tail = 0;

    put_nonce(number, last, nonce);
    if (EVP_CipherInit_ex(w->cipher, NULL, NULL, NULL, nonce, 0) == 1 &&
        EVP_CIPHER_CTX_ctrl(w->cipher, EVP_CTRL_GCM_SET_TAG, SEAL_TAG_BYTES, w->sealed + plain) ==
            1 &&
        EVP_CipherUpdate(w->cipher, w->plain, &len, w->sealed, (int)plain) == 1 &&
        EVP_CipherFinal_ex(w->cipher, w->plain + len, &tail) == 1)
        return 0;
    OPENSSL_cleanse(w->plain, SEAL_PIECE_BYTES);
    return -EBADMSG;
}

/* Workers share the descriptor: its own place in the file is not used. */
static int read_sealed(struct seal_worker *w, size_t n, uint64_t at)
{
    for (size_t have = 0; have < n;) {
        ssize_t got = pread(w->seal->fd, w->sealed + have, n - have, (off_t)(at + have));

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : -EBADMSG;
        have += (size_t)got;
    }
    return 0;
}

/* That piece of the file to w->plain. */
static int read_piece(struct seal_worker *w, uint64_t number, size_t *have, bool *last)
{
    uint64_t at = seal_piece_at(number), file_bytes = w->seal->file_bytes;
    uint64_t left = at < file_bytes ? file_bytes - at : 0;
    size_t n = (size_t)MIN(left, (uint64_t)sizeof(w->sealed));

    *have = 0;
    *last = false;
    if (n < SEAL_TAG_BYTES)
        return -EBADMSG;
    *last = n == left;
    int rc = read_sealed(w, n, at);
    if (rc == 0)
        rc = open_piece(w, number, *last, n);
    if (rc == 0)
        *have = n - SEAL_TAG_BYTES;
    return rc;
}

/* The number is that of the piece in the first worker's hands, or of the one that could not be
 * read. */
static int next_piece(struct seal *s)
{
    if (s->last)
        return -ENODATA;
    s->number += s->begun;
    s->begun = true;
    s->used = s->have = 0;
    return read_piece(&s->workers[0], s->number, &s->have, &s->last);
}

/* At most n of the stream, at least one, which stay there until the next call. */
static int take(struct seal *s, uint64_t n, const uint8_t **bytes, size_t *taken)
{
    int rc = s->used == s->have ? next_piece(s) : 0;

    if (rc == 0 && s->have == 0)
        rc = -ENODATA;
    if (rc < 0)
        return rc;
    *bytes = s->workers[0].plain + s->used;
    *taken = (size_t)MIN(n, (uint64_t)(s->have - s->used));
    s->used += *taken;
    return 0;
}

int seal_read(struct seal *s, void *out, size_t n)
{
    uint8_t *to = out;

    while (n > 0) {
        const uint8_t *from;
        size_t some;
        int rc = take(s, n, &from, &some);

        if (rc < 0)
            return rc;
        memcpy(to, from, some);
        to += some;
        n -= some;
    }
    return 0;
}

/* -- to a file --------------------------------------------------------------------------------- */

static int write_at(int fd, const uint8_t *bytes, size_t n, uint64_t at)
{
    while (n > 0) {
        ssize_t put = pwrite(fd, bytes, n, (off_t)at);

        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return put < 0 ? -errno : -EIO;
        bytes += put;
        at += (uint64_t)put;
        n -= (size_t)put;
    }
    return 0;
}

/* Whole pieces that go to a file one after the other. */
struct stretch {
    int fd;
    uint64_t at, first; /* where the piece of that number begins */
};

struct stretch_worker {
    struct seal_worker *worker;
    const struct stretch *stretch;
    uint64_t number; /* its latest */
    bool of_file;    /* that one could not be written */
};

static int open_to_file(void *arg, uint64_t number)
{
    struct stretch_worker *w = arg;
    const struct stretch *to = w->stretch;
    size_t have;
    bool last;
    int rc = read_piece(w->worker, number, &have, &last);

    w->number = number;
    if (rc < 0)
        return rc;
    rc = write_at(to->fd, w->worker->plain, have, to->at + (number - to->first) * SEAL_PIECE_BYTES);
    w->of_file = rc < 0;
    return rc;
}

/* How many pieces are next that have n bytes of the stream, or fewer, and are of full length. */
static uint64_t count_whole(const struct seal *s, uint64_t first, uint64_t n)
{
    uint64_t in_file = (s->file_bytes - sizeof(struct seal_header)) / sizeof(s->workers[0].sealed);

    return s->used == s->have && in_file > first ? MIN(n / SEAL_PIECE_BYTES, in_file - first) : 0;
}

_Static_assert(SEAL_WORKERS <= OPENERS_MAX, "a thread each");

static int read_stretch(struct seal *s, const struct stretch *to, uint64_t count, bool *of_file)
{
    struct stretch_worker all[SEAL_WORKERS];
    void *args[SEAL_WORKERS];
    uint64_t end = to->first + count, failed;

    for (size_t i = 0; i < SEAL_WORKERS; i++) {
        all[i] = (struct stretch_worker){.worker = &s->workers[i], .stretch = to};
        args[i] = &all[i];
    }
    int rc = openers_run(open_to_file, args, SEAL_WORKERS, to->first, end, &failed);
    s->begun = true;
    s->number = rc < 0 ? failed : end - 1;
    s->last = rc == 0 && seal_piece_at(end) >= s->file_bytes;
    s->used = s->have = 0;
    for (size_t i = 0; rc < 0 && i < SEAL_WORKERS; i++)
        *of_file |= all[i].of_file && all[i].number == failed;
    return rc;
}

static int copy_some(struct seal *s, int fd, uint64_t at, uint64_t n, size_t *copied, bool *of_file)
{
    const uint8_t *bytes;
    int rc = take(s, n, &bytes, copied);

    if (rc < 0)
        return rc;
    rc = write_at(fd, bytes, *copied, at);
    *of_file = rc < 0;
    return rc;
}

int seal_read_to(struct seal *s, int fd, uint64_t n, bool *of_file)
{
    int rc = 0;

    *of_file = false;
    for (uint64_t at = 0; rc == 0 && at < n;) {
        struct stretch to = {.fd = fd, .at = at, .first = s->number + s->begun};
        uint64_t count = count_whole(s, to.first, n - at);
        size_t copied = 0;

        if (count >= LONG_PIECES)
            rc = read_stretch(s, &to, count, of_file);
        else
            rc = copy_some(s, fd, at, n - at, &copied, of_file);
        at += count >= LONG_PIECES ? count * SEAL_PIECE_BYTES : copied;
    }
    return rc;
}

int seal_read_end(struct seal *s)
{
    int rc = s->begun ? 0 : next_piece(s);

    if (rc < 0)
        return rc;
    return s->last && s->used == s->have ? 0 : -EBADMSG;
}
