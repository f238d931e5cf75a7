/* How many sandboxes a second, and how long each takes, with a client that costs next to nothing itself.
 *
 *   rate churn SECONDS CONNECTIONS   each connection creates and kills, one after the other
 *   rate hold COUNT CONNECTIONS      creates COUNT, waits for the end of standard input, kills them
 *
 * CAY_URL (http://ADDRESS:PORT) and CAY_API_KEY as `cay env` prints them. Prints lines of name and value;
 * times in microseconds. One blocking thread per connection. Exits with 1 when an answer was not good. */
#include "base/clock.h"
#include "base/io.h"
#include "base/util.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTIONS_MAX 64
#define COUNT_MAX       16384
#define SAMPLES_MAX     65536
#define ANSWER_MAX      16384
#define NAME_SIZE       64

struct worker {
    pthread_t thread;
    int fd;
    unsigned errors, n_create, n_kill;
    uint32_t create_us[SAMPLES_MAX], kill_us[SAMPLES_MAX];
    char answer[ANSWER_MAX];
};

static struct sockaddr_in server;
static const char *key;
static uint64_t end_ms;
static unsigned count, next_hold;
static char (*names)[NAME_SIZE]; /* of what is held */
static uint32_t *hold_us;

NORETURN static void die(const char *what)
{
    fprintf(stderr, "rate: %s\n", what);
    exit(2);
}

static int dial(void)
{
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, (struct sockaddr *)&server, sizeof(server)) < 0)
        die("cannot connect");
    (void)setsockopt(fd, IPPROTO_TCP, 1 /* TCP_NODELAY */, &one, sizeof(one));
    return fd;
}

/* Reads a whole answer with a length (or none, as of 204) into w->answer; its status, or 0. */
static unsigned read_answer(struct worker *w)
{
    size_t n = 0, want = 0;

    while (want == 0 || n < want) {
        ssize_t got = read(w->fd, w->answer + n, sizeof(w->answer) - 1 - n);
        const char *end, *length;

        if (got <= 0)
            return 0;
        n += (size_t)got;
        w->answer[n] = '\0';
        end = want == 0 ? strstr(w->answer, "\r\n\r\n") : NULL;
        if (!end)
            continue;
        length = strcasestr(w->answer, "\r\ncontent-length:");
        want = (size_t)(end + 4 - w->answer);
        if (length && length < end)
            want += strtoul(length + 17, NULL, 10);
        if (want >= sizeof(w->answer))
            return 0;
    }
    return (unsigned)strtoul(w->answer + 9, NULL, 10);
}

static unsigned call(struct worker *w, const char *method, const char *path, const char *body)
{
    char text[1024];
    int n = snprintf(text, sizeof(text),
                     "%s %s HTTP/1.1\r\nHost: bench\r\nX-API-Key: %s\r\nContent-Length: %zu\r\n"
                     "Content-Type: application/json\r\n\r\n%s",
                     method, path, key, strlen(body), body);

    if (n < 0 || (size_t)n >= sizeof(text) || io_write_full(w->fd, text, (size_t)n) < 0)
        return 0;
    return read_answer(w);
}

static bool create(struct worker *w, char name[static NAME_SIZE])
{
    uint64_t began = clock_mono_us();
    unsigned status = call(w, "POST", "/v2/sandboxes", "{\"templateID\":\"host\"}");
    const char *id = strstr(w->answer, "\"sandboxID\":");
    size_t n;

    if (w->n_create < SAMPLES_MAX)
        w->create_us[w->n_create++] = (uint32_t)(clock_mono_us() - began);
    if (status != 201 || !id || !(id = strchr(id + 12, '"'))) {
        fprintf(stderr, "rate: create: %u %.300s\n", status, w->answer);
        return false;
    }
    n = strcspn(++id, "\"");
    if (n >= NAME_SIZE)
        return false;
    memcpy(name, id, n);
    name[n] = '\0';
    return true;
}

static bool end(struct worker *w, const char *name)
{
    uint64_t began = clock_mono_us();
    char path[NAME_SIZE + 16];
    unsigned status;

    snprintf(path, sizeof(path), "/sandboxes/%s", name);
    status = call(w, "DELETE", path, "");
    if (w->n_kill < SAMPLES_MAX)
        w->kill_us[w->n_kill++] = (uint32_t)(clock_mono_us() - began);
    return status == 204;
}

static void *churn(void *arg)
{
    struct worker *w = arg;
    char name[NAME_SIZE];

    while (clock_mono_ms() < end_ms && w->errors == 0)
        if (!create(w, name) || !end(w, name))
            w->errors++;
    return NULL;
}

static void *hold(void *arg)
{
    struct worker *w = arg;
    unsigned i;

    while (w->errors == 0 && (i = __atomic_fetch_add(&next_hold, 1, __ATOMIC_RELAXED)) < count) {
        if (!create(w, names[i]))
            w->errors++;
        else if (w->n_create > 0)
            hold_us[i] = w->create_us[w->n_create - 1];
    }
    return NULL;
}

static void *drop(void *arg)
{
    struct worker *w = arg;
    unsigned i;

    while ((i = __atomic_fetch_add(&next_hold, 1, __ATOMIC_RELAXED)) < count)
        if (names[i][0] && !end(w, names[i]))
            w->errors++;
    return NULL;
}

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static void print_times(const char *what, uint32_t *us, size_t n)
{
    if (n == 0)
        return;
    qsort(us, n, sizeof(*us), by_size);
    printf("%s_count %zu\n%s_min_us %u\n%s_p50_us %u\n%s_p90_us %u\n%s_p99_us %u\n", what, n, what,
           us[0], what, us[n / 2], what, us[n * 9 / 10], what, us[n * 99 / 100]);
}

static void print_all(struct worker *w, unsigned n)
{
    uint32_t *all = calloc((size_t)n * SAMPLES_MAX, sizeof(*all));
    size_t creates = 0, kills = 0;

    if (!all)
        die("out of memory");
    for (unsigned i = 0; i < n; i++) {
        memcpy(all + creates, w[i].create_us, w[i].n_create * sizeof(*all));
        creates += w[i].n_create;
    }
    print_times("create", all, creates);
    for (unsigned i = 0; i < n; i++) {
        memcpy(all + kills, w[i].kill_us, w[i].n_kill * sizeof(*all));
        kills += w[i].n_kill;
    }
    print_times("kill", all, kills);
    free(all);
}

/* Runs fn on all connections; milliseconds that it took. */
static uint64_t run(struct worker *w, unsigned n, void *(*fn)(void *))
{
    uint64_t began = clock_mono_ms();

    next_hold = 0;
    for (unsigned i = 0; i < n; i++)
        if (pthread_create(&w[i].thread, NULL, fn, &w[i]) != 0)
            die("cannot start a thread");
    for (unsigned i = 0; i < n; i++)
        pthread_join(w[i].thread, NULL);
    return MAX(clock_mono_ms() - began, (uint64_t)1);
}

static void run_hold(struct worker *w, unsigned n)
{
    uint64_t took;
    char byte;

    names = calloc(count, sizeof(*names));
    hold_us = calloc(count, sizeof(*hold_us));
    if (!names || !hold_us)
        die("out of memory");
    took = run(w, n, hold);
    printf("creates_per_s %.1f\n", count * 1000.0 / (double)took);
    print_times("first_create", hold_us, MIN(count, 100u));
    if (count > 100)
        print_times("last_create", hold_us + count - 100, 100);
    printf("held %u\n", count);
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    took = run(w, n, drop);
    printf("kills_per_s %.1f\n", count * 1000.0 / (double)took);
}

static void read_environment(void)
{
    const char *url = getenv("CAY_URL");
    char address[64];
    unsigned port;

    key = getenv("CAY_API_KEY");
    if (!url || !key || sscanf(url, "http://%63[0-9.]:%u", address, &port) != 2 || port > 65535 ||
        inet_pton(AF_INET, address, &server.sin_addr) != 1)
        die("CAY_URL=http://ADDRESS:PORT and CAY_API_KEY are needed");
    server.sin_family = AF_INET;
    server.sin_port = htons((uint16_t)port);
}

int main(int argc, char **argv)
{
    unsigned amount = argc == 4 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
    unsigned n = argc == 4 ? (unsigned)strtoul(argv[3], NULL, 10) : 0, errors = 0;
    struct worker *w;

    if (amount < 1 || amount > COUNT_MAX || n < 1 || n > CONNECTIONS_MAX)
        die("usage: rate churn SECONDS CONNECTIONS | rate hold COUNT CONNECTIONS");
    read_environment();
    w = calloc(n, sizeof(*w));
    if (!w)
        die("out of memory");
    for (unsigned i = 0; i < n; i++)
        w[i].fd = dial();
    if (strcmp(argv[1], "churn") == 0) {
        unsigned creates = 0;
        uint64_t took;

        end_ms = clock_mono_ms() + amount * UINT64_C(1000);
        took = run(w, n, churn);
        for (unsigned i = 0; i < n; i++)
            creates += w[i].n_create;
        printf("creates_per_s %.1f\n", creates * 1000.0 / (double)took);
    } else {
        count = amount;
        run_hold(w, n);
    }
    print_all(w, n);
    for (unsigned i = 0; i < n; i++)
        errors += w[i].errors;
    printf("errors %u\n", errors);
    return errors > 0;
}
