/* The bench's client: native, over connections that are kept, so that what is measured is the server.
 *
 *   load URL create COUNT            creates, each killed before the next
 *   load URL alone COUNT             the same, each when nothing of those before goes on any more
 *   load URL hold COUNT FILE         creates that live on; their ids are added to FILE
 *   load URL kill FILE CONNECTIONS   ends those of FILE
 *   load URL burst COUNT             so many creates at once, each on a connection of its own
 *   load URL sustain SECONDS CONNECTIONS   creates and kills in balance
 *   load URL exec COUNT              runs of /bin/true in one sandbox
 *   load URL whole COUNT             create, run of /bin/true, kill
 *   load URL use ID,ID...            a run of /bin/true in each of these
 *   load URL list COUNT              GET /sandboxes
 *   load URL pages COUNT             GET /v2/sandboxes to its last page
 *   load URL sandbox                 makes one; prints its id and token, not a time
 *
 * CAY_API_KEY is the key. Prints one time in microseconds a line; burst and sustain print first how long
 * the whole took. */
#include "calls.h"

#include "base/clock.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define COUNT_MAX       100000
#define CONNECTIONS_MAX 1024
#define ALONE_PAUSE_US \
    200000 /* a sandbox has ended, its slot is made again, and the kernel has cleaned up */

static const char *url, *key;

static NORETURN void die(const char *what)
{
    perror(what);
    exit(1);
}

static int number(const char *text, int max)
{
    int n = text ? atoi(text) : 0;

    if (n > 0 && n <= max)
        return n;
    fprintf(stderr, "load: \"%s\": a number from 1 to %d is needed\n", text ? text : "", max);
    exit(2);
}

static void print(uint64_t us)
{
    printf("%llu\n", (unsigned long long)us);
}

/* -- one after the other ----------------------------------------------------------------------- */

static void create_some(const char *text, useconds_t pause_us)
{
    int count = number(text, COUNT_MAX);
    struct calls c;
    struct made made;

    calls_open(&c, url, key);
    calls_connect(&c);
    for (int i = 0; i < count; i++) {
        uint64_t start = clock_mono_us();

        calls_create(&c, &made);
        print(clock_mono_us() - start);
        calls_kill(&c, made.id);
        if (pause_us > 0)
            usleep(pause_us);
    }
    calls_close(&c);
}

static void mode_create(char **args)
{
    create_some(args[0], 0);
}

static void mode_alone(char **args)
{
    create_some(args[0], ALONE_PAUSE_US);
}

static void mode_whole(char **args)
{
    int count = number(args[0], COUNT_MAX);
    struct calls c;
    struct made made;

    calls_open(&c, url, key);
    calls_connect(&c);
    for (int i = 0; i < count; i++) {
        uint64_t start = clock_mono_us();

        calls_create(&c, &made);
        calls_exec_true(&c, &made);
        calls_kill(&c, made.id);
        print(clock_mono_us() - start);
    }
    calls_close(&c);
}

static void mode_hold(char **args)
{
    int count = number(args[0], COUNT_MAX);
    FILE *ids = fopen(args[1], "a");
    struct calls c;
    struct made made;

    if (!ids)
        die(args[1]);
    calls_open(&c, url, key);
    calls_connect(&c);
    for (int i = 0; i < count; i++) {
        uint64_t start = clock_mono_us();

        calls_create(&c, &made);
        print(clock_mono_us() - start);
        fprintf(ids, "%s\n", made.id);
        fflush(ids);
        fflush(stdout);
    }
    calls_close(&c);
    fclose(ids);
}

static void mode_exec(char **args)
{
    int count = number(args[0], COUNT_MAX);
    struct calls c;
    struct made made;

    calls_open(&c, url, key);
    calls_create(&c, &made);
    calls_exec_true(&c, &made);
    for (int i = 0; i < count; i++) {
        uint64_t start = clock_mono_us();

        calls_exec_true(&c, &made);
        print(clock_mono_us() - start);
    }
    calls_kill(&c, made.id);
    calls_close(&c);
}

static void mode_use(char **args)
{
    struct made made;
    struct calls c;
    char *rest = NULL;

    calls_open(&c, url, key);
    calls_connect(&c);
    for (char *id = strtok_r(args[0], ",", &rest); id; id = strtok_r(NULL, ",", &rest)) {
        uint64_t start;

        calls_find(&c, id, &made);
        start = clock_mono_us();
        calls_exec_true(&c, &made);
        print(clock_mono_us() - start);
    }
    calls_close(&c);
}

static void mode_list(char **args)
{
    int count = number(args[0], COUNT_MAX);
    struct calls c;

    calls_open(&c, url, key);
    calls_connect(&c);
    for (int i = 0; i < count; i++) {
        uint64_t start = clock_mono_us();

        calls_get(&c, "/sandboxes");
        print(clock_mono_us() - start);
    }
    calls_close(&c);
}

static void mode_pages(char **args)
{
    int count = number(args[0], COUNT_MAX);
    char path[512];
    struct calls c;

    calls_open(&c, url, key);
    calls_connect(&c);
    for (int i = 0; i < count; i++) {
        uint64_t start = clock_mono_us();

        calls_get(&c, "/v2/sandboxes");
        while (c.next_token[0]) {
            snprintf(path, sizeof(path), "/v2/sandboxes?nextToken=%s", c.next_token);
            calls_get(&c, path);
        }
        print(clock_mono_us() - start);
    }
    calls_close(&c);
}

static void mode_sandbox(char **args)
{
    struct calls c;
    struct made made;

    calls_open(&c, url, key);
    calls_create(&c, &made);
    printf("%s\n%s\n", made.id, made.token);
    calls_close(&c);
}

/* -- side by side ------------------------------------------------------------------------------ */

struct worker {
    pthread_t thread;
    pthread_barrier_t *start;
    uint64_t until_ms;
    uint64_t *times; /* of creates, microseconds */
    int n;
    struct made made;
    FILE *ids;
};

static struct worker *spawn_workers(int count, void *(*run)(void *), uint64_t until_ms, FILE *ids)
{
    struct worker *w = calloc((size_t)count, sizeof(*w));
    static pthread_barrier_t start;

    if (!w || pthread_barrier_init(&start, NULL, (unsigned)count + 1) != 0)
        die("workers");
    for (int i = 0; i < count; i++) {
        w[i].start = &start;
        w[i].until_ms = until_ms;
        w[i].ids = ids;
        w[i].times = calloc(COUNT_MAX, sizeof(uint64_t));
        if (!w[i].times || pthread_create(&w[i].thread, NULL, run, &w[i]) != 0)
            die("a thread");
    }
    pthread_barrier_wait(&start);
    return w;
}

static void join_workers(struct worker *w, int count)
{
    for (int i = 0; i < count; i++)
        pthread_join(w[i].thread, NULL);
}

static void print_workers(struct worker *w, int count, uint64_t whole_us)
{
    print(whole_us);
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < w[i].n; k++)
            print(w[i].times[k]);
        free(w[i].times);
    }
    free(w);
}

/* Connected before; the create alone is within the time. */
static void *burst_one(void *arg)
{
    struct worker *w = arg;
    struct calls c;
    uint64_t start;

    calls_open(&c, url, key);
    calls_connect(&c);
    pthread_barrier_wait(w->start);
    start = clock_mono_us();
    calls_create(&c, &w->made);
    w->times[w->n++] = clock_mono_us() - start;
    calls_close(&c);
    return NULL;
}

static void mode_burst(char **args)
{
    int count = number(args[0], CONNECTIONS_MAX);
    struct worker *w = spawn_workers(count, burst_one, 0, NULL);
    uint64_t start = clock_mono_us();
    struct calls c;

    join_workers(w, count);
    start = clock_mono_us() - start;
    calls_open(&c, url, key);
    for (int i = 0; i < count; i++)
        calls_kill(&c, w[i].made.id);
    calls_close(&c);
    print_workers(w, count, start);
}

static void *sustain_one(void *arg)
{
    struct worker *w = arg;
    struct calls c;

    calls_open(&c, url, key);
    calls_connect(&c);
    pthread_barrier_wait(w->start);
    while (clock_mono_ms() < w->until_ms && w->n < COUNT_MAX) {
        uint64_t start = clock_mono_us();

        calls_create(&c, &w->made);
        w->times[w->n++] = clock_mono_us() - start;
        calls_kill(&c, w->made.id);
    }
    calls_close(&c);
    return NULL;
}

static void mode_sustain(char **args)
{
    uint64_t until_ms = clock_mono_ms() + (uint64_t)number(args[0], 3600) * 1000;
    int count = number(args[1], CONNECTIONS_MAX);
    struct worker *w = spawn_workers(count, sustain_one, until_ms, NULL);
    uint64_t start = clock_mono_us();

    join_workers(w, count);
    print_workers(w, count, clock_mono_us() - start);
}

/* The file is shared: one line is one call under stdio's lock. */
static void *kill_some(void *arg)
{
    struct worker *w = arg;
    char id[64];
    struct calls c;

    calls_open(&c, url, key);
    calls_connect(&c);
    pthread_barrier_wait(w->start);
    while (fgets(id, sizeof(id), w->ids)) {
        uint64_t start = clock_mono_us();

        id[strcspn(id, "\n")] = '\0';
        calls_kill(&c, id);
        if (w->n < COUNT_MAX)
            w->times[w->n++] = clock_mono_us() - start;
    }
    calls_close(&c);
    return NULL;
}

static void mode_kill(char **args)
{
    FILE *ids = fopen(args[0], "r");
    int count = number(args[1], CONNECTIONS_MAX);
    struct worker *w;
    uint64_t start;

    if (!ids)
        die(args[0]);
    w = spawn_workers(count, kill_some, 0, ids);
    start = clock_mono_us();
    join_workers(w, count);
    print_workers(w, count, clock_mono_us() - start);
    fclose(ids);
}

static const struct {
    const char *name;
    int args;
    void (*run)(char **args);
} modes[] = {
    {"create", 1, mode_create}, {"alone", 1, mode_alone}, {"hold", 2, mode_hold},
    {"kill", 2, mode_kill},     {"burst", 1, mode_burst}, {"sustain", 2, mode_sustain},
    {"exec", 1, mode_exec},     {"whole", 1, mode_whole}, {"list", 1, mode_list},
    {"pages", 1, mode_pages},   {"use", 1, mode_use},     {"sandbox", 0, mode_sandbox},
};

int main(int argc, char **argv)
{
    url = argc > 1 ? argv[1] : NULL;
    key = getenv("CAY_API_KEY");
    curl_global_init(CURL_GLOBAL_DEFAULT);
    for (size_t i = 0; key && argc > 2 && i < ARRAY_SIZE(modes); i++) {
        if (strcmp(modes[i].name, argv[2]) == 0 && modes[i].args == argc - 3) {
            modes[i].run(argv + 3);
            return 0;
        }
    }
    fprintf(stderr, "load: see the head of test/bench/load.c; CAY_API_KEY must be set\n");
    return 2;
}
