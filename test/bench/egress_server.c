#include "egress_server.h"

#include "base/io.h"
#include "egress_wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define PIPE_BYTES  (256 * 1024)
#define HEAD_BYTES  4096
#define PIECE_BYTES (64 * 1024)
#define CARRIED_MAX 128

static char chunk[WIRE_CHUNK_BYTES];

static int listen_on(int type, const char *port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0), one = 1;

    wire_must(fd, "socket");
    wire_must(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), "reuse");
    wire_must(bind(fd, (struct sockaddr *)&a, sizeof(a)), "bind");
    wire_must(type == SOCK_STREAM ? listen(fd, 4096) : 0, "listen");
    return fd;
}

static void say_ready(void)
{
    printf("ready\n");
    fflush(stdout);
}

/* A child for each connection. */
static void serve_all(int listener, void (*serve)(int fd))
{
    signal(SIGCHLD, SIG_IGN);
    say_ready();
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

        wire_must(fd, "accept");
        if (fork() == 0) {
            close(listener);
            serve(wire_no_delay(fd));
            _exit(0);
        }
        close(fd);
    }
}

/* -- bytes: a connection begins with "echo", or with how many MiB are wanted --------------------- */

static void serve_bytes(int fd)
{
    char line[32] = "";
    ssize_t n = io_read_full(fd, line, 5);

    if (n < 0)
        return;
    if (memcmp(line, "echo\n", 5) == 0) {
        while ((n = read(fd, chunk, sizeof(chunk))) > 0)
            if (io_write_full(fd, chunk, (size_t)n) < 0)
                break;
        return;
    }
    for (long mib = atol(line); mib > 0; mib--)
        if (io_write_full(fd, chunk, sizeof(chunk)) < 0)
            break;
}

int server_bytes(char **args)
{
    serve_all(listen_on(SOCK_STREAM, args[0]), serve_bytes);
    return 1;
}

/* -- HTTP over TLS: GET /N is N MiB, or 64 bytes ------------------------------------------------- */

static SSL_CTX *tls;
static char demanded[256]; /* a line of the head */

/* False at the end. */
static bool read_request(SSL *ssl, char head[static HEAD_BYTES + 1])
{
    size_t at = 0;

    for (;;) {
        int n = SSL_read(ssl, head + at, (int)(HEAD_BYTES - at));

        if (n <= 0)
            return false;
        at += (size_t)n;
        head[at] = '\0';
        if (strstr(head, "\r\n\r\n"))
            return true;
        if (at == HEAD_BYTES)
            return false;
    }
}

static bool answer(SSL *ssl, unsigned mib)
{
    char text[HEAD_BYTES];
    int n = snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\nContent-Length: %llu\r\n\r\n",
                     mib ? (unsigned long long)mib << 20 : (unsigned long long)WIRE_TRIP_BYTES);

    if (mib == 0) {
        memset(text + n, 'x', WIRE_TRIP_BYTES);
        return SSL_write(ssl, text, n + WIRE_TRIP_BYTES) > 0;
    }
    for (bool fine = SSL_write(ssl, text, n) > 0; fine && mib > 0; mib--)
        fine = SSL_write(ssl, chunk, sizeof(chunk)) > 0;
    return mib == 0;
}

static void serve_https(int fd)
{
    static const char refusal[] = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n";
    SSL *ssl = SSL_new(tls);
    char head[HEAD_BYTES + 1];

    if (!ssl || SSL_set_fd(ssl, fd) != 1 || SSL_accept(ssl) != 1)
        return;
    while (read_request(ssl, head)) {
        bool allowed = strcasestr(head, demanded) != NULL;

        if (strncmp(head, "GET /", 5) != 0)
            return;
        if (allowed ? !answer(ssl, (unsigned)atoi(head + 5))
                    : SSL_write(ssl, refusal, sizeof(refusal) - 1) <= 0)
            return;
    }
}

int server_https(char **args)
{
    if (strcmp(args[3], "-") != 0)
        snprintf(demanded, sizeof(demanded), "\r\nauthorization: bearer %s\r\n", args[3]);
    tls = SSL_CTX_new(TLS_server_method());
    wire_must(tls && SSL_CTX_use_certificate_chain_file(tls, args[1]) == 1 &&
                      SSL_CTX_use_PrivateKey_file(tls, args[2], SSL_FILETYPE_PEM) == 1
                  ? 0
                  : -EINVAL,
              "certificate");
    serve_all(listen_on(SOCK_STREAM, args[0]), serve_https);
    return 1;
}

/* -- HTTP: GET /N is N MiB of one letter, a connection each --------------------------------------- */

static void serve_http(int fd)
{
    char head[HEAD_BYTES + 1] = "", text[HEAD_BYTES];
    ssize_t n = 1;
    long mib;

    for (size_t at = 0; n > 0 && at < HEAD_BYTES && !strstr(head, "\r\n\r\n"); at += (size_t)n)
        n = read(fd, head + at, HEAD_BYTES - at);
    if (n <= 0 || strncmp(head, "GET /", 5) != 0)
        return;
    mib = atol(head + 5);
    snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\nContent-Length: %ld\r\n\r\n", mib << 20);
    if (io_write_full(fd, text, strlen(text)) < 0)
        return;
    for (; mib > 0; mib--)
        if (io_write_full(fd, chunk, sizeof(chunk)) < 0)
            return;
}

int server_http(char **args)
{
    memset(chunk, args[1][0], sizeof(chunk));
    serve_all(listen_on(SOCK_STREAM, args[0]), serve_http);
    return 1;
}

/* The same without a process for each connection: what a server costs that answers a few bytes. */
int server_http_alone(char **args)
{
    int listener = listen_on(SOCK_STREAM, args[0]);

    say_ready();
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

        wire_must(fd, "accept");
        serve_http(wire_no_delay(fd));
        close(fd);
    }
}

/* -- relay by splice(2), both sockets in one edge-triggered epoll -------------------------------- */

struct half {
    int from, to, in, out;
    size_t held;
    bool eof;
};

static bool move(struct half *h)
{
    for (;;) {
        ssize_t n = 1;

        if (h->held == 0) {
            n = splice(h->from, NULL, h->in, NULL, PIPE_BYTES, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
            h->held = n > 0 ? (size_t)n : 0;
            h->eof |= n == 0;
        }
        if (h->held > 0) {
            n = splice(h->out, NULL, h->to, NULL, h->held, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
            h->held -= n > 0 ? (size_t)n : 0;
        }
        if (n <= 0)
            return !h->eof && (n == 0 || errno == EAGAIN);
    }
}

static const struct wire_target *relay_target;

/* Dials the server; both sockets tell the epoll's owner the number. */
static void open_halves(struct half h[static 2], int client, int epoll, uint32_t number)
{
    int server = wire_open(relay_target).fd, fds[2];
    struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                             .data.u32 = number};

    h[0] = (struct half){.from = client, .to = server};
    h[1] = (struct half){.from = server, .to = client};
    for (int i = 0; i < 2; i++) {
        wire_must(pipe2(fds, O_CLOEXEC | O_NONBLOCK), "pipe");
        wire_must(fcntl(fds[1], F_SETPIPE_SZ, PIPE_BYTES), "pipe size");
        h[i].out = fds[0];
        h[i].in = fds[1];
        wire_must(io_set_nonblock(h[i].from, true), "nonblock");
        wire_must(epoll_ctl(epoll, EPOLL_CTL_ADD, h[i].from, &ev), "epoll");
    }
}

static void relay(int client)
{
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event ev;
    struct half h[2];

    open_halves(h, client, epoll, 0);
    while (epoll_wait(epoll, &ev, 1, -1) >= 0)
        if (!move(&h[0]) || !move(&h[1]))
            break;
}

int server_relay(char **args)
{
    const struct wire_target target = {.address = args[1], .port = args[2]};
    int listener = atoi(args[0]);

    relay_target = &target;
    wire_must(io_set_nonblock(listener, false), "listener");
    serve_all(listener, relay);
    return 1;
}

/* -- the same for many connections in one process, a piece of each in turn ------------------------ */

struct carried {
    struct half half[2];
    bool used, ready;
};

static struct carried carried[CARRIED_MAX];

/* 1 it moved, 0 nothing to do now, -1 it is over. */
static int step(struct half *h)
{
    ssize_t n, sent = 0;

    n = h->held > 0
            ? 0
            : splice(h->from, NULL, h->in, NULL, PIECE_BYTES, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (h->held == 0 && (n == 0 || (n < 0 && errno != EAGAIN)))
        return -1;
    h->held += n > 0 ? (size_t)n : 0;
    if (h->held > 0)
        sent = splice(h->out, NULL, h->to, NULL, h->held, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (sent < 0 && errno != EAGAIN)
        return -1;
    h->held -= sent > 0 ? (size_t)sent : 0;
    return n > 0 || sent > 0;
}

static void close_carried(struct carried *c)
{
    for (int i = 0; i < 2; i++) {
        close(c->half[i].from);
        close(c->half[i].in);
        close(c->half[i].out);
    }
    *c = (struct carried){.used = false};
}

static void accept_carried(int listener, int epoll)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

    wire_must(fd, "accept");
    for (uint32_t i = 0; i < CARRIED_MAX; i++) {
        if (carried[i].used)
            continue;
        carried[i].used = true;
        open_halves(carried[i].half, wire_no_delay(fd), epoll, i);
        return;
    }
    close(fd);
}

/* Is there more to do at once? */
static bool carry_all(void)
{
    bool more = false;

    for (struct carried *c = carried; c < carried + CARRIED_MAX; c++) {
        int a, b;

        if (!c->used || !c->ready)
            continue;
        a = step(&c->half[0]);
        b = step(&c->half[1]);
        c->ready = a > 0 || b > 0;
        more |= c->ready;
        if (a < 0 || b < 0)
            close_carried(c);
    }
    return more;
}

int server_carry(char **args)
{
    const struct wire_target target = {.address = args[1], .port = args[2]};
    struct epoll_event ev[CARRIED_MAX], incoming = {.events = EPOLLIN, .data.u32 = CARRIED_MAX};
    int listener = listen_on(SOCK_STREAM, args[0]), epoll = epoll_create1(EPOLL_CLOEXEC);
    bool more = false;

    relay_target = &target;
    wire_must(epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &incoming), "epoll");
    say_ready();
    for (;;) {
        int n = epoll_wait(epoll, ev, CARRIED_MAX, more ? 0 : -1);

        wire_must(n, "epoll");
        for (int i = 0; i < n; i++) {
            if (ev[i].data.u32 == CARRIED_MAX)
                accept_carried(listener, epoll);
            else
                carried[ev[i].data.u32].ready = true;
        }
        more = carry_all();
    }
}

/* -- datagrams --------------------------------------------------------------------------------- */

int server_udp(char **args)
{
    int fd = listen_on(SOCK_DGRAM, args[0]);

    say_ready();
    for (;;) {
        struct sockaddr_in peer;
        socklen_t size = sizeof(peer);
        ssize_t n = recvfrom(fd, chunk, sizeof(chunk), 0, (struct sockaddr *)&peer, &size);

        wire_must(n, "receive");
        (void)!sendto(fd, chunk, (size_t)n, 0, (struct sockaddr *)&peer, size);
    }
}
