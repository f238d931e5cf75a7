/* The load that test/bench/egress.py measures with.
 *
 *   egress_load [OPTION...] trips ADDRESS PORT COUNT      microseconds of each question and answer on one connection
 *   egress_load [OPTION...] connects ADDRESS PORT COUNT   of each connect, first question, answer, close
 *   egress_load [OPTION...] rate ADDRESS PORT N SECONDS   questions answered in a second, over N kept connections
 *   egress_load [OPTION...] pull ADDRESS PORT MIB         MiB/s of one stream
 *   egress_load [OPTION...] hold ADDRESS PORT    so many connections as each line says, each used once; says so
 *   egress_load dns ADDRESS PORT NAME SECONDS    answers in a second, WINDOW questions under way
 *   egress_load bytes PORT | https PORT CERTIFICATE KEY TOKEN | relay FD ADDRESS PORT | udp PORT    servers
 *   egress_load http PORT LETTER | http-alone PORT | carry PORT ADDRESS PORT      likewise
 *
 *   --proxy=connect|socks5   spoken to ADDRESS first
 *   --to=HOST:PORT           what the proxy is told, and the Host of requests
 *   --ca=FILE --name=NAME    HTTP over TLS, to a server of that name; otherwise 64 bytes and the same back */
#include "base/clock.h"
#include "base/io.h"
#include "egress_server.h"
#include "egress_wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define HELD_MAX 8192
#define WINDOW   16

static struct wire_target target;

static void aim(char **args)
{
    target.address = args[0];
    target.port = args[1];
}

static int mode_trips(char **args)
{
    struct wire w;

    aim(args);
    w = wire_open_asked(&target);
    for (int i = atoi(args[2]); i > 0; i--) {
        uint64_t before = clock_mono_us();

        wire_ask(&w);
        wire_answer(&w);
        printf("%llu\n", (unsigned long long)(clock_mono_us() - before));
    }
    return 0;
}

static int mode_connects(char **args)
{
    aim(args);
    for (int i = atoi(args[2]); i > 0; i--) {
        uint64_t before = clock_mono_us();
        struct wire w = wire_open_asked(&target);

        wire_close(&w);
        printf("%llu\n", (unsigned long long)(clock_mono_us() - before));
    }
    return 0;
}

static int mode_pull(char **args)
{
    unsigned mib = (unsigned)atoi(args[2]);
    struct wire w;
    uint64_t before;

    aim(args);
    w = wire_open(&target);
    before = clock_mono_us();
    wire_pull(&w, mib);
    printf("%.1f\n", mib * 1e6 / (double)(clock_mono_us() - before));
    return 0;
}

/* -- many at once ------------------------------------------------------------------------------ */

static struct wire held[HELD_MAX];
static struct pollfd polled[HELD_MAX];
static size_t n_held;

static void hold(size_t n)
{
    wire_must(n <= HELD_MAX ? 0 : -E2BIG, "connections");
    while (n_held < n) {
        held[n_held] = wire_open_asked(&target);
        polled[n_held] = (struct pollfd){.fd = held[n_held].fd, .events = POLLIN};
        n_held++;
    }
}

static int mode_hold(char **args)
{
    char line[32];

    aim(args);
    while (fgets(line, sizeof(line), stdin)) {
        hold((size_t)atoi(line));
        printf("%zu\n", n_held);
        fflush(stdout);
    }
    return 0;
}

static int mode_rate(char **args)
{
    uint64_t count = 0, begun, end;

    aim(args);
    hold((size_t)atoi(args[2]));
    begun = clock_mono_us();
    end = begun + (uint64_t)atoi(args[3]) * 1000000;
    for (size_t i = 0; i < n_held; i++)
        wire_ask(&held[i]);
    while (clock_mono_us() < end) {
        wire_must(poll(polled, n_held, 10000) - 1, "no answer");
        for (size_t i = 0; i < n_held; i++) {
            if (!polled[i].revents)
                continue;
            wire_answer(&held[i]);
            wire_ask(&held[i]);
            count++;
        }
    }
    printf("%.1f\n", (double)count * 1e6 / (double)(clock_mono_us() - begun));
    return 0;
}

/* -- DNS --------------------------------------------------------------------------------------- */

/* RFC 1035 4.1: a question for one address. */
static size_t question(const char *name, uint8_t m[static 512])
{
    size_t n = 12;

    memcpy(m, "\0\7\1\0\0\1\0\0\0\0\0\0", 12);
    for (const char *label = name; *label;) {
        size_t length = strcspn(label, ".");

        wire_must(length < 64 && n + length < 256 ? 0 : -EINVAL, "name");
        m[n++] = (uint8_t)length;
        memcpy(m + n, label, length);
        n += length;
        label += length + (label[length] == '.');
    }
    memcpy(m + n, "\0\0\1\0\1", 5);
    return n + 5;
}

static int mode_dns(char **args)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(args[1]))};
    const struct timeval patience = {.tv_sec = 5};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    uint8_t asked[512], got[512];
    size_t n = question(args[2], asked);
    uint64_t count = 0, begun = clock_mono_us(), end = begun + (uint64_t)atoi(args[3]) * 1000000;

    wire_must(inet_pton(AF_INET, args[0], &a.sin_addr) - 1, "address");
    wire_must(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), "timeout");
    wire_must(connect(fd, (struct sockaddr *)&a, sizeof(a)), "connect");
    for (int i = 0; i < WINDOW; i++)
        wire_must(send(fd, asked, n, 0), "send");
    for (; clock_mono_us() < end; count++) {
        ssize_t r = recv(fd, got, sizeof(got), 0);

        wire_must(r, "receive");
        wire_must((size_t)r >= n && memcmp(got, asked, 2) == 0 && (got[3] & 15) == 0 ? 0 : -EPROTO,
                  "answer");
        wire_must(send(fd, asked, n, 0), "send");
    }
    printf("%.1f\n", (double)count * 1e6 / (double)(clock_mono_us() - begun));
    return 0;
}

/* -- main -------------------------------------------------------------------------------------- */

static const struct option options[] = {{"proxy", required_argument, NULL, 'p'},
                                        {"to", required_argument, NULL, 't'},
                                        {"ca", required_argument, NULL, 'c'},
                                        {"name", required_argument, NULL, 'n'},
                                        {0}};

static const struct {
    const char *name;
    int args;
    int (*run)(char **args);
} modes[] = {
    {"trips", 3, mode_trips},   {"connects", 3, mode_connects},
    {"rate", 4, mode_rate},     {"pull", 3, mode_pull},
    {"hold", 2, mode_hold},     {"dns", 4, mode_dns},
    {"bytes", 1, server_bytes}, {"https", 4, server_https},
    {"relay", 3, server_relay}, {"http", 2, server_http},
    {"udp", 1, server_udp},     {"http-alone", 1, server_http_alone},
    {"carry", 3, server_carry},
};

int main(int argc, char **argv)
{
    int c;

    signal(SIGPIPE, SIG_IGN);
    while ((c = getopt_long(argc, argv, "+", options, NULL)) != -1) {
        switch (c) {
        case 'p': target.proxy = optarg; break;
        case 't': target.to = optarg; break;
        case 'c': target.ca = optarg; break;
        case 'n': target.name = optarg; break;
        default: return 2;
        }
    }
    for (size_t i = 0; optind < argc && i < ARRAY_SIZE(modes); i++)
        if (argc - optind == modes[i].args + 1 && strcmp(argv[optind], modes[i].name) == 0)
            return modes[i].run(argv + optind + 1);
    fprintf(stderr, "egress_load: see the comment at the top of its source\n");
    return 2;
}
