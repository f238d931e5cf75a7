#include "agent/fs/fs_worker.h"

#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STACK_BYTES (256u * 1024u)

struct job_list {
    struct fs_job *first, **last;
};

struct fs_worker {
    uv_async_t finished; /* first member: the close callback frees it */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    /* under lock */
    struct job_list todo, done;
    bool running; /* a thread is there that will look at todo again */
    bool stopping;
    /* of the loop */
    bool joinable;
    pthread_t thread;
};

static void list_init(struct job_list *l)
{
    *l = (struct job_list){.last = &l->first};
}

static void list_add(struct job_list *l, struct fs_job *job)
{
    job->next = NULL;
    *l->last = job;
    l->last = &job->next;
}

static struct fs_job *list_take(struct job_list *l)
{
    struct fs_job *job = l->first;

    if (job)
        l->first = job->next;
    if (!l->first)
        l->last = &l->first;
    return job;
}

/* Waits until there is a job, or gives up. Called with the lock held. */
static struct fs_job *wait_for_job(struct fs_worker *w)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += FS_WORKER_IDLE_MS / 1000;
    while (!w->todo.first && !w->stopping)
        if (pthread_cond_timedwait(&w->wake, &w->lock, &until) == ETIMEDOUT)
            break;
    return list_take(&w->todo);
}

static void *run(void *arg)
{
    struct fs_worker *w = arg;
    struct fs_job *job;

    pthread_mutex_lock(&w->lock);
    while ((job = wait_for_job(w))) {
        pthread_mutex_unlock(&w->lock);
        job->work(job);
        pthread_mutex_lock(&w->lock);
        list_add(&w->done, job);
        uv_async_send(&w->finished);
    }
    w->running = false;
    pthread_mutex_unlock(&w->lock);
    /* Memory of the work is returned to the kernel: an idle sandbox costs next to nothing. */
    malloc_trim(0);
    return NULL;
}

/* Only as many as were there at the start: a done callback may submit a job that is finished before
 * the loop is through, and the loop has others to serve. */
static void deliver(uv_async_t *handle)
{
    struct fs_worker *w = (struct fs_worker *)handle;
    struct job_list ready;
    struct fs_job *job;

    pthread_mutex_lock(&w->lock);
    ready = w->done;
    if (!ready.first)
        ready.last = &ready.first;
    list_init(&w->done);
    pthread_mutex_unlock(&w->lock);
    while ((job = ready.first)) {
        ready.first = job->next;
        job->done(job);
    }
}

/* Signals are the loop's: the thread must take none. */
static int start_thread(struct fs_worker *w)
{
    pthread_attr_t attr;
    sigset_t all, before;
    int r;

    if (w->joinable)
        pthread_join(w->thread, NULL);
    w->joinable = false;
    sigfillset(&all);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    r = pthread_create(&w->thread, &attr, run, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    w->joinable = r == 0;
    return -r;
}

struct fs_worker *fs_worker_new(uv_loop_t *loop)
{
    struct fs_worker *w = calloc(1, sizeof(*w));
    pthread_condattr_t attr;

    if (!w)
        return NULL;
    if (uv_async_init(loop, &w->finished, deliver) < 0) {
        free(w);
        return NULL;
    }
    /* A heap of its own for the thread would stay after it. */
    mallopt(M_ARENA_MAX, 1);
    list_init(&w->todo);
    list_init(&w->done);
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->wake, &attr);
    pthread_condattr_destroy(&attr);
    return w;
}

static void free_worker(uv_handle_t *handle)
{
    struct fs_worker *w = (struct fs_worker *)handle;

    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

void fs_worker_free(struct fs_worker *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    assert(!w->todo.first);
    w->stopping = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    if (w->joinable)
        pthread_join(w->thread, NULL);
    uv_close((uv_handle_t *)&w->finished, free_worker);
}

/* Without a thread the job still gets done, one at a time and in order. */
static void work_here(struct fs_worker *w)
{
    struct fs_job *job;

    pthread_mutex_lock(&w->lock);
    job = list_take(&w->todo);
    pthread_mutex_unlock(&w->lock);
    if (!job)
        return;
    job->work(job);
    pthread_mutex_lock(&w->lock);
    list_add(&w->done, job);
    pthread_mutex_unlock(&w->lock);
    uv_async_send(&w->finished);
}

void fs_worker_submit(struct fs_worker *w, struct fs_job *job)
{
    bool start;
    int r;

    pthread_mutex_lock(&w->lock);
    list_add(&w->todo, job);
    start = !w->running;
    w->running = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    if (!start)
        return;
    r = start_thread(w);
    if (r == 0)
        return;
    log_warn("files: cannot start the file worker: %s", strerror(-r));
    pthread_mutex_lock(&w->lock);
    w->running = false;
    pthread_mutex_unlock(&w->lock);
    work_here(w);
}
