/* The Process service (E2B's process.proto) but for input: requests in, replies out. A request
 * is read whole, checked, and then acts on the table of proc.c: Start begins a process and
 * subscribes to it, Connect subscribes to one that runs (or is told the end of one that has),
 * the others answer once. A kill is answered when the process was reaped, or after a moment. */

#include "agent/process/proc.h"

#include "agent/common/path.h"
#include "agent/common/user.h"
#include "agent/process/proc_input.h"
#include "agent/process/proc_output.h"
#include "agent/process/proc_signal.h"
#include "agent/process/proc_start.h"
#include "base/clock.h"
#include "http/json.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define PROCESS_REQUEST_MAX (2u * 1024u * 1024u)
#define PROCESS_SMALL_MAX   (64u * 1024u)
#define PROCESS_ARGS_MAX    16384
#define PROCESS_ENVS_MAX    4096
#define PROCESS_ENVS_BYTES  (1024u * 1024u)
#define PROCESS_STRING_MAX  (131072u - 1) /* MAX_ARG_STRLEN of the kernel, see execve(2) */
#define PROCESS_TAG_MAX     256

/* -- Start ------------------------------------------------------------------------------------- */

static enum err_code check_args(const json_t *args, struct err *e)
{
    if (json_array_size(args) > PROCESS_ARGS_MAX)
        return err_set(e, ERR_INVALID, "process.args: at most %d", PROCESS_ARGS_MAX);
    for (size_t i = 0; i < json_array_size(args); i++) {
        const json_t *arg = json_array_get(args, i);

        if (!json_is_string(arg))
            return err_set(e, ERR_INVALID, "process.args[%zu] must be a string", i);
        if (json_string_length(arg) > PROCESS_STRING_MAX)
            return err_set(e, ERR_INVALID,
                           "process.args[%zu] has %zu bytes; the kernel takes at most %u", i,
                           json_string_length(arg), PROCESS_STRING_MAX);
    }
    return ERR_OK;
}

static enum err_code check_envs(const json_t *envs, struct err *e)
{
    if (!envs)
        return ERR_OK;
    return json_check_env(envs, "process.envs", PROCESS_ENVS_MAX, PROCESS_ENVS_BYTES, e);
}

static enum err_code read_size(const json_t *pty, uint16_t *cols, uint16_t *rows, struct err *e)
{
    json_t *size = NULL;
    int64_t c = 0, r = 0;

    if (!pty)
        return ERR_OK;
    if (json_get_obj(pty, "size", NULL, JSON_OPTIONAL, &size, e) != ERR_OK)
        return e->code;
    if (size && (json_get_int(size, "cols", NULL, JSON_OPTIONAL, 0, UINT16_MAX, &c, e) != ERR_OK ||
                 json_get_int(size, "rows", NULL, JSON_OPTIONAL, 0, UINT16_MAX, &r, e) != ERR_OK))
        return e->code;
    *cols = (uint16_t)c;
    *rows = (uint16_t)r;
    return ERR_OK;
}

static enum err_code read_process(json_t *process, struct proc_start *s, const char **cwd,
                                  struct err *e)
{
    json_t *args = NULL, *envs = NULL;

    if (json_get_str(process, "cmd", NULL, JSON_REQUIRED, AGENT_PATH_SIZE - 1, &s->cmd, e) !=
            ERR_OK ||
        json_get_str(process, "cwd", NULL, JSON_OPTIONAL, AGENT_PATH_SIZE - 1, cwd, e) != ERR_OK ||
        json_get_arr(process, "args", NULL, JSON_OPTIONAL, &args, e) != ERR_OK ||
        json_get_obj(process, "envs", NULL, JSON_OPTIONAL, &envs, e) != ERR_OK ||
        check_args(args, e) != ERR_OK || check_envs(envs, e) != ERR_OK)
        return e->code;
    if (s->cmd[0] == '\0')
        return err_set(e, ERR_INVALID, "process.cmd is empty");
    s->args = args;
    s->envs = envs;
    return ERR_OK;
}

static enum err_code read_start(json_t *request, struct proc_start *s, const char **cwd,
                                struct err *e)
{
    json_t *process = NULL, *pty = NULL;

    s->want_stdin = true;
    if (json_get_obj(request, "process", NULL, JSON_REQUIRED, &process, e) != ERR_OK ||
        json_get_obj(request, "pty", NULL, JSON_OPTIONAL, &pty, e) != ERR_OK ||
        json_get_str(request, "tag", NULL, JSON_OPTIONAL, PROCESS_TAG_MAX, &s->tag, e) != ERR_OK ||
        json_get_bool(request, "stdin", NULL, JSON_OPTIONAL, &s->want_stdin, e) != ERR_OK ||
        read_process(process, s, cwd, e) != ERR_OK ||
        read_size(pty, &s->cols, &s->rows, e) != ERR_OK)
        return e->code;
    s->terminal = pty != NULL;
    s->config = process;
    return ERR_OK;
}

/* The parts of a request that List answers; about their size as text. */
static size_t config_bytes(const json_t *process)
{
    size_t n = json_dumpb(process, NULL, 0, JSON_COMPACT);

    return n;
}

static enum connect_code start(struct http_exchange *x, struct agent *a, json_t *request,
                               struct err *e)
{
    struct user user;
    struct proc_start s = {.user = &user};
    char path[AGENT_PATH_SIZE];
    const char *cwd = "";

    if (read_start(request, &s, &cwd, e) != ERR_OK)
        return connect_code_from_err(e->code);
    if (connect_timeout_ms(http_exchange_head(x), &s.timeout_ms) < 0) {
        err_set(e, ERR_INVALID, "Connect-Timeout-Ms must be a number of at most ten digits");
        return CONNECT_INVALID_ARGUMENT;
    }
    if (user_of_request(x, a, &user, e) != ERR_OK ||
        path_resolve(cwd, &user, a->default_workdir, path, e) != ERR_OK)
        return connect_code_from_err(e->code);
    s.cwd = path;
    s.config_bytes = config_bytes(s.config);
    return proc_start(a, &s, x, e);
}

static void start_read(struct http_exchange *x, json_t *request, bool stream)
{
    struct agent *a = http_exchange_get(x);
    enum connect_code code;
    struct err e;

    if (!stream)
        connect_fail(x, CONNECT_INVALID_ARGUMENT,
                     "Start answers with a stream: send it as "
                     "application/connect+json");
    else if ((code = start(x, a, request, &e)) != CONNECT_OK)
        connect_fail(x, code, "%s", e.text);
    json_decref(request);
}

void process_start(struct http_exchange *x, struct agent *a UNUSED)
{
    connect_read(x, PROCESS_REQUEST_MAX, start_read);
}

/* -- Connect ----------------------------------------------------------------------------------- */

static void connect_to_ended(struct http_exchange *x, const struct agent *a,
                             const struct proc_exit *ended)
{
    json_t *event = json_pack("{s{s{si}}}", "event", "start", "pid", (int)ended->pid);
    const struct proc_end end = {ended->pid, ended->wait_status, ended->oom, ended->name};

    connect_stream_begin(x);
    (void)connect_stream_send(x, event);
    json_decref(event);
    event = proc_end_event(a, &end);
    (void)connect_stream_send(x, event);
    json_decref(event);
    connect_stream_end(x, CONNECT_OK, "%s", "");
}

static void connect_read_done(struct http_exchange *x, json_t *request, bool stream)
{
    struct agent *a = http_exchange_get(x);
    const struct proc_exit *ended = NULL;
    struct proc *p = NULL;
    uint64_t stream_ms = 0;
    struct err e;
    enum connect_code code = proc_select(a, json_object_get(request, "process"), &p, &ended, &e);

    if (!stream)
        connect_fail(x, CONNECT_INVALID_ARGUMENT,
                     "Connect answers with a stream: send it as "
                     "application/connect+json");
    else if (code != CONNECT_OK)
        connect_fail(x, code, "%s", e.text);
    else if (connect_timeout_ms(http_exchange_head(x), &stream_ms) < 0)
        connect_fail(x, CONNECT_INVALID_ARGUMENT,
                     "Connect-Timeout-Ms must be a number of at most ten "
                     "digits");
    else if (!p)
        connect_to_ended(x, a, ended);
    else if (proc_subscribe(p, x, false, stream_ms) < 0)
        connect_fail(x, CONNECT_RESOURCE_EXHAUSTED,
                     "too many streams: at most %d of one process and %d in all",
                     PROC_SUBSCRIBERS_EACH, PROC_SUBSCRIBERS_MAX);
    json_decref(request);
}

void process_connect(struct http_exchange *x, struct agent *a UNUSED)
{
    connect_read(x, PROCESS_SMALL_MAX, connect_read_done);
}

/* -- List -------------------------------------------------------------------------------------- */

static void list_read(struct http_exchange *x, json_t *request, bool stream UNUSED)
{
    const struct agent *a = http_exchange_get(x);
    json_t *processes = json_array(), *reply;

    for (const struct proc *p = a->processes->first; p; p = p->next) {
        if (p->launch)
            continue;
        json_t *info = json_pack("{sO si}", "config", p->config, "pid", (int)p->pid);

        if (p->tag)
            json_object_set_new(info, "tag", json_string(p->tag));
        json_array_append_new(processes, info);
    }
    reply = json_object();
    if (json_array_size(processes) > 0)
        json_object_set(reply, "processes", processes);
    connect_reply(x, reply);
    json_decref(processes);
    json_decref(reply);
    json_decref(request);
}

void process_list(struct http_exchange *x, struct agent *a UNUSED)
{
    connect_read(x, PROCESS_SMALL_MAX, list_read);
}

/* -- SendSignal, Update ------------------------------------------------------------------------ */

/* Calls act with the living process that a unary request names, and answers. */
static void on_process(struct http_exchange *x, json_t *request,
                       enum connect_code (*act)(struct proc *p, const json_t *request,
                                                struct err *e))
{
    struct proc *p = NULL;
    struct err e;
    enum connect_code code = proc_select(http_exchange_get(x), json_object_get(request, "process"),
                                         &p, NULL, &e);

    if (code == CONNECT_OK)
        code = act(p, request, &e);
    if (code == CONNECT_OK)
        connect_reply_empty(x);
    else
        connect_fail(x, code, "%s", e.text);
    json_decref(request);
}

/* Enums are names or numbers in proto3's JSON. */
static int read_signal(const json_t *signal)
{
    const char *name = json_string_value(signal);
    json_int_t number = json_integer_value(signal);

    if (number == SIGKILL || (name && strcmp(name, "SIGNAL_SIGKILL") == 0))
        return SIGKILL;
    if (number == SIGTERM || (name && strcmp(name, "SIGNAL_SIGTERM") == 0))
        return SIGTERM;
    return -EINVAL;
}

static enum connect_code act_signal(struct proc *p, const json_t *request, struct err *e)
{
    int sig = read_signal(json_object_get(request, "signal")), ret;

    if (sig < 0) {
        err_set(e, ERR_UNIMPLEMENTED, "signal must be SIGNAL_SIGTERM or SIGNAL_SIGKILL");
        return CONNECT_UNIMPLEMENTED;
    }
    ret = proc_signal(p, sig);
    if (ret < 0) {
        err_set_sys(e, ERR_INTERNAL, ret, "error sending signal");
        return CONNECT_INTERNAL;
    }
    return CONNECT_OK;
}

/* A client that is told "killed" may look for the pid at once, and must not find it dying: the
 * answer to SIGKILL waits until the process was reaped. Bounded, since one that hangs in the kernel
 * dies later. */
#define KILL_WAIT_MS 2000u

struct kill_wait {
    uv_timer_t timer;
    struct agent *agent;
    struct http_exchange *x; /* NULL: the client is gone */
    pid_t pid;
    uint64_t until_ms;
};

static void kill_wait_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void kill_wait_forget(struct http_exchange *x UNUSED, void *data)
{
    struct kill_wait *w = data;

    w->x = NULL;
}

static void kill_wait_poll(uv_timer_t *timer)
{
    struct kill_wait *w = timer->data;

    if (w->x && proc_is_running(w->agent, w->pid) && clock_mono_ms() < w->until_ms)
        return;
    if (w->x) {
        http_exchange_set(w->x, w->agent, NULL);
        connect_reply_empty(w->x);
    }
    uv_close((uv_handle_t *)timer, kill_wait_closed);
}

static void reply_when_reaped(struct http_exchange *x, pid_t pid)
{
    struct agent *a = http_exchange_get(x);
    struct kill_wait *w = proc_is_running(a, pid) ? calloc(1, sizeof(*w)) : NULL;

    if (!w) {
        connect_reply_empty(x);
        return;
    }
    *w = (struct kill_wait){
        .agent = a, .x = x, .pid = pid, .until_ms = clock_mono_ms() + KILL_WAIT_MS};
    uv_timer_init(a->loop, &w->timer);
    w->timer.data = w;
    http_exchange_set(x, w, kill_wait_forget);
    uv_timer_start(&w->timer, kill_wait_poll, 0, 1);
}

static void signal_read(struct http_exchange *x, json_t *request, bool stream UNUSED)
{
    struct proc *p = NULL;
    struct err e;
    enum connect_code code = proc_select(http_exchange_get(x), json_object_get(request, "process"),
                                         &p, NULL, &e);
    pid_t pid = p ? p->pid : 0;

    /* p may be gone after it. */
    if (code == CONNECT_OK)
        code = act_signal(p, request, &e);
    if (code != CONNECT_OK)
        connect_fail(x, code, "%s", e.text);
    else if (read_signal(json_object_get(request, "signal")) == SIGKILL)
        reply_when_reaped(x, pid);
    else
        connect_reply_empty(x);
    json_decref(request);
}

void process_send_signal(struct http_exchange *x, struct agent *a UNUSED)
{
    connect_read(x, PROCESS_SMALL_MAX, signal_read);
}

static enum connect_code act_update(struct proc *p, const json_t *request, struct err *e)
{
    struct winsize size = {0};
    json_t *pty = NULL;

    if (json_get_obj(request, "pty", NULL, JSON_OPTIONAL, &pty, e) != ERR_OK ||
        read_size(pty, &size.ws_col, &size.ws_row, e) != ERR_OK)
        return CONNECT_INVALID_ARGUMENT;
    if (!pty)
        return CONNECT_OK;
    if (!p->terminal || p->out[0].fd < 0) {
        err_set(e, ERR_INTERNAL, "error resizing tty: process %d has no terminal", (int)p->pid);
        return CONNECT_INTERNAL;
    }
    if (ioctl(p->out[0].fd, TIOCSWINSZ, &size) < 0) {
        err_set_sys(e, ERR_INTERNAL, errno, "error resizing tty");
        return CONNECT_INTERNAL;
    }
    return CONNECT_OK;
}

static void update_read(struct http_exchange *x, json_t *request, bool stream UNUSED)
{
    on_process(x, request, act_update);
}

void process_update(struct http_exchange *x, struct agent *a UNUSED)
{
    connect_read(x, PROCESS_SMALL_MAX, update_read);
}

/* -- CloseStdin -------------------------------------------------------------------------------- */

static enum connect_code act_close_stdin(struct proc *p, const json_t *request UNUSED,
                                         struct err *e)
{
    if (p->terminal) {
        err_set(e, ERR_INVALID,
                "error closing stdin: cannot close stdin for PTY process: send Ctrl+D "
                "(0x04) instead");
        return CONNECT_UNKNOWN;
    }
    proc_input_finish(p);
    return CONNECT_OK;
}

static void close_stdin_read(struct http_exchange *x, json_t *request, bool stream UNUSED)
{
    on_process(x, request, act_close_stdin);
}

void process_close_stdin(struct http_exchange *x, struct agent *a UNUSED)
{
    connect_read(x, PROCESS_SMALL_MAX, close_stdin_read);
}
