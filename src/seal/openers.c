#include "seal/openers.h"

#include "base/util.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>

#define STACK_BYTES (256u << 10)

struct openers {
    openers_work work;
    pthread_mutex_t lock; /* of all below */
    uint64_t next, end;
    uint64_t failed;
    int rc; /* for that number; 0: for none */
};

struct opener {
    struct openers *all;
    void *arg;
    pthread_t thread;
};

static bool take(struct openers *o, uint64_t *number)
{
    pthread_mutex_lock(&o->lock);
    bool more = o->rc == 0 && o->next < o->end;
    if (more)
        *number = o->next++;
    pthread_mutex_unlock(&o->lock);
    return more;
}

/* All numbers before a failed one were begun: so in the end the lowest that failed is known. */
static void note_failure(struct openers *o, uint64_t number, int rc)
{
    pthread_mutex_lock(&o->lock);
    if (o->rc == 0 || number < o->failed) {
        o->failed = number;
        o->rc = rc;
    }
    pthread_mutex_unlock(&o->lock);
}

static void *run(void *arg)
{
    struct opener *one = arg;
    uint64_t number;

    while (take(one->all, &number)) {
        int rc = one->all->work(one->arg, number);

        if (rc < 0)
            note_failure(one->all, number, rc);
    }
    return NULL;
}

static bool start(struct opener *one)
{
    pthread_attr_t attr;
    bool started = false;

    if (pthread_attr_init(&attr) != 0)
        return false;
    started = pthread_attr_setstacksize(&attr, STACK_BYTES) == 0 &&
              pthread_create(&one->thread, &attr, run, one) == 0;
    pthread_attr_destroy(&attr);
    return started;
}

static unsigned processors(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof(set), &set) == 0 ? (unsigned)CPU_COUNT(&set) : OPENERS_MAX;
}

int openers_run(openers_work work, void *const *args, unsigned n_args, uint64_t first, uint64_t end,
                uint64_t *failed)
{
    struct openers o = {.work = work, .next = first, .end = end};
    struct opener all[OPENERS_MAX];
    unsigned n = 1, most = MIN(MIN(n_args, OPENERS_MAX), processors());

    pthread_mutex_init(&o.lock, NULL);
    for (unsigned i = 0; i < OPENERS_MAX && i < n_args; i++)
        all[i] = (struct opener){.all = &o, .arg = args[i]};
    while (n < most && start(&all[n])) /* without memory for one, fewer do it all */
        n++;
    run(&all[0]);
    for (unsigned i = 1; i < n; i++)
        pthread_join(all[i].thread, NULL);
    pthread_mutex_destroy(&o.lock);
    *failed = o.failed;
    return o.rc;
}
