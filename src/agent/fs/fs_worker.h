#pragma once
/* A lazy thread for file work that could hold up the loop, which serves as PID 1.
 *
 * A job belongs to the worker from fs_worker_submit until its done callback runs on the loop; in
 * between no other thread touches it, so jobs need no locks. A job does a bounded piece of work
 * (some milliseconds) and is submitted again from done when there is more: jobs take turns that
 * way, and a removal of a million files does not hold up a download. The thread starts with the
 * first job and ends when it had none for FS_WORKER_IDLE_MS: an idle sandbox has no thread. */

#include <uv.h>

#define FS_WORKER_IDLE_MS 2000

struct fs_worker;

struct fs_job {
    void (*work)(struct fs_job *job); /* on the thread */
    void (*done)(struct fs_job *job); /* on the loop */
    struct fs_job *next;
};

/* Lives as long as the program. NULL when memory is out. */
struct fs_worker *fs_worker_new(uv_loop_t *loop);

/* For tests: waits for the thread, then frees. No job may be under way. */
void fs_worker_free(struct fs_worker *w);

/* Never fails: when no thread can be started (a limit), the work is done on the loop, in turn. */
void fs_worker_submit(struct fs_worker *w, struct fs_job *job);
