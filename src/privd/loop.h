#pragma once
/* privd's event loop: epoll for descriptors, a heap for timers. Single-threaded. Callbacks may add
 * and remove any source and timer, their own included. Sources and timers are the caller's memory and
 * must be removed before it goes. */

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
    uint64_t at_ms;
    size_t place; /* in the heap, from 1; 0: not armed */
    loop_timer_cb cb;
    void *arg;
};

#define LOOP_BATCH 64

struct loop {
    int epoll_fd;
    bool stop;
    struct epoll_event batch[LOOP_BATCH];
    int batch_len, batch_at;
    struct loop_timer **heap; /* heap[1..n_timers] */
    size_t n_timers, heap_cap;
};

/* 0 or -errno. */
int loop_init(struct loop *l) WARN_UNUSED;
void loop_free(struct loop *l);

/* Watches fd for EPOLLIN (level-triggered). 0 or -errno. */
int loop_add(struct loop *l, struct loop_source *s, int fd, loop_source_cb cb,
             void *arg) WARN_UNUSED;

/* Before the descriptor is closed: aborts otherwise. Nothing when it is not watched. */
void loop_remove(struct loop *l, struct loop_source *s);

/* Arms (again) for once, in_ms from now.. */
void loop_arm(struct loop *l, struct loop_timer *t, uint64_t in_ms, loop_timer_cb cb, void *arg);
void loop_disarm(struct loop *l, struct loop_timer *t);

/* Until loop_stop. 0 or -errno of epoll_wait. */
int loop_run(struct loop *l);
void loop_stop(struct loop *l);
