/* A relay that puts a server far away, where the kernel has no netem: each byte leaves it so long after it came,
 * in both directions, and as many may be on the way as fit into WAY_BYTES_MAX.
 *
 *   far LISTEN-ADDRESS PORT TO-ADDRESS PORT DELAY-MS [MBIT]
 *
 * MBIT: a link of so many megabits a second, in each direction of a connection; without it as fast as the machine goes.
 * Prints "ready". Handshakes of TCP are not delayed. Two threads for each direction of a connection. */

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CHUNK_BYTES    ((size_t)256 * 1024)
#define WAY_BYTES_MAX  ((size_t)64 * 1024 * 1024)
#define LINK_BYTES_MIN ((size_t)1024 * 1024)

struct chunk {
    struct chunk *next;
    uint64_t due_ns;
    size_t n; /* 0: the end */
    char data[];
};

struct way {
    int from, to;
    uint64_t delay_ns;
    uint64_t bits_per_ms; /* 0: no limit */
    uint64_t free_ns;     /* when the link has sent what is on it */
    size_t most;          /* bytes on the way */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct chunk *first, **last;
    size_t held;
};

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* When the last of n bytes that have come now has left the sender's end of the link. */
static uint64_t on_link(struct way *w, size_t n)
{
    uint64_t now = now_ns();

    if (w->bits_per_ms == 0)
        return now;
    w->free_ns = (w->free_ns > now ? w->free_ns : now) + n * 8 * 1000000 / w->bits_per_ms;
    return w->free_ns;
}

static void *take(void *arg)
{
    struct way *w = arg;
    struct chunk *c;
    ssize_t n;

    do {
        c = malloc(sizeof(*c) + CHUNK_BYTES);
        if (!c)
            abort();
        n = recv(w->from, c->data, CHUNK_BYTES, 0);
        c->next = NULL;
        c->n = n > 0 ? (size_t)n : 0;
        c->due_ns = on_link(w, c->n) + w->delay_ns;
        c = realloc(c, sizeof(*c) + c->n);
        pthread_mutex_lock(&w->lock);
        while (w->held > w->most)
            pthread_cond_wait(&w->changed, &w->lock);
        *w->last = c;
        w->last = &c->next;
        w->held += c->n;
        pthread_cond_broadcast(&w->changed);
        pthread_mutex_unlock(&w->lock);
    } while (n > 0);
    return NULL;
}

static struct chunk *next_chunk(struct way *w)
{
    struct chunk *c;

    pthread_mutex_lock(&w->lock);
    while (!w->first)
        pthread_cond_wait(&w->changed, &w->lock);
    c = w->first;
    w->first = c->next;
    if (!w->first)
        w->last = &w->first;
    w->held -= c->n;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    return c;
}

static void *give(void *arg)
{
    struct way *w = arg;
    struct chunk *c;
    size_t n;

    do {
        struct timespec due;

        c = next_chunk(w);
        n = c->n;
        due = (struct timespec){.tv_sec = (time_t)(c->due_ns / 1000000000),
                                .tv_nsec = (long)(c->due_ns % 1000000000)};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL) == EINTR)
            ;
        for (size_t sent = 0; sent < c->n;) {
            ssize_t s = send(w->to, c->data + sent, c->n - sent, MSG_NOSIGNAL);

            sent = s > 0 ? sent + (size_t)s : c->n; /* gone: the rest is thrown away */
        }
        free(c);
    } while (n > 0);
    shutdown(w->to, SHUT_WR);
    return NULL; /* its descriptors end with the program: this is a bench's */
}

static void start_way(int from, int to, uint64_t delay_ns, uint64_t bits_per_ms)
{
    struct way *w = calloc(1, sizeof(*w));
    pthread_t thread;

    if (!w)
        abort();
    *w = (struct way){.from = from,
                      .to = to,
                      .delay_ns = delay_ns,
                      .bits_per_ms = bits_per_ms,
                      .most = WAY_BYTES_MAX};
    if (bits_per_ms) /* bytes on the link, and as many in its sender's queue */
        w->most = LINK_BYTES_MIN + 2 * (size_t)(bits_per_ms * delay_ns / 8 / 1000000);
    w->last = &w->first;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    if (pthread_create(&thread, NULL, take, w) != 0 || pthread_detach(thread) != 0 ||
        pthread_create(&thread, NULL, give, w) != 0 || pthread_detach(thread) != 0)
        abort();
}

static struct sockaddr_in address_of(const char *address, const char *port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)strtol(port, NULL, 10))};

    if (inet_pton(AF_INET, address, &a.sin_addr) != 1) {
        fprintf(stderr, "far: %s is no address\n", address);
        exit(2);
    }
    return a;
}

int main(int argc, char **argv)
{
    struct sockaddr_in here, there;
    uint64_t delay_ns, bits_per_ms;
    int one = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (argc != 6 && argc != 7) {
        fprintf(stderr, "usage: far LISTEN-ADDRESS PORT TO-ADDRESS PORT DELAY-MS [MBIT]\n");
        return 2;
    }
    here = address_of(argv[1], argv[2]);
    there = address_of(argv[3], argv[4]);
    delay_ns = (uint64_t)(strtod(argv[5], NULL) * 1e6);
    bits_per_ms = argc == 7 ? strtoull(argv[6], NULL, 10) * 1000 : 0;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(listener, (struct sockaddr *)&here, sizeof(here)) < 0 || listen(listener, 64) < 0) {
        perror("far");
        return 1;
    }
    puts("ready");
    fflush(stdout);
    for (;;) {
        int from = accept4(listener, NULL, NULL, SOCK_CLOEXEC),
            to = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        if (from < 0 || connect(to, (struct sockaddr *)&there, sizeof(there)) < 0) {
            close(from);
            close(to);
            continue;
        }
        setsockopt(from, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        setsockopt(to, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        start_way(from, to, delay_ns, bits_per_ms);
        start_way(to, from, delay_ns, bits_per_ms);
    }
}
