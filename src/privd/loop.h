#pragma once
/* privd's event loop: epoll for descriptors, base/timer_heap.h for timers. Single-threaded.
 * Callbacks may add and remove any source and timer, their own included. Sources and timers are the
 * caller's memory and must be removed before it goes. */

#include "base/timer_heap.h"
#include "base/util.h"

#include <stdbool.h>
#include <sys/epoll.h>

typedef void (*loop_source_cb)(void *arg, uint32_t events);
typedef void (*loop_timer_cb)(void *arg);

struct loop_source {
    int fd; /* -1: not watched; not owned */
    loop_source_cb cb;
    void *arg;
};

#define LOOP_SOURCE_NONE ((struct loop_source){.fd = -1})

struct loop_timer {
    struct timer_node node;
    loop_timer_cb cb;
    void *arg;
};

#define LOOP_BATCH 64

struct loop {
    int epoll_fd;
    bool stop;
    struct epoll_event batch[LOOP_BATCH];
    int batch_len, batch_at;
    unsigned watched;         /* sources */
    struct timer_heap timers; /* at microseconds of the monotonic clock */
};

/* 0 or -errno. */
int loop_init(struct loop *l) WARN_UNUSED;

/* The end, when no source is watched and no timer armed: aborts otherwise, as one that is left
 * would be called with memory that is its owner's no more, had the loop gone on. Nothing when
 * loop_init has failed or was not called. */
void loop_free(struct loop *l);

/* Of a process that was forked, which has a copy of the descriptor alone: closes that. */
void loop_close_copy(struct loop *l);

/* Watches fd for EPOLLIN (level-triggered). 0 or -errno. */
int loop_add(struct loop *l, struct loop_source *s, int fd, loop_source_cb cb,
             void *arg) WARN_UNUSED;

/* Before the descriptor is closed: aborts otherwise. Nothing when it is not watched. */
void loop_remove(struct loop *l, struct loop_source *s);

/* Arms (again) for once, in_ms or in_us from now. Cannot fail. */
void loop_arm(struct loop *l, struct loop_timer *t, uint64_t in_ms, loop_timer_cb cb, void *arg);
void loop_arm_us(struct loop *l, struct loop_timer *t, uint64_t in_us, loop_timer_cb cb, void *arg);
void loop_disarm(struct loop *l, struct loop_timer *t);

static inline bool loop_timer_armed(const struct loop_timer *t)
{
    return timer_node_armed(&t->node);
}

/* Until loop_stop. 0 or -errno of epoll_pwait2. */
int loop_run(struct loop *l);
void loop_stop(struct loop *l);
