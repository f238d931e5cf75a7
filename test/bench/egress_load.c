/* What test/bench/egress.py measures with: a server and a client of bytes, and the least that a relay by
 * splice(2) can be.
 *
 *   egress_load server PORT                each connection begins with a line: "echo", or a number of bytes
 *                                          that it wants
 *   egress_load relay FD ADDRESS PORT      accepts on FD, carries both ways to ADDRESS, until killed
 *   egress_load trips ADDRESS PORT COUNT   microseconds of each round trip of 64 bytes on one connection
 *   egress_load connects ADDRESS PORT COUNT   of each connect, first round trip and close
 *   egress_load pull ADDRESS PORT MIB      MiB/s of one stream
 *   egress_load hold ADDRESS PORT COUNT    that many connections, each used once; says so, holds them */
#include "base/clock.h"
#include "base/io.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define CHUNK_BYTES (1u << 20)
#define PIPE_BYTES  (256 * 1024)
#define TRIP_BYTES  64

static char chunk[CHUNK_BYTES];

static void must(ssize_t r, const char *what)
{
    if (r >= 0)
        return;
    fprintf(stderr, "egress_load: %s: %s\n", what, strerror(r < -1 ? (int)-r : errno));
    _exit(1);
}

static int no_delay(int fd)
{
    int one = 1;

    must(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)), "nodelay");
    return fd;
}

static int connect_to(const char *address, const char *port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    must(inet_pton(AF_INET, address, &a.sin_addr) - 1, "address");
    must(fd, "socket");
    must(connect(fd, (struct sockaddr *)&a, sizeof(a)), "connect");
    return no_delay(fd);
}

/* -- server ------------------------------------------------------------------------------------ */

static void serve(int fd)
{
    char line[32] = "";
    ssize_t n = read(fd, line, 5); /* "echo\n", or a number of four digits and more: MiB */

    must(n == 5 ? 0 : -EPIPE, "greeting");
    if (memcmp(line, "echo\n", 5) == 0) {
        while ((n = read(fd, chunk, sizeof(chunk))) > 0)
            if (io_write_full(fd, chunk, (size_t)n) < 0)
                break;
        return;
    }
    for (long mib = atol(line); mib > 0; mib--)
        if (io_write_full(fd, chunk, CHUNK_BYTES) < 0)
            break;
}

static int mode_server(char **args)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(args[0]))};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

    signal(SIGCHLD, SIG_IGN);
    must(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), "reuse");
    must(bind(listener, (struct sockaddr *)&a, sizeof(a)) | listen(listener, 4096), "listen");
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

        must(fd, "accept");
        if (fork() == 0) {
            serve(no_delay(fd));
            _exit(0);
        }
        close(fd);
    }
}

/* -- relay: one connection at a time, both sockets in one edge-triggered epoll ------------------- */

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

static void carry(int client, int server)
{
    struct half h[2] = {{client, server}, {server, client}};
    int epoll = epoll_create1(EPOLL_CLOEXEC), fds[2];
    struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET};

    for (int i = 0; i < 2; i++) {
        must(pipe2(fds, O_CLOEXEC | O_NONBLOCK), "pipe");
        must(fcntl(fds[1], F_SETPIPE_SZ, PIPE_BYTES), "pipe size");
        h[i].out = fds[0];
        h[i].in = fds[1];
        must(io_set_nonblock(h[i].from, true), "nonblock");
        must(epoll_ctl(epoll, EPOLL_CTL_ADD, h[i].from, &ev), "epoll");
    }
    while (epoll_wait(epoll, &ev, 1, -1) >= 0)
        if (!move(&h[0]) || !move(&h[1]))
            break;
    for (int i = 0; i < 2; i++) {
        close(h[i].in);
        close(h[i].out);
        close(h[i].from);
    }
    close(epoll);
}

static int mode_relay(char **args)
{
    int listener = atoi(args[0]), fd;

    must(io_set_nonblock(listener, false), "listener");
    while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0)
        carry(no_delay(fd), connect_to(args[1], args[2]));
    return 1;
}

/* -- client ------------------------------------------------------------------------------------ */

static void trip(int fd)
{
    char bytes[TRIP_BYTES] = {0};

    must(io_write_full(fd, bytes, sizeof(bytes)), "write");
    must(io_read_full(fd, bytes, sizeof(bytes)), "read");
}

static int echo_connection(char **args)
{
    int fd = connect_to(args[0], args[1]);

    must(io_write_full(fd, "echo\n", 5), "greeting");
    trip(fd);
    return fd;
}

static int mode_trips(char **args)
{
    int fd = echo_connection(args);

    for (int i = atoi(args[2]); i > 0; i--) {
        uint64_t before = clock_mono_us();

        trip(fd);
        printf("%llu\n", (unsigned long long)(clock_mono_us() - before));
    }
    return 0;
}

static int mode_connects(char **args)
{
    for (int i = atoi(args[2]); i > 0; i--) {
        uint64_t before = clock_mono_us();

        close(echo_connection(args));
        printf("%llu\n", (unsigned long long)(clock_mono_us() - before));
    }
    return 0;
}

static int mode_pull(char **args)
{
    int fd = connect_to(args[0], args[1]);
    uint64_t want = (uint64_t)atoi(args[2]) << 20, got = 0, before = clock_mono_us();
    char line[8];

    snprintf(line, sizeof(line), "%4d\n", atoi(args[2]));
    must(io_write_full(fd, line, 5), "greeting");
    while (got < want) {
        ssize_t n = read(fd, chunk, sizeof(chunk));

        must(n > 0 ? 0 : -EPIPE, "read");
        got += (uint64_t)n;
    }
    printf("%llu\n", (unsigned long long)(got * 1000000 / (clock_mono_us() - before) >> 20));
    return 0;
}

static int mode_hold(char **args)
{
    for (int i = atoi(args[2]); i > 0; i--)
        (void)echo_connection(args);
    printf("held\n");
    fflush(stdout);
    while (read(0, chunk, 1) > 0)
        continue;
    return 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int args;
        int (*run)(char **args);
    } modes[] = {{"server", 1, mode_server},     {"relay", 3, mode_relay}, {"trips", 3, mode_trips},
                 {"connects", 3, mode_connects}, {"pull", 3, mode_pull},   {"hold", 3, mode_hold}};

    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < ARRAY_SIZE(modes); i++)
        if (argc == modes[i].args + 2 && strcmp(argv[1], modes[i].name) == 0)
            return modes[i].run(argv + 2);
    fprintf(stderr, "egress_load: see the comment at the top of its source\n");
    return 2;
}
