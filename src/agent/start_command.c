#include "agent/start_command.h"

#include "agent/common/logs.h"
#include "agent/process/proc.h"
#include "base/clock.h"
#include "base/io.h"
#include "http/json.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* A wait for the port. Freed when its timer is closed. */
struct wait {
    struct agent *agent;
    struct http_exchange *x; /* NULL: the client is gone */
    void (*answer)(struct http_exchange *x);
    uv_timer_t timer;
    uint16_t port;
    int fd; /* a connection that is being made, or -1 */
    uint64_t until_ms;
};

static void say(struct agent *a, const char *text)
{
    logs_add(a, "warn", "start_command", 0, "%s: %s", START_FILE, text);
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

static enum err_code start(struct agent *a, const struct command *c, struct err *e)
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
                           .tag = "start-command"};
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

static void done(struct wait *w)
{
    struct http_exchange *x = TAKE_PTR(w->x);

    util_close(&w->fd);
    uv_close((uv_handle_t *)&w->timer, on_timer_closed);
    if (!x)
        return;
    http_exchange_set(x, w->agent, NULL);
    w->answer(x);
}

/* 1: it listens; 0: not known yet; -errno: it does not. Of loopback: the answer comes at once, but
 * for a full backlog. */
static int probe(struct wait *w)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons(w->port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    if (w->fd < 0)
        w->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (w->fd < 0)
        return -errno;
    if (connect(w->fd, (struct sockaddr *)&at, sizeof(at)) == 0 || errno == EISCONN)
        return 1;
    if (errno == EINPROGRESS || errno == EALREADY)
        return 0;
    util_close(&w->fd);
    return -ECONNREFUSED;
}

static void on_probe(uv_timer_t *t)
{
    struct wait *w = t->data;

    if (probe(w) == 1) {
        done(w);
    } else if (clock_mono_ms() > w->until_ms) {
        say(w->agent, "its port does not listen");
        done(w);
    }
}

static void on_exchange_closed(struct http_exchange *x, void *data)
{
    struct wait *w = data;

    w->x = NULL;
}

static bool wait_for_port(struct agent *a, uint16_t port, uint64_t wait_ms, struct http_exchange *x,
                          void (*answer)(struct http_exchange *x))
{
    struct wait *w = calloc(1, sizeof(*w));

    if (!w)
        return false;
    *w = (struct wait){.agent = a, .x = x, .answer = answer, .port = port, .fd = -1};
    w->until_ms = clock_mono_ms() + (wait_ms ? wait_ms : START_WAIT_MS);
    uv_timer_init(a->loop, &w->timer);
    w->timer.data = w;
    http_exchange_set(x, w, on_exchange_closed);
    uv_timer_start(&w->timer, on_probe, START_PROBE_MS, START_PROBE_MS);
    return true;
}

/* The file's variables are every process', its command is started: but not for a command sandbox,
 * whose sandbox has it already. */
static enum err_code use_file(struct agent *a, const char *text, size_t len, int64_t *port,
                              struct err *e)
{
    struct command c = {0};
    json_t *file = NULL;

    if (json_parse(text, len, false, &file, e) == ERR_OK && read_command(file, &c, e) == ERR_OK) {
        json_decref(a->file_env);
        a->file_env = json_incref(c.env);
        if (c.cmd && !a->command_sandbox && start(a, &c, e) == ERR_OK)
            *port = c.port;
    }
    json_decref(file);
    return e->code;
}

bool start_command_run(struct agent *a, uint64_t wait_ms, struct http_exchange *x,
                       void (*answer)(struct http_exchange *x))
{
    CLEANUP_FREE char *text = NULL;
    struct err e = {0};
    int64_t port = 0;
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
    if (use_file(a, text, len, &port, &e) != ERR_OK)
        say(a, e.text);
    return port > 0 && wait_for_port(a, (uint16_t)port, wait_ms, x, answer);
}
