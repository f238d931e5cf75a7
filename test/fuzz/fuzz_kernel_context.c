/* A context of cay-kernels between its clients and a hostile kernel: the input is a row of steps, by
 * each of which the kernel says something, ends or gets ready, or a client comes, goes, restarts
 * the context. Contexts, executions, the answers' lines and the HTTP server are the program's own;
 * kernel.c and spec.c are not there, and what they offer is below. Checked: each line of an answer
 * is one object of JSON that clients know, no answer goes on after its end or has two errors, each
 * exchange is closed once, and nothing is left open. */
#include <jansson.h>
#include <signal.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/util.h"
#include "fuzz.h"
#include "kernels/context.h"

#include <errno.h>

#define CLIENTS_MAX 6u
#define ANSWER_MAX  (4u << 20)
#define STEPS_MAX   400u

/* -- the kernel -------------------------------------------------------------------------------- */

struct kernel {
    struct kernel_events events;
    void *arg;
    bool is_ready;
};

static struct kernel *kernel; /* the one that there is, or NULL */
static char asked[WIRE_ID_LEN + 1], asked_before[WIRE_ID_LEN + 1];
static bool takes_nothing, starts_none;

enum err_code kernel_new(const struct kernel_start *s, const struct kernel_events *events,
                         void *arg, struct kernel **out, struct err *e)
{
    FUZZ_CHECK(!kernel && s->spec);
    if (starts_none)
        return err_set(e, ERR_INTERNAL, "none starts");
    kernel = calloc(1, sizeof(*kernel));
    FUZZ_CHECK(kernel);
    *kernel = (struct kernel){.events = *events, .arg = arg};
    *out = kernel;
    return ERR_OK;
}

int kernel_execute(struct kernel *k, const char *id, const char *code, bool silent)
{
    FUZZ_CHECK(k == kernel && k->is_ready && strlen(id) == WIRE_ID_LEN && code);
    if (takes_nothing)
        return -EAGAIN;
    if (!silent) {
        memcpy(asked_before, asked, sizeof(asked));
        memcpy(asked, id, sizeof(asked));
    }
    return 0;
}

void kernel_interrupt(struct kernel *k)
{
    FUZZ_CHECK(k == kernel);
}

void kernel_stop(struct kernel *k)
{
    FUZZ_CHECK(k == kernel);
    free(TAKE_PTR(kernel));
}

static void end_kernel(void)
{
    struct kernel *k = TAKE_PTR(kernel);

    if (k)
        k->events.ended(k->arg, "the kernel was ended by signal 9");
    free(k);
}

static void ready(void)
{
    if (!kernel || kernel->is_ready)
        return;
    kernel->is_ready = true;
    kernel->events.ready(kernel->arg);
}

enum err_code spec_load(const char *const *dirs, const char *language, struct spec *out,
                        struct err *e)
{
    *out = (struct spec){.settle_ms = 0};
    return ERR_OK;
}

void spec_free(struct spec *s)
{
}

/* -- what it says ------------------------------------------------------------------------------ */

static json_t *read_object(const uint8_t *data, size_t size)
{
    json_t *value = json_loadb((const char *)data, size, JSON_ALLOW_NUL, NULL);

    if (!value)
        value = json_loadb((const char *)data, size, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL,
                           NULL);
    if (json_is_object(value))
        return value;
    json_decref(value);
    return NULL;
}

/* type: which of its kinds; parent: whom it answers. */
static void say(uint8_t type, uint8_t parent, const uint8_t *content, size_t size)
{
    static const char *const types[] = {"stream", "display_data",  "execute_result",
                                        "error",  "execute_input", "status",
                                        "other",  "execute_reply"};
    const char *const parents[] = {asked, asked, asked_before, ""};
    struct wire_message m = {.type = types[type % ARRAY_SIZE(types)],
                             .parent_id = parents[parent % ARRAY_SIZE(parents)],
                             .date = "2026-01-01T00:00:00Z",
                             .content = read_object(content, size)};

    if (m.content && kernel && kernel->is_ready)
        kernel->events.message(kernel->arg, &m);
    json_decref(m.content);
}

/* -- clients ----------------------------------------------------------------------------------- */

struct client {
    int fd; /* -1: it is gone */
    struct buf answer;
};

static struct client clients[CLIENTS_MAX];
static size_t clients_n;
static int opened;
static struct contexts *all;
static struct context *context;

static void handler(struct http_exchange *x, void *ctx)
{
    const struct http_head *h = http_exchange_head(x);
    bool has_env = strcmp(h->path, "/env") == 0;
    char *code = strdup("1+1");

    opened++;
    FUZZ_CHECK(code);
    if (!context) {
        free(code);
        http_respond_error(x, 404, "there is none");
        return;
    }
    context_execute(context, x, code, has_env ? json_pack("{s:s}", "NAME", "value") : NULL);
}

static void turn(uv_loop_t *loop)
{
    uv_run(loop, UV_RUN_NOWAIT);
    for (size_t i = 0; i < clients_n; i++) {
        char piece[4096];
        ssize_t n;

        while (clients[i].fd >= 0 &&
               (n = recv(clients[i].fd, piece, sizeof(piece), MSG_DONTWAIT)) > 0)
            FUZZ_CHECK(buf_append(&clients[i].answer, piece, (size_t)n) == 0);
    }
}

static void come(struct http_server *server, bool has_env)
{
    static const char plain[] = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    static const char env[] = "POST /env HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    const char *text = has_env ? env : plain;
    int pair[2];

    if (clients_n == CLIENTS_MAX)
        return;
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    FUZZ_CHECK(http_server_adopt(server, pair[1]) == 0);
    FUZZ_CHECK(send(pair[0], text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text));
    clients[clients_n].fd = pair[0];
    buf_init(&clients[clients_n++].answer, ANSWER_MAX);
}

static void go(size_t which)
{
    if (clients_n > 0)
        util_close(&clients[which % clients_n].fd);
}

/* -- answers ----------------------------------------------------------------------------------- */

struct seen {
    unsigned errors, counts, ends;
};

static void check_line(const char *text, size_t len, struct seen *s)
{
    static const char *const known[] = {
        "stdout",           "stderr",   "result", "error", "number_of_executions",
        "end_of_execution", "keepalive"};
    json_t *line = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    const char *type = json_string_value(json_object_get(line, "type"));
    bool is_known = false;

    FUZZ_CHECK(len > 0 && text[len - 1] == '\n' && !memchr(text, '\n', len - 1));
    FUZZ_CHECK(json_is_object(line) && type && s->ends == 0);
    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        is_known |= strcmp(type, known[i]) == 0;
    FUZZ_CHECK(is_known);
    s->errors += strcmp(type, "error") == 0;
    s->counts += strcmp(type, "number_of_executions") == 0;
    s->ends += strcmp(type, "end_of_execution") == 0;
    json_decref(line);
}

/* Chunk by chunk; one that is not there whole is not looked at. */
static void check_answer(struct buf *b)
{
    struct seen s = {0};
    char *at = b->len > 0 ? strstr(b->data, "\r\n\r\n") : NULL, *end = b->data + b->len;

    if (!at || !strstr(b->data, "x-ndjson"))
        return;
    for (at += 4; at < end;) {
        char *text;
        size_t len = strtoul(at, &text, 16);

        if (end - text < 4 || (size_t)(end - text) < len + 4)
            return;
        FUZZ_CHECK(text > at && memcmp(text, "\r\n", 2) == 0);
        if (len > 0)
            check_line(text + 2, len, &s);
        FUZZ_CHECK(memcmp(text + 2 + len, "\r\n", 2) == 0);
        at = text + 4 + len;
        if (len == 0)
            break;
    }
    FUZZ_CHECK(s.errors <= 1 && s.counts <= 1 && s.ends <= 1);
}

/* -- the whole --------------------------------------------------------------------------------- */

static void on_waited(struct context_waiter *w, struct context *c, const char *why)
{
    w->fn = NULL;
}

static void restart(void)
{
    static struct context_waiter waiter;

    if (!context || waiter.fn)
        return;
    waiter = (struct context_waiter){.fn = on_waited};
    context_restart(context, &waiter);
    contexts_forget_waiter(all, &waiter);
    waiter.fn = NULL;
}

/* A step: its first byte says which, the second is its detail; what a kernel says goes on to the
 * next 0xff. How many bytes it took. */
static size_t step(struct http_server *server, const uint8_t *data, size_t size)
{
    uint8_t detail = size > 1 ? data[1] : 0;
    const uint8_t *stop;

    switch (data[0]) {
    case 'c': come(server, detail & 1); return 2;
    case 'g': go(detail); return 2;
    case 'r': ready(); return 1;
    case 'e': end_kernel(); return 1;
    case 'R': restart(); return 1;
    case 'n': takes_nothing = detail & 1; return 2;
    case 's': starts_none = detail & 1; return 2;
    default: break;
    }
    if (size < 3)
        return size;
    stop = memchr(data + 2, 0xff, size - 2);
    size = (size_t)((stop ? stop : data + size) - data);
    say(data[0], detail, data + 2, size - 2);
    return size + (stop ? 1 : 0);
}

static void on_stopped(void *ctx)
{
    *(bool *)ctx = true;
}

static void begin(uv_loop_t *loop, struct http_server **server)
{
    static const char *const dirs[] = {NULL};
    struct contexts_config config = {.loop = loop, .dir = "/tmp", .dirs = dirs, .home = "/"};
    struct http_server_config http;
    struct err e;

    clients_n = 0;
    opened = 0;
    takes_nothing = starts_none = false;
    asked[0] = asked_before[0] = '\0';
    FUZZ_CHECK(uv_loop_init(loop) == 0);
    http_server_config_default(&http);
    FUZZ_CHECK(http_server_new(loop, &http, handler, NULL, server) == 0);
    FUZZ_CHECK(contexts_new(&config, &all) == 0);
    FUZZ_CHECK(contexts_make(all, "python", "/", NULL, &context, &e) == ERR_OK);
}

static void end(uv_loop_t *loop, struct http_server *server)
{
    bool stopped = false;

    context_remove(TAKE_PTR(context));
    turn(loop);
    http_server_stop(server, 0, on_stopped, &stopped);
    for (int i = 0; i < 50 && !stopped; i++)
        turn(loop);
    FUZZ_CHECK(stopped && !kernel);
    for (size_t i = 0; i < clients_n; i++) {
        util_close(&clients[i].fd);
        if (clients[i].answer.len > 0 && buf_append(&clients[i].answer, "", 1) == 0)
            check_answer(&clients[i].answer);
        buf_free(&clients[i].answer);
    }
    free(TAKE_PTR(all));
    uv_run(loop, UV_RUN_NOWAIT);
    FUZZ_CHECK(uv_loop_close(loop) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct http_server *server;
    uv_loop_t loop;

    signal(SIGPIPE, SIG_IGN);
    log_init("fuzz", LOG_ERROR); /* each end of a kernel is a warning */
    if (size > 64u << 10)
        return 0;
    begin(&loop, &server);
    for (size_t at = 0, n = 0; at < size && n < STEPS_MAX; n++) {
        at += MIN(step(server, data + at, size - at), size - at);
        turn(&loop);
    }
    end(&loop, server);
    return 0;
}
