/* The order of a start: arguments, environment and candidates are made from the request;
 * descriptors (pipes or a terminal); the child is forked (spawn.c) and put into the table; its
 * outputs are watched from then on, while proc_launch.c waits for the exec to succeed or say
 * why not. Before the fork a failure leaves nothing; after it the record ends as every process
 * does. */

#include "agent/process/proc_start.h"

#include "agent/common/user.h"
#include "agent/process/proc.h"
#include "agent/process/proc_input.h"
#include "agent/process/proc_launch.h"
#include "agent/process/proc_oom.h"
#include "agent/process/proc_output.h"
#include "agent/process/spawn.h"
#include "base/arena.h"
#include "http/json.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define START_ARENA_BYTES (8u * 1024u * 1024u)
#define START_TTY_GID     5 /* "tty" in every Debian; only names who may write(1) to the terminal */

static const char default_path[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/* -- what the program is given ----------------------------------------------------------------- */

struct program {
    struct arena arena;
    const char **sh_argv; /* "/bin/sh", a place, then the arguments: argv is inside it */
    const char **argv;
    const char **env;
    const char *path; /* PATH, or NULL when cmd has a slash */
    const char *candidates[SPAWN_CANDIDATES_MAX + 1];
};

static void program_free(struct program *g)
{
    arena_free(&g->arena);
}

static int make_argv(struct program *g, const struct proc_start *s)
{
    size_t n = json_array_size(s->args);

    g->sh_argv = arena_alloc(&g->arena, (n + 4) * sizeof(*g->sh_argv));
    if (!g->sh_argv)
        return -E2BIG;
    g->sh_argv[0] = "/bin/sh";
    g->argv = g->sh_argv + 1;
    g->argv[0] = s->cmd;
    for (size_t i = 0; i < n; i++)
        g->argv[i + 1] = json_string_value(json_array_get(s->args, i));
    return 0;
}

/* The user's basics and the agent's defaults, then those of the sandbox's files, its own, and the
 * request's: the last of a name wins. */
static json_t *merge_env(const struct agent *a, const struct proc_start *s)
{
    json_t *env = json_pack("{ss ss ss ss}", "PATH", default_path, "HOME", s->user->home, "USER",
                            s->user->name, "LOGNAME", s->user->name);

    if (!env || (a->defaults && json_object_update(env, a->defaults) < 0) ||
        (a->file_env && json_object_update(env, a->file_env) < 0) ||
        json_object_update(env, a->env) < 0 ||
        (s->envs && json_object_update(env, (json_t *)s->envs) < 0)) {
        json_decref(env);
        return NULL;
    }
    return env;
}

static int render_env(struct program *g, json_t *env)
{
    const char *name;
    json_t *value;
    size_t n = 0;

    g->env = arena_alloc(&g->arena, (json_object_size(env) + 1) * sizeof(*g->env));
    if (!g->env)
        return -E2BIG;
    json_object_foreach (env, name, value) {
        g->env[n] = arena_printf(&g->arena, "%s=%s", name, json_string_value(value));
        if (!g->env[n++])
            return -E2BIG;
    }
    return 0;
}

/* Where cmd is looked for: as execvp(3) does, in the PATH that the program itself will have. */
static int make_candidates(struct program *g, const char *cmd, const json_t *env)
{
    size_t n = 0;

    if (strchr(cmd, '/')) {
        g->candidates[0] = cmd;
        return 0;
    }
    g->path = arena_strdup(&g->arena, json_string_value(json_object_get(env, "PATH")));
    if (!g->path)
        return -E2BIG;
    for (const char *at = g->path; n < SPAWN_CANDIDATES_MAX; n++) {
        size_t len = strcspn(at, ":");

        g->candidates[n] = len == 0
                               ? arena_printf(&g->arena, "./%s", cmd)
                               : arena_printf(&g->arena, "%.*s/%s", (int)MIN(len, 4096u), at, cmd);
        if (!g->candidates[n])
            return -E2BIG;
        if (at[len] == '\0')
            break;
        at += len + 1;
    }
    return 0;
}

static int program_init(struct program *g, const struct agent *a, const struct proc_start *s)
{
    json_t *env = merge_env(a, s);
    int ret;

    arena_init(&g->arena, START_ARENA_BYTES);
    if (!env)
        return -ENOMEM;
    ret = make_argv(g, s);
    if (ret == 0)
        ret = render_env(g, env);
    if (ret == 0)
        ret = make_candidates(g, s->cmd, env);
    json_decref(env);
    return ret;
}

/* -- its descriptors --------------------------------------------------------------------------- */

/* ours[0]: input, ours[1]: stdout or the terminal, ours[2]: stderr. -1: not there. */
struct descriptors {
    int child[3];
    int ours[3];
};

static void descriptors_close(struct descriptors *d)
{
    for (int i = 0; i < 3; i++) {
        util_close_p(&d->child[i]);
        util_close_p(&d->ours[i]);
    }
}

/* The user owns the ends that the program holds, so that it may open /dev/stdout and its like. */
static int make_pipe(int *child, int *ours, bool child_reads, const struct user *u)
{
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    *child = fds[child_reads ? 0 : 1];
    *ours = fds[child_reads ? 1 : 0];
    if (fcntl(*ours, F_SETFL, O_NONBLOCK) < 0)
        return -errno;
    if (fchown(*child, u->uid, u->gid) < 0 && errno != EPERM)
        return -errno;
    return 0;
}

static int make_pipes(struct descriptors *d, const struct proc_start *s)
{
    int ret;

    if (s->want_stdin)
        ret = make_pipe(&d->child[0], &d->ours[0], true, s->user);
    else
        ret = (d->child[0] = open("/dev/null", O_RDONLY | O_CLOEXEC)) < 0 ? -errno : 0;
    if (ret == 0)
        ret = make_pipe(&d->child[1], &d->ours[1], false, s->user);
    if (ret == 0)
        ret = make_pipe(&d->child[2], &d->ours[2], false, s->user);
    return ret;
}

/* TIOCGPTPEER opens the other end by the master, so no path of the sandbox's is followed. The loop
 * wants one descriptor for each direction, hence the second master. */
static int make_terminal(struct descriptors *d, const struct proc_start *s)
{
    struct winsize size = {.ws_row = s->rows, .ws_col = s->cols};
    int unlock = 0;

    d->ours[1] = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (d->ours[1] < 0 || ioctl(d->ours[1], TIOCSPTLCK, &unlock) < 0 ||
        ioctl(d->ours[1], TIOCSWINSZ, &size) < 0)
        return -errno;
    d->child[0] = ioctl(d->ours[1], TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    d->ours[0] = fcntl(d->ours[1], F_DUPFD_CLOEXEC, 0);
    if (d->child[0] < 0 || d->ours[0] < 0)
        return -errno;
    if (fchown(d->child[0], s->user->uid, START_TTY_GID) < 0 || fchmod(d->child[0], 0620) < 0)
        return -errno;
    for (int i = 1; i < 3; i++)
        if ((d->child[i] = fcntl(d->child[0], F_DUPFD_CLOEXEC, 0)) < 0)
            return -errno;
    return 0;
}

/* -- errors ------------------------------------------------------------------------------------ */

static enum connect_code fork_failed(const struct proc_start *s, int ret, struct err *e)
{
    err_set_sys(e, ERR_EXHAUSTED, ret,
                "error starting process '%s': the sandbox cannot take another process", s->cmd);
    return CONNECT_RESOURCE_EXHAUSTED;
}

static enum connect_code descriptors_failed(const struct proc_start *s, int ret, struct err *e)
{
    bool full = ret == -EMFILE || ret == -ENFILE || ret == -ENOMEM || ret == -ENOSPC;

    err_set_sys(e, full ? ERR_EXHAUSTED : ERR_INTERNAL, ret, "error making the %s of '%s'",
                s->terminal ? "terminal" : "pipes", s->cmd);
    return full ? CONNECT_RESOURCE_EXHAUSTED : CONNECT_INTERNAL;
}

static enum connect_code table_full(const struct process_table *t, const struct proc_start *s,
                                    struct err *e)
{
    if (t->subscriber_count >= PROC_SUBSCRIBERS_MAX)
        err_set(e, ERR_EXHAUSTED, "%d streams are open already, which is the limit",
                PROC_SUBSCRIBERS_MAX);
    else if (t->count >= PROC_MAX)
        err_set(e, ERR_EXHAUSTED, "%d processes run already, which is the limit", PROC_MAX);
    else if (t->config_bytes + s->config_bytes > PROC_CONFIG_BYTES_MAX)
        err_set(e, ERR_EXHAUSTED,
                "the commands and environments of all running processes together "
                "are limited to %u bytes",
                PROC_CONFIG_BYTES_MAX);
    else
        return CONNECT_OK;
    return CONNECT_RESOURCE_EXHAUSTED;
}

/* -- the start --------------------------------------------------------------------------------- */

static struct proc *make_record(struct agent *a, const struct proc_start *s,
                                const struct spawned *child)
{
    struct process_table *t = a->processes;
    struct proc *p = calloc(1, sizeof(*p));

    if (!p)
        return NULL;
    *p = (struct proc){.agent = a,
                       .pid = child->pid,
                       .group = child->group,
                       .command = child->command,
                       .terminal = s->terminal,
                       .timeout_ms = s->timeout_ms,
                       .config = json_incref(s->config),
                       .config_bytes = s->config_bytes,
                       .tag = s->tag ? strdup(s->tag) : NULL,
                       .handles = 1,
                       .oom_kills = proc_oom_kills(a),
                       .next = t->first};
    t->first = p;
    t->count++;
    t->config_bytes += p->config_bytes;
    uv_timer_init(a->loop, &p->deadline);
    p->deadline.data = p;
    p->in.fd = p->out[0].fd = p->out[1].fd = -1;
    return p;
}

/* The descriptors are the record's from here on. */
static int watch_descriptors(struct proc *p, struct descriptors *d)
{
    enum proc_output_kind first = p->terminal ? PROC_PTY : PROC_STDOUT;
    int ret = proc_output_open(p, &p->out[0], first, TAKE_FD(d->ours[1]));

    if (ret == 0 && d->ours[2] >= 0)
        ret = proc_output_open(p, &p->out[1], PROC_STDERR, TAKE_FD(d->ours[2]));
    if (ret == 0 && d->ours[0] >= 0)
        ret = proc_input_open(p, TAKE_FD(d->ours[0]));
    return ret;
}

/* Makes the record of a child that was forked, and waits for how it goes. */
static enum connect_code adopt(struct agent *a, const struct proc_start *s, struct descriptors *d,
                               const char *path, const struct spawned *child,
                               struct http_exchange *x, struct err *e)
{
    struct proc *p = make_record(a, s, child);
    int ret = p ? watch_descriptors(p, d) : -ENOMEM;

    if (ret == 0)
        ret = proc_launch_begin(p, s, path, child->status_fd, x);
    else
        close(child->status_fd);
    if (ret == 0) {
        p->watcher = s->watcher;
        if (p->watcher)
            p->watcher->proc = p;
        return CONNECT_OK;
    }
    kill(child->pid, SIGKILL);
    if (p)
        proc_discard(p);
    err_set_sys(e, ERR_EXHAUSTED, ret, "error starting process '%s'", s->cmd);
    return CONNECT_RESOURCE_EXHAUSTED;
}

enum connect_code proc_start(struct agent *a, const struct proc_start *s, struct http_exchange *x,
                             struct err *e)
{
    CLEANUP(program_free) struct program g = {0};
    CLEANUP(descriptors_close) struct descriptors d = {{-1, -1, -1}, {-1, -1, -1}};
    enum connect_code code = table_full(a->processes, s, e);
    struct spawned child;
    int ret;

    if (code != CONNECT_OK)
        return code;
    if (program_init(&g, a, s) < 0) {
        err_set(e, ERR_TOO_LARGE, "error starting process '%s': arguments or environment too long",
                s->cmd);
        return CONNECT_INVALID_ARGUMENT;
    }
    ret = s->terminal ? make_terminal(&d, s) : make_pipes(&d, s);
    if (ret < 0)
        return descriptors_failed(s, ret, e);
    struct spawn_request r = {.user = s->user,
                              .cwd = s->cwd,
                              .argv = (char *const *)g.argv,
                              .sh_argv = (char *const *)g.sh_argv,
                              .env = (char *const *)g.env,
                              .candidates = g.candidates,
                              .fds = {d.child[0], d.child[1], d.child[2]},
                              .terminal = s->terminal,
                              .command = ++a->processes->commands};
    ret = spawn_begin(&a->spawn, &r, &child);
    if (ret < 0)
        return fork_failed(s, ret, e);
    return adopt(a, s, &d, g.path, &child, x, e);
}
