/* From the file to a command that runs, and, where it has a port, the wait for it: a timer tries
 * the port, and looks whether the command has ended (proc_watcher, which also brings its output).
 * The port comes first: a command may leave a daemon and end. */

#include "agent/start_command.h"

#include "agent/common/logs.h"
#include "agent/common/user.h"
#include "agent/process/proc.h"
#include "agent/process/proc_start.h"
#include "agent/tail.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/loopback.h"
#include "http/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* A command with a port, and the wait for it. Freed when its timer is closed. */
struct wait {
    struct agent *agent;
    struct start_request request;
    struct http_exchange *x; /* NULL: the client is gone */
    uv_timer_t timer;
    struct proc_watcher watcher;
    bool ended;
    int wait_status, start_error; /* once it ended */
    struct tail tail;             /* the last of its output */
    uint16_t port;
    int fd; /* a connection that is being made, or -1 */
    uint64_t until_ms;
};

static void say(struct agent *a, const char *text)
{
    logs_add(a, "warn", "start_command", 0, "%s: %s", START_FILE, text);
}

/* -- its end --------------------------------------------------------------------------------- */

static void on_output(struct proc_watcher *watcher, const char *bytes, size_t n)
{
    struct wait *w = CONTAINER_OF(watcher, struct wait, watcher);

    tail_add(&w->tail, bytes, n);
}

static void on_ended(struct proc_watcher *watcher, int wait_status, int start_error)
{
    struct wait *w = CONTAINER_OF(watcher, struct wait, watcher);

    w->ended = true;
    w->wait_status = wait_status;
    w->start_error = start_error;
}

/* All that a command leaves behind is a child of PID 1. */
static bool has_children(void)
{
    siginfo_t info;

    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

/* It ended, and nothing of it can listen any more. With status 0 it may have left a daemon. */
static bool is_gone(const struct wait *w)
{
    return w->ended && (w->start_error != 0 || w->wait_status != 0 || !has_children());
}

static void explain_end(struct wait *w, char *out, size_t size)
{
    char tail[TAIL_MAX + 1], how[64];

    tail_text(&w->tail, tail);
    if (w->start_error != 0) {
        snprintf(out, size, "it could not be started: %s", strerror(w->start_error));
        return;
    }
    proc_describe_end(w->wait_status, how, sizeof(how));
    snprintf(out, size, "it ended (%s) before its port %u listened%s%s", how, w->port,
             tail[0] ? ": " : "", tail);
}

/* -- the file ---------------------------------------------------------------------------------- */

/* A FIFO or a device in its place would stop cay-init: only a file in its own right is read. The
 * text, or NULL: *ret is 0 where there is none. */
static char *read_file(size_t *len, int *ret)
{
    CLEANUP_CLOSE int fd = open(START_FILE, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    CLEANUP_FREE char *text = malloc(START_FILE_MAX + 1);
    struct stat st;
    ssize_t n;

    *ret = fd < 0 && (errno == ENOENT || errno == ENOTDIR) ? 0 : -EINVAL;
    if (fd < 0 || !text || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
        st.st_size > START_FILE_MAX)
        return NULL;
    n = pread(fd, text, START_FILE_MAX, 0);
    if (n < 0)
        return NULL;
    text[n] = '\0';
    *len = (size_t)n;
    return TAKE_PTR(text);
}

struct command {
    const char *cmd, *user, *cwd; /* borrowed from the file's object; cmd NULL: none */
    json_t *env;                  /* the same; NULL: none */
    int64_t port;                 /* 0: none */
};

static enum err_code read_command(const json_t *file, struct command *out, struct err *e)
{
    *out = (struct command){.user = "root", .cwd = "/"};
    if (json_get_obj(file, "env", NULL, JSON_OPTIONAL, &out->env, e) != ERR_OK ||
        (out->env && json_check_env(out->env, "env", START_ENV_MAX, START_FILE_MAX, e) != ERR_OK) ||
        json_get_str(file, "cmd", NULL, out->env ? JSON_OPTIONAL : JSON_REQUIRED, START_CMD_MAX,
                     &out->cmd, e) != ERR_OK ||
        json_get_str(file, "user", NULL, JSON_OPTIONAL, AGENT_NAME_SIZE - 1, &out->user, e) !=
            ERR_OK ||
        json_get_str(file, "cwd", NULL, JSON_OPTIONAL, AGENT_PATH_SIZE - 1, &out->cwd, e) !=
            ERR_OK ||
        json_get_int(file, "port", NULL, JSON_OPTIONAL, 1, 65535, &out->port, e) != ERR_OK)
        return e->code;
    return out->cwd[0] == '/' ? ERR_OK : err_set(e, ERR_INVALID, "cwd must begin with /");
}

static enum err_code start(struct agent *a, const struct command *c, struct proc_watcher *watcher,
                           struct err *e)
{
    json_t *args = json_pack("[s, s]", "-c", c->cmd);
    json_t *config = args ? json_pack("{s:s, s:O, s:{}, s:s}", "cmd", "/bin/sh", "args", args,
                                      "envs", "cwd", c->cwd)
                          : NULL;
    struct user user;
    struct proc_start s = {.user = &user,
                           .cwd = c->cwd,
                           .cmd = "/bin/sh",
                           .args = args,
                           .config = config,
                           .config_bytes = strlen(c->cmd),
                           .tag = "start-command",
                           .watcher = watcher};
    enum err_code code = ERR_OK;

    if (!config)
        code = err_set(e, ERR_EXHAUSTED, "memory is out");
    else if (user_find(c->user, &user, e) != ERR_OK)
        code = e->code;
    else if (proc_start(a, &s, NULL, e) != CONNECT_OK)
        code = e->code;
    json_decref(config);
    json_decref(args);
    return code;
}

/* -- the port ---------------------------------------------------------------------------------- */

static void on_timer_closed(uv_handle_t *h)
{
    free(h->data);
}

/* why: it cannot be used, NULL: it listens, or is not waited for any more. */
static void done(struct wait *w, const char *why)
{
    struct http_exchange *x = TAKE_PTR(w->x);

    proc_unwatch(&w->watcher);
    util_close(&w->fd);
    uv_close((uv_handle_t *)&w->timer, on_timer_closed);
    if (!x)
        return;
    http_exchange_set(x, w->agent, NULL);
    if (why && w->request.must_run)
        http_respond_error(x, AGENT_START_FAILED, "%s", why);
    else
        w->request.answer(x);
}

/* 1: it listens; 0: not known yet; -errno: it does not. Of loopback: the answer comes at once, but
 * for a full backlog. */
static int probe(struct wait *w)
{
    int rc;

    if (w->fd < 0)
        w->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (w->fd < 0)
        return -errno;
    rc = loopback_connect(w->fd, w->port);
    if (rc == 0 || rc == -EISCONN)
        return 1;
    if (rc == 1 || rc == -EALREADY)
        return 0;
    util_close(&w->fd);
    return -ECONNREFUSED;
}

static void on_probe(uv_timer_t *t)
{
    struct wait *w = t->data;
    char why[START_WHY_SIZE];

    if (probe(w) == 1) {
        done(w, NULL);
    } else if (is_gone(w)) {
        explain_end(w, why, sizeof(why));
        say(w->agent, why);
        done(w, why);
    } else if (clock_mono_ms() > w->until_ms) {
        say(w->agent, "its port does not listen");
        done(w, NULL);
    }
}

static void on_exchange_closed(struct http_exchange *x, void *data)
{
    struct wait *w = data;

    w->x = NULL;
}

static struct wait *wait_new(struct agent *a, const struct start_request *r, uint16_t port)
{
    struct wait *w = calloc(1, sizeof(*w));

    if (w)
        *w = (struct wait){.agent = a,
                           .request = *r,
                           .watcher = {.output = on_output, .ended = on_ended},
                           .port = port,
                           .fd = -1};
    return w;
}

static void wait_for_port(struct wait *w, struct http_exchange *x)
{
    w->x = x;
    w->until_ms = clock_mono_ms() + (w->request.wait_ms ? w->request.wait_ms : START_WAIT_MS);
    uv_timer_init(w->agent->loop, &w->timer);
    w->timer.data = w;
    http_exchange_set(x, w, on_exchange_closed);
    uv_timer_start(&w->timer, on_probe, START_PROBE_MS, START_PROBE_MS);
}

/* *out: the wait for its port; NULL where there is none. */
static enum err_code run_command(struct agent *a, const struct command *c,
                                 const struct start_request *r, struct wait **out, struct err *e)
{
    CLEANUP_FREE struct wait *w = c->port > 0 ? wait_new(a, r, (uint16_t)c->port) : NULL;

    if (c->port > 0 && !w)
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    if (start(a, c, w ? &w->watcher : NULL, e) == ERR_OK)
        *out = TAKE_PTR(w);
    return e->code;
}

/* The file's variables are every process', its command is started: but not where /init says so, nor
 * for a command sandbox, whose sandbox has it already. */
static enum err_code use_file(struct agent *a, const char *text, size_t len,
                              const struct start_request *r, struct wait **out, struct err *e)
{
    struct command c = {0};
    json_t *file = NULL;

    if (json_parse(text, len, false, &file, e) == ERR_OK && read_command(file, &c, e) == ERR_OK) {
        json_decref(a->file_env);
        a->file_env = json_incref(c.env);
        if (c.cmd && !r->variables_alone && !a->command_sandbox)
            (void)run_command(a, &c, r, out, e);
    }
    json_decref(file);
    return e->code;
}

bool start_command_run(struct agent *a, const struct start_request *r, struct http_exchange *x)
{
    CLEANUP_FREE char *text = NULL;
    struct wait *w = NULL;
    struct err e = {0};
    size_t len;
    int ret;

    if (a->start_command_read)
        return false;
    a->start_command_read = true;
    text = read_file(&len, &ret);
    if (!text) {
        if (ret < 0)
            say(a, "it is not a file that can be read");
        return false;
    }
    if (use_file(a, text, len, r, &w, &e) != ERR_OK)
        say(a, e.text);
    if (w)
        wait_for_port(w, x);
    return w != NULL;
}
