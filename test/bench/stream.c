/* Files in and out, and what the machine itself takes for the same bytes.
 *
 *   stream serve DIR      three servers on ports of 127.0.0.1, printed in this order, until standard input
 *                         ends: plain (eats what comes, gives zeros), file (writes what comes to a new nameless
 *                         file in DIR, gives it back), relay (copies between its client and file, with
 *                         read and write and one buffer a direction)
 *   stream put PORT MIB ROUNDS PATH [HEADER...]   POSTs so many MiB; microseconds of each round
 *   stream get PORT MIB ROUNDS PATH [HEADER...]   GETs them
 *
 * Client and servers know just as much HTTP as the bench needs: one request after the other, bodies with a
 * length. The same client measures these servers and cay. */
#include "base/clock.h"
#include "base/io.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>

#define MIB         (1u << 20)
#define CHUNK_BYTES (256u * 1024u)
#define HEAD_BYTES  8192u
#define MIB_MAX     4096
#define ROUNDS_MAX  1000

static char chunk[MIB];

static void must(ssize_t r, const char *what)
{
    if (r >= 0)
        return;
    fprintf(stderr, "stream: %s: %s\n", what, strerror(r < -1 ? (int)-r : errno));
    _exit(1);
}

/* -- HTTP, as little as will do ---------------------------------------------------------------- */

struct head {
    char text[HEAD_BYTES]; /* NUL-terminated, with what of the body came along */
    size_t head_len, len;
    uint64_t length; /* Content-Length, 0 when absent */
};

static uint64_t header_number(const char *text, const char *name)
{
    const char *at = strcasestr(text, name);

    return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

/* False at the end of the connection. */
static bool read_head(int fd, struct head *h)
{
    char *end;

    h->len = 0;
    do {
        ssize_t n = read(fd, h->text + h->len, sizeof(h->text) - 1 - h->len);

        if (n <= 0)
            return false;
        h->len += (size_t)n;
        h->text[h->len] = '\0';
        end = strstr(h->text, "\r\n\r\n");
    } while (!end && h->len < sizeof(h->text) - 1);
    if (!end)
        return false;
    h->head_len = (size_t)(end + 4 - h->text);
    h->length = header_number(h->text, "\r\ncontent-length:");
    return true;
}

/* The rest of a body: to file, or nowhere when it is -1. */
static void take_body(int fd, const struct head *h, int file)
{
    size_t have = h->len - h->head_len;
    uint64_t left = h->length - MIN(h->length, have);

    if (file >= 0)
        must(io_write_full(file, h->text + h->head_len, have), "write");
    while (left > 0) {
        ssize_t n = read(fd, chunk, MIN(left, CHUNK_BYTES));

        must(n > 0 ? 0 : -EPIPE, "body");
        if (file >= 0)
            must(io_write_full(file, chunk, (size_t)n), "write");
        left -= (uint64_t)n;
    }
}

/* -- servers ----------------------------------------------------------------------------------- */

static int listen_any(int *port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    must(fd, "socket");
    must(bind(fd, (struct sockaddr *)&a, sizeof(a)) | listen(fd, 8), "listen");
    must(getsockname(fd, (struct sockaddr *)&a, &n), "port");
    *port = ntohs(a.sin_port);
    return fd;
}

static int connect_to(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                            .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

    must(fd, "socket");
    must(connect(fd, (struct sockaddr *)&a, sizeof(a)), "connect");
    must(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)), "nodelay");
    return fd;
}

static void give(int fd, int file, uint64_t length)
{
    char head[128];
    int n = snprintf(head, sizeof(head), "HTTP/1.1 200 OK\r\nContent-Length: %llu\r\n\r\n",
                     (unsigned long long)length);

    must(io_write_full(fd, head, (size_t)n), "answer");
    while (length > 0) {
        ssize_t got = (ssize_t)MIN(length, CHUNK_BYTES);

        if (file >= 0)
            got = read(file, chunk, (size_t)got);
        must(got > 0 ? 0 : -ENODATA, "file");
        must(io_write_full(fd, chunk, (size_t)got), "answer");
        length -= (uint64_t)got;
    }
}

/* A POST goes to a new file; the ones before it stay, as what is uploaded does. */
static void next_file(const char *dir, int *file)
{
    *file = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    must(*file, dir);
}

/* A GET gives X-Bytes of the last file. */
static void serve_one(int fd, const char *dir, int *file)
{
    static const char done[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    struct head h;

    while (read_head(fd, &h)) {
        if (strncmp(h.text, "GET", 3) == 0) {
            if (dir)
                must(lseek(*file, 0, SEEK_SET), "seek");
            give(fd, *file, header_number(h.text, "\r\nx-bytes:"));
            continue;
        }
        if (dir)
            next_file(dir, file);
        take_body(fd, &h, *file);
        must(io_write_full(fd, done, sizeof(done) - 1), "answer");
    }
}

/* dir: NULL for no files. */
static void serve(int listener, const char *dir, int upstream)
{
    int file = -1;

    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC), one = 1;

        must(fd, "accept");
        must(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)), "nodelay");
        serve_one(fd, dir, &file);
        close(fd);
    }
}

static bool copy_some(int from, int to)
{
    ssize_t n = read(from, chunk, CHUNK_BYTES);

    return n > 0 && io_write_full(to, chunk, (size_t)n) == 0;
}

static void relay(int listener, const char *dir, int upstream)
{
    for (;;) {
        struct pollfd p[2] = {{.events = POLLIN}, {.events = POLLIN}};
        bool open = true;

        p[0].fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        must(p[0].fd, "accept");
        p[1].fd = connect_to(upstream);
        while (open && poll(p, 2, -1) > 0) {
            if (p[0].revents)
                open = copy_some(p[0].fd, p[1].fd);
            if (p[1].revents)
                open = copy_some(p[1].fd, p[0].fd) && open;
        }
        close(p[0].fd);
        close(p[1].fd);
    }
}

static int start(void (*run)(int listener, const char *dir, int upstream), const char *dir,
                 int upstream)
{
    int port, listener = listen_any(&port);
    pid_t pid = fork();

    must(pid, "fork");
    if (pid == 0) {
        must(prctl(PR_SET_PDEATHSIG, SIGKILL), "prctl");
        run(listener, dir, upstream);
    }
    close(listener);
    return port;
}

/* The nameless files go with their process. */
static int mode_serve(char **args)
{
    int plain = start(serve, NULL, 0), stored = start(serve, args[0], 0);

    printf("%d %d %d\n", plain, stored, start(relay, NULL, stored));
    fflush(stdout);
    while (read(0, chunk, sizeof(chunk)) > 0)
        continue;
    return 0;
}

/* -- the client -------------------------------------------------------------------------------- */

/* Request line and headers; lengths end it. */
static size_t make_head(char *out, const char *method, char **args, const char *more,
                        uint64_t bytes)
{
    int n = snprintf(out, HEAD_BYTES, "%s %s HTTP/1.1\r\nHost: 127.0.0.1:%s\r\n", method, args[3],
                     args[0]);

    for (char **header = args + 4; *header && n < (int)HEAD_BYTES; header++)
        n += snprintf(out + n, HEAD_BYTES - (size_t)n, "%s\r\n", *header);
    if (n < (int)HEAD_BYTES)
        n += snprintf(out + n, HEAD_BYTES - (size_t)n, "%s: %llu\r\n\r\n", more,
                      (unsigned long long)bytes);
    must(n < (int)HEAD_BYTES ? 0 : -EMSGSIZE, "head");
    return (size_t)n;
}

static void check_answer(int fd, struct head *h, uint64_t bytes)
{
    must(read_head(fd, h) ? 0 : -EPIPE, "no answer");
    if (strncmp(h->text, "HTTP/1.1 20", 11) != 0 || (bytes > 0 && h->length != bytes)) {
        fprintf(stderr, "stream: refused: %.300s\n", h->text);
        _exit(1);
    }
    take_body(fd, h, -1);
}

static uint64_t put_once(int fd, const char *head, size_t head_len, const char *data, int mib)
{
    uint64_t begun = clock_mono_us();
    struct head h;

    must(io_write_full(fd, head, head_len), "request");
    for (int i = 0; i < mib; i++)
        must(io_write_full(fd, data, MIB), "body");
    check_answer(fd, &h, 0);
    return clock_mono_us() - begun;
}

static uint64_t get_once(int fd, const char *head, size_t head_len, int mib)
{
    uint64_t begun = clock_mono_us();
    struct head h;

    must(io_write_full(fd, head, head_len), "request");
    check_answer(fd, &h, (uint64_t)mib * MIB);
    return clock_mono_us() - begun;
}

static int client(bool put, char **args)
{
    int fd = connect_to(atoi(args[0])), mib = atoi(args[1]), rounds = atoi(args[2]);
    uint64_t bytes = (uint64_t)mib * MIB;
    static char data[MIB];
    char head[HEAD_BYTES];
    size_t head_len;

    if (mib < 1 || mib > MIB_MAX || rounds < 1 || rounds > ROUNDS_MAX)
        return 2;
    must(getrandom(data, 256, 0), "getrandom");
    for (size_t i = 256; i < sizeof(data); i++)
        data[i] = (char)(data[i - 256] + 1);
    head_len = make_head(head, put ? "POST" : "GET", args, put ? "Content-Length" : "X-Bytes",
                         bytes);
    for (int i = 0; i < rounds; i++)
        printf("%llu\n", (unsigned long long)(put ? put_once(fd, head, head_len, data, mib)
                                                  : get_once(fd, head, head_len, mib)));
    return 0;
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    if (argc == 3 && strcmp(argv[1], "serve") == 0)
        return mode_serve(argv + 2);
    if (argc >= 6 && (strcmp(argv[1], "put") == 0 || strcmp(argv[1], "get") == 0))
        return client(argv[1][0] == 'p', argv + 2);
    fprintf(stderr, "stream: see the head of test/bench/stream.c\n");
    return 2;
}
