#include "egress_wire.h"

#include "base/io.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define HEAD_BYTES 4096

void wire_must(ssize_t r, const char *what)
{
    if (r >= 0)
        return;
    fprintf(stderr, "egress_load: %s: %s\n", what, strerror(r < -1 ? (int)-r : errno));
    _exit(1);
}

int wire_no_delay(int fd)
{
    int one = 1;

    wire_must(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)), "nodelay");
    return fd;
}

/* -- bytes ------------------------------------------------------------------------------------- */

void wire_write(struct wire *w, const void *data, size_t size)
{
    if (w->ssl)
        wire_must(SSL_write(w->ssl, data, (int)size) > 0 ? 0 : -EPIPE, "TLS write");
    else
        wire_must(io_write_full(w->fd, data, size), "write");
}

size_t wire_read(struct wire *w, void *data, size_t size)
{
    ssize_t n = w->ssl ? SSL_read(w->ssl, data, (int)MIN(size, (size_t)1 << 30))
                       : read(w->fd, data, size);

    if (n < 0 && w->ssl && SSL_get_error(w->ssl, (int)n) == SSL_ERROR_ZERO_RETURN)
        return 0;
    wire_must(n < 0 ? -EPIPE : 0, "read");
    return (size_t)n;
}

void wire_read_full(struct wire *w, void *data, size_t size)
{
    for (size_t at = 0, n; at < size; at += n) {
        n = wire_read(w, (char *)data + at, size - at);
        wire_must(n > 0 ? 0 : -EPIPE, "ended too early");
    }
}

/* -- opening ----------------------------------------------------------------------------------- */

static int connect_to(const char *address, const char *port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    wire_must(inet_pton(AF_INET, address, &a.sin_addr) - 1, "address");
    wire_must(fd, "socket");
    wire_must(connect(fd, (struct sockaddr *)&a, sizeof(a)), "connect");
    return wire_no_delay(fd);
}

/* RFC 9110 9.3.6 */
static void speak_connect(struct wire *w)
{
    char head[HEAD_BYTES];
    size_t at = 0;
    int n = snprintf(head, sizeof(head), "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", w->target->to,
                     w->target->to);

    wire_write(w, head, (size_t)n);
    while (at < 4 || memcmp(head + at - 4, "\r\n\r\n", 4) != 0) {
        wire_must(at < sizeof(head) ? 0 : -E2BIG, "CONNECT");
        wire_read_full(w, head + at++, 1);
    }
    wire_must(memcmp(head + 8, " 200", 4) == 0 ? 0 : -EACCES, "CONNECT");
}

/* RFC 1928, with a name or an IPv4 address. */
static void speak_socks5(struct wire *w)
{
    const char *colon = strrchr(w->target->to, ':');
    size_t length = colon ? (size_t)(colon - w->target->to) : 0;
    uint16_t port = htons((uint16_t)atoi(colon ? colon + 1 : ""));
    uint8_t m[300] = {5, 1, 0}, answer[10];
    char host[256] = "";
    size_t n = 4;

    wire_must(length > 0 && length < sizeof(host) ? 0 : -EINVAL, "host and port");
    memcpy(host, w->target->to, length);
    wire_write(w, m, 3);
    wire_read_full(w, answer, 2);
    memcpy(m, "\5\1\0\1", 4);
    if (inet_pton(AF_INET, host, m + 4) == 1) {
        n += 4;
    } else {
        m[3] = 3;
        m[n++] = (uint8_t)length;
        memcpy(m + n, host, length);
        n += length;
    }
    memcpy(m + n, &port, sizeof(port));
    wire_write(w, m, n + sizeof(port));
    wire_read_full(w, answer, sizeof(answer));
    wire_must(answer[1] == 0 && answer[3] == 1 ? 0 : -EACCES, "SOCKS5");
}

static void start_tls(struct wire *w)
{
    static SSL_CTX *ctx;

    if (!ctx) {
        ctx = SSL_CTX_new(TLS_client_method());
        wire_must(ctx && SSL_CTX_load_verify_file(ctx, w->target->ca) == 1 ? 0 : -EINVAL,
                  "authorities");
        SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
        wire_must(SSL_CTX_set_alpn_protos(ctx, (const uint8_t *)"\10http/1.1", 9) == 0 ? 0
                                                                                       : -EINVAL,
                  "ALPN");
    }
    w->ssl = SSL_new(ctx);
    wire_must(w->ssl && SSL_set_fd(w->ssl, w->fd) == 1 &&
                      SSL_set1_host(w->ssl, w->target->name) == 1 &&
                      SSL_set_tlsext_host_name(w->ssl, w->target->name) == 1
                  ? 0
                  : -ENOMEM,
              "TLS");
    wire_must(SSL_connect(w->ssl) == 1 ? 0 : -EPROTO, "TLS handshake");
}

struct wire wire_open(const struct wire_target *t)
{
    struct wire w = {.target = t, .fd = connect_to(t->address, t->port)};

    if (t->proxy && strcmp(t->proxy, "connect") == 0)
        speak_connect(&w);
    else if (t->proxy)
        speak_socks5(&w);
    if (t->ca)
        start_tls(&w);
    return w;
}

struct wire wire_open_asked(const struct wire_target *t)
{
    struct wire w = wire_open(t);

    if (!t->ca)
        wire_write(&w, "echo\n", 5);
    wire_ask(&w);
    wire_answer(&w);
    return w;
}

void wire_close(struct wire *w)
{
    SSL_free(w->ssl);
    close(w->fd);
}

/* -- asking ------------------------------------------------------------------------------------ */

static void get(struct wire *w, unsigned mib)
{
    char head[HEAD_BYTES];
    int n = snprintf(head, sizeof(head), "GET /%u HTTP/1.1\r\nHost: %s\r\n\r\n", mib,
                     w->target->to);

    wire_write(w, head, (size_t)n);
}

void wire_ask(struct wire *w)
{
    char bytes[WIRE_TRIP_BYTES] = {0};

    if (w->target->ca)
        get(w, 0);
    else
        wire_write(w, bytes, sizeof(bytes));
}

/* The head of an answer, which must be a 200; bytes of its body that came with it, and how many it has. */
static size_t read_head(struct wire *w, uint64_t *body)
{
    char head[HEAD_BYTES + 1];
    size_t at = 0, n;
    char *end = NULL, *length;

    while (!end) {
        wire_must(at < HEAD_BYTES ? 0 : -E2BIG, "head");
        n = wire_read(w, head + at, HEAD_BYTES - at);
        wire_must(n > 0 ? 0 : -EPIPE, "ended before a head");
        at += n;
        head[at] = '\0';
        end = strstr(head, "\r\n\r\n");
    }
    *end = '\0';
    wire_must(strncmp(head, "HTTP/1.1 200", 12) == 0 ? 0 : -EACCES, head);
    length = strcasestr(head, "\ncontent-length:");
    wire_must(length ? 0 : -EPROTO, "no length");
    *body = strtoull(length + 16, NULL, 10);
    return at - (size_t)(end + 4 - head);
}

void wire_answer(struct wire *w)
{
    char bytes[HEAD_BYTES];
    uint64_t body = WIRE_TRIP_BYTES;
    size_t got = w->target->ca ? read_head(w, &body) : 0;

    wire_must(body == WIRE_TRIP_BYTES && got <= body ? 0 : -EPROTO, "length");
    wire_read_full(w, bytes, body - got);
}

void wire_pull(struct wire *w, unsigned mib)
{
    static char chunk[WIRE_CHUNK_BYTES];
    uint64_t want = (uint64_t)mib << 20, got = 0, body = want;

    if (w->target->ca) {
        get(w, mib);
        got = read_head(w, &body);
        wire_must(body == want ? 0 : -EPROTO, "length");
    } else {
        char line[8];

        snprintf(line, sizeof(line), "%4u\n", mib);
        wire_write(w, line, 5);
    }
    while (got < want) {
        size_t n = wire_read(w, chunk, sizeof(chunk));

        wire_must(n > 0 ? 0 : -EPIPE, "ended too early");
        got += n;
    }
}
