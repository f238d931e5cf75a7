/* Between fork and exec: the child prepares itself, and the client waits for the start event.
 * process.c begins a launch when the child was forked (spawn.h); the status pipe says how it
 * went: closed by the exec (went_well: the client becomes the process's first subscriber, and
 * its streams are read), or an error (failed: the client gets it, and the process is discarded).
 * If the client goes away first, the process is started all the same, without it. The launch
 * frees itself on the loop's next turn. The time limit of a process is here too, since it counts
 * from the start; it goes on after the launch. */

#include "agent/process/proc_launch.h"

#include "agent/common/logs.h"
#include "agent/common/user.h"
#include "agent/process/proc.h"
#include "agent/process/proc_output.h"
#include "agent/process/proc_signal.h"
#include "agent/process/proc_start.h"
#include "agent/process/spawn.h"
#include "base/clock.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

/* Between fork and exec: the child prepares itself, and the client waits for the start event. */

#define LAUNCH_PATH_SHOWN 200   /* of PATH, in an error's text */
#define DEADLINE_SLICE_MS 1000u /* of a process's time */

/* -- errors ------------------------------------------------------------------------------------ */

static enum connect_code cwd_failed(const struct proc_launch *l, int err, struct err *e)
{
    if (err == ENOENT)
        err_set(e, ERR_INVALID, "cwd '%s' does not exist", l->cwd);
    else if (err == ENOTDIR)
        err_set(e, ERR_INVALID, "cwd '%s' is not a directory", l->cwd);
    else
        err_set_sys(e, ERR_INVALID, err, "cwd '%s' cannot be entered by user '%s'", l->cwd,
                    l->user);
    return CONNECT_INVALID_ARGUMENT;
}

static enum connect_code exec_failed(const struct proc_launch *l, int err, struct err *e)
{
    if (err == ENOENT && l->path)
        err_set(e, ERR_INVALID, "error starting process '%s': not found in PATH '%s'", l->cmd,
                l->path);
    else if (err == ENOENT)
        err_set(e, ERR_INVALID,
                "error starting process '%s': it, or the interpreter that it names, does not exist",
                l->cmd);
    else
        err_set_sys(e, ERR_INVALID, err, "error starting process '%s' as user '%s'", l->cmd,
                    l->user);
    return err == ENOMEM ? CONNECT_RESOURCE_EXHAUSTED : CONNECT_INVALID_ARGUMENT;
}

static enum connect_code start_failed(const struct proc_launch *l, const struct spawn_failure *why,
                                      struct err *e)
{
    static const char *const steps[] = {
        [SPAWN_CGROUP] = "entering the cgroup",
        [SPAWN_SETUP] = "preparing the process",
        [SPAWN_CREDENTIALS] = "becoming the user",
    };

    if (why->step == SPAWN_CWD)
        return cwd_failed(l, why->err, e);
    if (why->step == SPAWN_EXEC)
        return exec_failed(l, why->err, e);
    err_set_sys(e, ERR_INTERNAL, why->err, "error starting process '%s': %s", l->cmd,
                steps[why->step]);
    return CONNECT_INTERNAL;
}

/* -- how it went ------------------------------------------------------------------------------- */

static void on_poll_closed(uv_handle_t *h)
{
    free(h->data);
}

/* The launch is over; hands the exchange back. The launch itself lives until the loop's next
 * turn. */
static struct http_exchange *end_launch(struct proc_launch *l)
{
    struct http_exchange *x = l->x;

    l->proc->launch = NULL;
    uv_poll_stop(&l->poll); /* before the descriptor is closed */
    uv_close((uv_handle_t *)&l->poll, on_poll_closed);
    util_close(&l->fd);
    if (x)
        http_exchange_set(x, l->proc->agent, NULL);
    return x;
}

static void failed(struct proc_launch *l, const struct spawn_failure *why)
{
    struct proc *p = l->proc;
    enum connect_code code = CONNECT_INTERNAL;
    struct http_exchange *x;
    struct err e;

    if (l->x) /* the text's parts went with a client that has gone */
        code = start_failed(l, why, &e);
    x = end_launch(l);
    if (x)
        connect_fail(x, code, "%s", e.text);
    else
        logs_add(p->agent, "warn", "process_failed", p->pid, "a program could not be started: %s",
                 strerror(why->err));
    proc_notify_watcher(p, why->err);
    proc_discard(p);
}

static void went_well(struct proc_launch *l)
{
    struct proc *p = l->proc;
    struct http_exchange *x;

    logs_add(p->agent, "info", "process_start", p->pid, "Process with pid %d started: %s",
             (int)p->pid, json_string_value(json_object_get(p->config, "cmd")));
    x = end_launch(l);
    if (x && p->timed_out) {
        connect_fail(x, CONNECT_DEADLINE_EXCEEDED, "%s", PROC_DEADLINE_TEXT);
    } else if (x && proc_subscribe(p, x, true, 0) < 0) {
        connect_fail(x, CONNECT_RESOURCE_EXHAUSTED,
                     "%d streams are open already, which is the limit", PROC_SUBSCRIBERS_MAX);
        proc_signal(p, SIGKILL);
        return;
    }
    proc_output_start(p);
    proc_check_end(p);
}

static void on_status(uv_poll_t *poll, int status UNUSED, int events UNUSED)
{
    struct proc_launch *l = poll->data;
    struct spawn_failure why = {0};
    int ret = spawn_result(l->fd, &why);

    if (ret < 0)
        failed(l, &why);
    else if (ret == 0)
        went_well(l);
}

/* The client went away; the process is started all the same. */
static void on_exchange_closed(struct http_exchange *x UNUSED, void *data)
{
    struct proc_launch *l = data;

    l->x = NULL;
}

/* A pause of the sandbox stops its processes, but no clock. The time of a process is counted in
 * slices, of which one that took much longer than it should counts as two: the rest is time in
 * which nothing of the sandbox ran. */
static void on_slice(uv_timer_t *timer);

static void arm_deadline(struct proc *p)
{
    p->slice_at_ms = clock_mono_ms();
    uv_timer_start(&p->deadline, on_slice, MIN(p->left_ms, DEADLINE_SLICE_MS), 0);
}

static void on_deadline(struct proc *p)
{
    p->timed_out = true;
    logs_add(p->agent, "warn", "process_timeout", p->pid,
             "Process with pid %d was killed: its %llu ms are over", (int)p->pid,
             (unsigned long long)p->timeout_ms);
    proc_report_deadline(p);
    proc_signal(p, SIGKILL);
}

static void on_slice(uv_timer_t *timer)
{
    struct proc *p = timer->data;
    uint64_t ran_ms = MIN(clock_mono_ms() - p->slice_at_ms, 2u * DEADLINE_SLICE_MS);

    if (p->ended)
        return;
    p->left_ms -= MIN(p->left_ms, ran_ms);
    if (p->left_ms == 0)
        on_deadline(p);
    else
        arm_deadline(p);
}

static int copy_texts(struct proc_launch *l, const struct proc_start *s, const char *path)
{
    struct arena *arena;

    if (!l->x) /* of no client: nothing is told */
        return 0;
    arena = http_exchange_arena(l->x);
    l->cmd = arena_strdup(arena, s->cmd);
    l->cwd = arena_strdup(arena, s->cwd);
    l->user = arena_strdup(arena, s->user->name);
    l->path = path ? arena_strndup(arena, path, MIN(strlen(path), LAUNCH_PATH_SHOWN)) : NULL;
    return l->cmd && l->cwd && l->user && (!path || l->path) ? 0 : -ENOMEM;
}

int proc_launch_begin(struct proc *p, const struct proc_start *s, const char *path, int status_fd,
                      struct http_exchange *x)
{
    struct proc_launch *l = calloc(1, sizeof(*l));

    if (!l || uv_poll_init(p->agent->loop, &l->poll, status_fd) < 0) {
        close(status_fd);
        free(l);
        return -ENOMEM;
    }
    l->poll.data = l;
    l->fd = status_fd;
    l->proc = p;
    l->x = x;
    p->launch = l;
    if (copy_texts(l, s, path) < 0 || uv_poll_start(&l->poll, UV_READABLE, on_status) < 0) {
        end_launch(l);
        return -ENOMEM;
    }
    if (x)
        http_exchange_set(x, l, on_exchange_closed);
    p->left_ms = p->timeout_ms;
    if (p->left_ms > 0)
        arm_deadline(p);
    return 0;
}
