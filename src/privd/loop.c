#include "privd/loop.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define US_PER_MS UINT64_C(1000)
#define US_PER_S  UINT64_C(1000000)
#define NS_PER_US 1000

int loop_init(struct loop *l)
{
    *l = (struct loop){.epoll_fd = epoll_create1(EPOLL_CLOEXEC)};
    if (l->epoll_fd < 0)
        return -errno;
    return 0;
}

void loop_free(struct loop *l)
{
    if (l->watched > 0 || l->timers.n > 0) {
        log_error("loop: %u descriptors are watched and %zu timers armed at its end", l->watched,
                  (size_t)l->timers.n);
        abort();
    }
    util_close(&l->epoll_fd);
}

void loop_close_copy(struct loop *l)
{
    util_close(&l->epoll_fd);
}

/* -- descriptors ------------------------------------------------------------------------------- */

int loop_add(struct loop *l, struct loop_source *s, int fd, loop_source_cb cb, void *arg)
{
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = s};

    if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &e) < 0)
        return -errno;
    *s = (struct loop_source){fd, cb, arg};
    l->watched++;
    return 0;
}

/* Events of this turn that were fetched already must not reach a source that is gone. */
void loop_remove(struct loop *l, struct loop_source *s)
{
    if (s->fd < 0)
        return;
    /* A descriptor that stays in the kernel's list would be called with memory that may be reused
     * by then: where the descriptor was closed first, a copy of it in a task keeps it there. privd
     * starts anew instead. */
    if (epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, s->fd, NULL) < 0) {
        log_error("loop: descriptor %d was closed while it was watched: %s", s->fd,
                  strerror(errno));
        abort();
    }
    s->fd = -1;
    l->watched--;
    for (int i = l->batch_at + 1; i < l->batch_len; i++)
        if (l->batch[i].data.ptr == s)
            l->batch[i].data.ptr = NULL;
}

/* -- timers ------------------------------------------------------------------------------------ */

void loop_arm(struct loop *l, struct loop_timer *t, uint64_t in_ms, loop_timer_cb cb, void *arg)
{
    loop_arm_us(l, t, in_ms * US_PER_MS, cb, arg);
}

void loop_arm_us(struct loop *l, struct loop_timer *t, uint64_t in_us, loop_timer_cb cb, void *arg)
{
    t->cb = cb;
    t->arg = arg;
    timer_heap_set(&l->timers, &t->node, clock_mono_us() + in_us);
}

void loop_disarm(struct loop *l, struct loop_timer *t)
{
    timer_heap_remove(&l->timers, &t->node);
}

/* Until the next timer is due; NULL: for ever. */
static const struct timespec *next_wait(const struct loop *l, struct timespec *out)
{
    uint64_t now = clock_mono_us(), left_us;

    if (!l->timers.first)
        return NULL;
    left_us = l->timers.first->at > now ? l->timers.first->at - now : 0;
    *out = (struct timespec){.tv_sec = (time_t)(left_us / US_PER_S),
                             .tv_nsec = (long)(left_us % US_PER_S) * NS_PER_US};
    return out;
}

/* Only those that are due now: a callback that arms for 0 ms has its turn later. */
static void run_timers(struct loop *l)
{
    uint64_t now = clock_mono_us();

    for (size_t left = l->timers.n; left > 0 && l->timers.n > 0; left--) {
        struct loop_timer *t = CONTAINER_OF(l->timers.first, struct loop_timer, node);

        if (t->node.at > now)
            break;
        loop_disarm(l, t);
        t->cb(t->arg);
    }
}

/* -- turns ------------------------------------------------------------------------------------- */

static void run_sources(struct loop *l)
{
    for (l->batch_at = 0; l->batch_at < l->batch_len; l->batch_at++) {
        struct loop_source *s = l->batch[l->batch_at].data.ptr;

        if (s)
            s->cb(s->arg, l->batch[l->batch_at].events);
    }
    l->batch_len = 0;
}

int loop_run(struct loop *l)
{
    l->stop = false;
    while (!l->stop) {
        struct timespec wait;
        int n = epoll_pwait2(l->epoll_fd, l->batch, LOOP_BATCH, next_wait(l, &wait), NULL);

        if (n < 0 && errno != EINTR)
            return -errno;
        l->batch_len = n > 0 ? n : 0;
        run_sources(l);
        run_timers(l);
    }
    return 0;
}

void loop_stop(struct loop *l)
{
    l->stop = true;
}
