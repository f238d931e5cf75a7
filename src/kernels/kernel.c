/* In order: its end (which all ways lead to), messages in and out, its start: ports, connection
 * file, process, channels. kernel.h has the states. A kernel is freed when the last of its handles
 * is closed, the process handle after the process was reaped. */
#include "kernels/kernel.h"

#include "base/buf.h"
#include "base/ids.h"
#include "base/io.h"
#include "base/log.h"
#include "kernels/channel.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <zmq.h>

#define PORTS        5 /* shell, control, iopub, stdin, heartbeat; all five are in the file */
#define PROBE_MS     100
#define ENV_MAX      1024u
#define ENDPOINT_MAX 64

enum state { STARTING, READY, GONE };

struct kernel {
    uv_process_t process;
    uv_timer_t timer; /* while it starts: asks again */
    struct channel *shell, *control, *iopub;
    enum state state;
    bool by_signal, requested, on_shell, on_iopub, exited;
    unsigned handles; /* not closed yet */
    uint64_t started_ms;
    char key[WIRE_KEY_LEN + 1], session[WIRE_ID_LEN + 1], file[PATH_MAX];
    struct kernel_events events;
    void *arg;
};

/* -- the end ----------------------------------------------------------------------------------- */

static void on_closed(uv_handle_t *h)
{
    struct kernel *k = h->data;

    if (--k->handles > 0)
        return;
    (void)unlink(k->file);
    free(k);
}

/* The process handle stays until the process was reaped. */
static void let_go(struct kernel *k)
{
    if (k->state == GONE)
        return;
    k->state = GONE;
    channel_close(k->shell);
    channel_close(k->control);
    channel_close(k->iopub);
    uv_close((uv_handle_t *)&k->timer, on_closed);
    if (!k->exited)
        (void)kill(-k->process.pid, SIGKILL);
}

static void end(struct kernel *k, const char *why)
{
    struct kernel_events events = k->events;
    void *arg = k->arg;

    if (k->state == GONE)
        return;
    let_go(k);
    events.ended(arg, why);
}

static void on_process_exit(uv_process_t *p, int64_t status, int signal_number)
{
    struct kernel *k = CONTAINER_OF(p, struct kernel, process);
    char why[96];

    k->exited = true;
    /* Processes that it started in its group are killed with it. */
    (void)kill(-p->pid, SIGKILL);
    if (signal_number)
        snprintf(why, sizeof(why), "the kernel was ended by signal %d", signal_number);
    else
        snprintf(why, sizeof(why), "the kernel ended with exit status %d", (int)status);
    end(k, why);
    uv_close((uv_handle_t *)p, on_closed);
}

void kernel_stop(struct kernel *k)
{
    if (k)
        let_go(k);
}

/* -- messages ---------------------------------------------------------------------------------- */

static void new_id(char id[WIRE_ID_LEN + 1])
{
    ids_random_text(id, WIRE_ID_LEN);
}

static int send_request(struct kernel *k, struct channel *c, const char *id, const char *type,
                        const json_t *content)
{
    struct wire_sent m;
    int ret = wire_build(k->key, k->session, id, type, content, &m);

    if (ret < 0)
        return ret;
    ret = channel_send(c, m.frames, WIRE_SENT_FRAMES);
    wire_sent_free(&m);
    return ret;
}

static void send_empty(struct kernel *k, struct channel *c, const char *type)
{
    char id[WIRE_ID_LEN + 1];
    json_t *content = json_object();

    new_id(id);
    if (content && send_request(k, c, id, type, content) < 0)
        log_warn("%s could not be sent to a kernel", type);
    json_decref(content);
}

int kernel_execute(struct kernel *k, const char *id, const char *code, bool silent)
{
    json_t *content = json_pack("{s:s, s:b, s:b, s:{}, s:b, s:b}", "code", code, "silent", silent,
                                "store_history", !silent, "user_expressions", "allow_stdin", 0,
                                "stop_on_error", 0);
    int ret = content ? send_request(k, k->shell, id, "execute_request", content) : -ENOMEM;

    json_decref(content);
    return ret;
}

void kernel_interrupt(struct kernel *k)
{
    if (k->by_signal)
        (void)kill(-k->process.pid, SIGINT);
    else
        send_empty(k, k->control, "interrupt_request");
}

static void come(struct kernel *k, bool *channel, const struct wire_frame *frames, size_t n)
{
    struct wire_message m;
    int ret = wire_parse(k->key, frames, n, &m);

    if (ret < 0) {
        log_warn("a message of a kernel is refused: %s", strerror(-ret));
        return;
    }
    *channel = true;
    if (k->state == STARTING && k->on_shell && k->on_iopub) {
        k->state = READY;
        uv_timer_stop(&k->timer);
        k->events.ready(k->arg);
    } else if (k->state == READY) {
        k->events.message(k->arg, &m);
    }
    wire_free(&m);
}

static void on_shell(void *arg, const struct wire_frame *frames, size_t n)
{
    struct kernel *k = arg;

    come(k, &k->on_shell, frames, n);
}

static void on_iopub(void *arg, const struct wire_frame *frames, size_t n)
{
    struct kernel *k = arg;

    come(k, &k->on_iopub, frames, n);
}

/* The answer to an interrupt is not needed. */
static void on_control(void *arg, const struct wire_frame *frames, size_t n)
{
}

static void on_probe(uv_timer_t *t)
{
    struct kernel *k = t->data;

    if (uv_now(t->loop) - k->started_ms > KERNEL_START_MS) {
        end(k, "the kernel did not answer in time");
        return;
    }
    if (k->on_shell || !k->requested)
        send_empty(k, k->shell, "kernel_info_request");
    k->requested = true;
}

/* -- the start --------------------------------------------------------------------------------- */

static int choose_port(int fd)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);

    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 ||
        getsockname(fd, (struct sockaddr *)&at, &len) < 0)
        return -errno;
    return ntohs(at.sin_port);
}

/* All are held until the last is chosen, so that they differ. */
static int choose_ports(int ports[PORTS])
{
    int fds[PORTS], ret = 0;

    for (int i = 0; i < PORTS; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ports[i] = choose_port(fds[i]);
        ret = ret == 0 && ports[i] < 0 ? ports[i] : ret;
    }
    for (int i = 0; i < PORTS; i++)
        util_close(&fds[i]);
    return ret;
}

static int write_file(const struct kernel *k, const int ports[PORTS])
{
    json_t *object = json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:s, s:s}", "transport", "tcp",
                               "ip", "127.0.0.1", "shell_port", ports[0], "control_port", ports[1],
                               "iopub_port", ports[2], "stdin_port", ports[3], "hb_port", ports[4],
                               "signature_scheme", "hmac-sha256", "key", k->key);
    CLEANUP_FREE char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
    CLEANUP_CLOSE int fd = open(k->file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    json_decref(object);
    if (!text)
        return -ENOMEM;
    return fd < 0 ? -errno : io_write_full(fd, text, strlen(text));
}

/* This program's environment and the specification's. Ends with NULL; the array alone is to be
 * freed, and *added, which has what the specification added. */
static char **make_env(const struct spec *s, char **added)
{
    extern char **environ;
    json_t *env = json_object_get(s->object, "env"), *v;
    char **out = calloc(ENV_MAX + SPEC_ARGV_MAX + 1, sizeof(*out));
    CLEANUP_BUF struct buf b;
    const char *key;
    size_t n = 0;

    buf_init(&b, SPEC_BYTES_MAX * 2);
    for (; out && environ[n] && n < ENV_MAX; n++)
        out[n] = environ[n];
    json_object_foreach (env, key, v)
        if (buf_printf(&b, "%s=%s", key, json_string_value(v)) < 0 || buf_append(&b, "", 1) < 0)
            break;
    *added = buf_take(&b);
    for (char *at = *added; out && at && at[0] && n < ENV_MAX + SPEC_ARGV_MAX; at += strlen(at) + 1)
        out[n++] = at;
    return out;
}

static int spawn(struct kernel *k, const struct kernel_start *s)
{
    CLEANUP_FREE char *added = NULL;
    char **argv = spec_argv(s->spec, k->file), **env = make_env(s->spec, &added);
    uv_stdio_container_t stdio[3] = {{.flags = UV_IGNORE},
                                     {.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO},
                                     {.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO}};
    int ret = -ENOMEM;

    if (argv && env) {
        uv_process_options_t options = {.exit_cb = on_process_exit,
                                        .file = argv[0],
                                        .args = argv,
                                        .env = env,
                                        .cwd = s->cwd,
                                        .stdio = stdio,
                                        .stdio_count = 3,
                                        .flags = UV_PROCESS_DETACHED};

        ret = uv_spawn(s->loop, &k->process, &options);
    }
    spec_free_argv(argv);
    free(env);
    return ret;
}

static int connect_to(struct kernel *k, const struct kernel_start *s, const int ports[PORTS])
{
    static const struct {
        int type;
        channel_message_fn fn;
    } channels[] = {{ZMQ_DEALER, on_shell}, {ZMQ_DEALER, on_control}, {ZMQ_SUB, on_iopub}};
    struct channel **out[] = {&k->shell, &k->control, &k->iopub};
    char endpoint[ENDPOINT_MAX];
    int ret = 0;

    for (size_t i = 0; i < ARRAY_SIZE(channels) && ret == 0; i++) {
        snprintf(endpoint, sizeof(endpoint), "tcp://127.0.0.1:%d", ports[i]);
        ret = channel_open(s->loop, s->zmq, channels[i].type, endpoint, channels[i].fn, k, out[i]);
    }
    return ret;
}

static struct kernel *make(const struct kernel_start *s, const struct kernel_events *events,
                           void *arg)
{
    struct kernel *k = calloc(1, sizeof(*k));
    unsigned char key[WIRE_KEY_LEN / 2];
    char name[WIRE_ID_LEN + 1];

    if (!k)
        return NULL;
    ids_random_bytes(key, sizeof(key));
    ids_hex(key, sizeof(key), k->key);
    new_id(k->session);
    new_id(name);
    snprintf(k->file, sizeof(k->file), "%s/%s.json", s->dir, name);
    k->by_signal = s->spec->interrupt_by_signal;
    k->events = *events;
    k->arg = arg;
    k->started_ms = uv_now(s->loop);
    return k;
}

enum err_code kernel_new(const struct kernel_start *s, const struct kernel_events *events,
                         void *arg, struct kernel **out, struct err *e)
{
    struct kernel *k = make(s, events, arg);
    int ports[PORTS], ret;

    if (!k)
        return err_set(e, ERR_INTERNAL, "no memory for a kernel");
    k->process.data = k->timer.data = k;
    ret = choose_ports(ports);
    if (ret == 0)
        ret = write_file(k, ports);
    if (ret < 0) {
        (void)unlink(k->file);
        free(k);
        return err_set_sys(e, ERR_INTERNAL, ret, "preparing a kernel");
    }
    k->handles = 1;
    ret = spawn(k, s);
    if (ret < 0) {
        uv_close((uv_handle_t *)&k->process, on_closed); /* libuv has it in its list already */
        return err_set_sys(e, ret == UV_ENOENT ? ERR_NOT_FOUND : ERR_INTERNAL, ret,
                           "starting a kernel in %s", s->cwd);
    }
    uv_timer_init(s->loop, &k->timer);
    k->handles = 2;
    ret = connect_to(k, s, ports);
    if (ret < 0) {
        let_go(k);
        return err_set_sys(e, ERR_INTERNAL, ret, "connecting to a kernel");
    }
    uv_timer_start(&k->timer, on_probe, 0, PROBE_MS);
    *out = k;
    return ERR_OK;
}
