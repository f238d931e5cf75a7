#include "http/tls_conn.h"

#include "base/log.h"
#include "base/util.h"

#include <errno.h>
#include <openssl/err.h>
#include <string.h>

#define CIPHERS_SERVER "ECDHE+AESGCM:ECDHE+CHACHA20"
#define CIPHERS_CLIENT "ECDHE+AESGCM:ECDHE+CHACHA20:ECDHE+AES"
/* A peer chooses among what is offered, and a key exchange cannot be divided into turns: groups of
 * finite fields are left out, one of 8192 bits takes 100 ms of the loop, and a TLS 1.2 server's own
 * of 10000 bits more than half a second. */
#define GROUPS       "X25519:P-256:P-384:P-521"
#define ALPN         "\x08http/1.1"
#define RECORD_BYTES ((size_t)HTTP_LAYER_READ_BYTES)

struct tls_conn {
    SSL *ssl;
    const char *reason; /* it was lost for */
    int lost;           /* why OpenSSL is not to be asked again: -errno, or 0 */
    bool shut;          /* close_notify is out */
    unsigned messages;  /* of handshakes, since contents came last */
    unsigned reads;     /* of the socket, in this call */
};

/* -- the context ------------------------------------------------------------------------------- */

static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                           const unsigned char *in, unsigned in_len, void *arg)
{
    unsigned char *chosen;

    if (SSL_select_next_proto(&chosen, out_len, (const unsigned char *)ALPN, sizeof(ALPN) - 1, in,
                              in_len) != OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static bool choose_ciphers(SSL_CTX *ctx, bool client)
{
    if (SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) != 1 ||
        SSL_CTX_set_cipher_list(ctx, client ? CIPHERS_CLIENT : CIPHERS_SERVER) != 1 ||
        SSL_CTX_set1_groups_list(ctx, GROUPS) != 1)
        return false;
    if (client)
        return SSL_CTX_set_alpn_protos(ctx, (const unsigned char *)ALPN, sizeof(ALPN) - 1) == 0;
    SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, NULL);
    return SSL_CTX_set_num_tickets(ctx, 0) == 1;
}

SSL_CTX *tls_conn_context(bool client)
{
    SSL_CTX *ctx = SSL_CTX_new(client ? TLS_client_method() : TLS_server_method());

    if (!ctx)
        return NULL;
    /* OpenSSL wipes what was read in its own memory, which it gives back unwiped otherwise:
     * requests hold keys, and servers send back what they were sent. */
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_CLEANSE_PLAINTEXT);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    /* Without automatic retry one read handles one record, so that messages that carry nothing (key
     * updates) cannot hold the loop. */
    SSL_CTX_clear_mode(ctx, SSL_MODE_AUTO_RETRY);
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS);
    if (choose_ciphers(ctx, client))
        return ctx;
    SSL_CTX_free(ctx);
    return NULL;
}

/* -- a connection ------------------------------------------------------------------------------ */

/* A message of a handshake, also of one that OpenSSL passes over. */
static void on_message(int sent, int version, int type, const void *data, size_t n, SSL *ssl,
                       void *arg)
{
    struct tls_conn *c = arg;

    if (!sent && type == SSL3_RT_HANDSHAKE)
        c->messages++;
}

/* OpenSSL stays inside a call for as long as there are messages that it passes over, or pieces of
 * one. So a call reads the socket so often, and goes on when that is told to be readable again; and
 * a peer whose messages bring nothing on has neither a read nor an alert of it any more. */
static long on_socket(BIO *b, int what, const char *data, size_t n, int argi, long argl, int result,
                      size_t *processed)
{
    struct tls_conn *c = (struct tls_conn *)BIO_get_callback_arg(b);

    if (what != BIO_CB_READ && what != BIO_CB_WRITE)
        return result;
    BIO_clear_retry_flags(b);
    if (c->messages > TLS_CONN_MESSAGES_MAX)
        return -1;
    if (what == BIO_CB_READ && c->reads++ >= TLS_CONN_READS_MAX) {
        BIO_set_retry_read(b);
        return -1;
    }
    return 1;
}

void *tls_conn_new(SSL *ssl)
{
    struct tls_conn *c = calloc(1, sizeof(*c));

    if (!c) {
        SSL_free(ssl);
        return NULL;
    }
    c->ssl = ssl;
    SSL_set_msg_callback(ssl, on_message);
    SSL_set_msg_callback_arg(ssl, c);
    BIO_set_callback_ex(SSL_get_rbio(ssl), on_socket); /* the same for what is written */
    BIO_set_callback_arg(SSL_get_rbio(ssl), (char *)c);
    return c;
}

/* Before each call of OpenSSL: its errors are kept by the thread. */
static void enter(struct tls_conn *c)
{
    ERR_clear_error();
    c->reads = 0;
}

static void *conn_open(void *ctx, int fd)
{
    SSL *ssl = SSL_new(ctx);

    if (!ssl || SSL_set_fd(ssl, fd) != 1) {
        SSL_free(ssl);
        return NULL;
    }
    SSL_set_accept_state(ssl);
    return tls_conn_new(ssl);
}

SSL *tls_conn_ssl(void *layer)
{
    return ((struct tls_conn *)layer)->ssl;
}

const char *tls_conn_reason(const void *layer)
{
    return ((const struct tls_conn *)layer)->reason;
}

/* Translates the result of OpenSSL's last call on this connection. 0: the peer announced its
 * end. */
static int result(struct tls_conn *c, int r)
{
    bool ended;

    switch (SSL_get_error(c->ssl, r)) {
    case SSL_ERROR_WANT_READ: return -EAGAIN;
    case SSL_ERROR_WANT_WRITE: return -EINPROGRESS;
    case SSL_ERROR_ZERO_RETURN: return 0;
    default:
        c->reason = c->messages > TLS_CONN_MESSAGES_MAX
                        ? "too many handshake messages"
                        : ERR_reason_error_string(ERR_peek_last_error());
        ended = ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
        log_debug("TLS: a connection is lost: %s", c->reason ? c->reason : "no reason given");
        ERR_clear_error();
        c->lost = ended ? -ENODATA : -ECONNRESET;
        return c->lost;
    }
}

static int conn_begin(void *layer)
{
    struct tls_conn *c = layer;
    int r;

    enter(c);
    r = SSL_do_handshake(c->ssl);
    if (r == 1)
        return 0;
    r = result(c, r);
    return r == 0 || r == -ENODATA ? -ECONNRESET : r;
}

/* Record by record: a call gives one at most, and it fits. Bytes that came before a connection was
 * lost are given first: many servers end without a word after their answer. */
static ssize_t conn_read(void *layer, void *out, size_t n, bool *end)
{
    struct tls_conn *c = layer;
    size_t have = 0, got;
    int r = 1;

    if (c->lost)
        return c->lost;
    enter(c);
    while (n - have >= HTTP_LAYER_READ_BYTES && r == 1) {
        r = SSL_read_ex(c->ssl, (char *)out + have, n - have, &got);
        have += r == 1 ? got : 0;
        c->messages = r == 1 ? 0 : c->messages;
    }
    if (r == 1)
        return (ssize_t)have;
    r = result(c, r);
    if (have == 0)
        return r;
    *end |= r == 0;
    return (ssize_t)have;
}

/* Writes a record. */
static ssize_t write_record(struct tls_conn *c, const void *data, size_t n)
{
    size_t sent = 0;
    int r;

    enter(c);
    r = SSL_write_ex(c->ssl, data, n, &sent);
    if (r == 1)
        return (ssize_t)sent;
    r = result(c, r);
    return r == 0 ? -EPIPE : r;
}

/* The next record's content, from `skip` bytes into the first piece on: as it is where that fills a
 * record, else small pieces together (a head and the beginning of its body). */
static const void *gather(const struct iovec *iov, int n, size_t skip, char *record, size_t *len)
{
    *len = iov[0].iov_len - skip;
    if (*len >= RECORD_BYTES || n == 1)
        return (const char *)iov[0].iov_base + skip;
    *len = 0;
    for (int i = 0; i < n && *len < RECORD_BYTES; i++, skip = 0) {
        size_t part = MIN(iov[i].iov_len - skip, RECORD_BYTES - *len);

        if (part > 0)
            memcpy(record + *len, (const char *)iov[i].iov_base + skip, part);
        *len += part;
    }
    return record;
}

static ssize_t conn_write(void *layer, const struct iovec *iov, int n)
{
    struct tls_conn *c = layer;
    char record[RECORD_BYTES];
    size_t total = 0, skip = 0, len;

    if (c->lost || c->shut)
        return -EPIPE;
    for (;;) {
        const void *data;
        ssize_t sent;

        while (n > 0 && skip >= iov->iov_len) {
            skip -= iov->iov_len;
            iov++;
            n--;
        }
        if (n == 0)
            return (ssize_t)total;
        data = gather(iov, n, skip, record, &len);
        sent = write_record(c, data, len);
        if (sent < 0)
            return total > 0 ? (ssize_t)total : sent;
        total += (size_t)sent;
        skip += (size_t)sent;
    }
}

static int conn_shut(void *layer)
{
    struct tls_conn *c = layer;
    int r;

    if (c->lost || c->shut || !SSL_is_init_finished(c->ssl))
        return 0;
    enter(c);
    r = SSL_shutdown(c->ssl);
    if (r < 0 && SSL_get_error(c->ssl, r) == SSL_ERROR_WANT_WRITE)
        return -EINPROGRESS;
    ERR_clear_error();
    c->shut = true;
    return 0;
}

static void conn_close(void *layer)
{
    struct tls_conn *c = layer;

    SSL_free(c->ssl);
    free(c);
}

const struct http_layer_ops tls_conn_ops = {.open = conn_open,
                                            .begin = conn_begin,
                                            .read = conn_read,
                                            .write = conn_write,
                                            .shut = conn_shut,
                                            .close = conn_close};
