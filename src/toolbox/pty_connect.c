/* A terminal by WebSocket: what it prints as binary messages, what is typed as either kind.
 *
 * struct terminal is the call's state; `socket` is valid while the call's exchange is. It is
 * accepted first; then the shell is started or attached to (run), and its output goes to the client
 * until it ends (on_done) or the client goes, which leaves the shell alone. Input goes to the agent
 * one call at a time, so that it stays in order. */
#include "toolbox/pty_internal.h"

#include "base/base64.h"
#include "base/buf.h"
#include "http/json.h"
#include "http/server.h"
#include "http/websocket.h"
#include "toolbox/agent.h"
#include "toolbox/call.h"
#include "toolbox/pty.h"
#include "toolbox/reply.h"
#include "toolbox/run.h"
#include "toolbox/toolbox_internal.h"

#include <stdio.h>
#include <string.h>

#define PIECE_MAX     65536u /* of what comes at once */
#define TYPED_MAX     32768u /* that waits for the agent: no more is read then */
#define EXIT_CONTROL  "X-Daytona-Pty-Exit-Control"
#define ENVS_PROTOCOL "X-Daytona-Pty-Envs~"
#define ENVS_MAX      8192u

struct terminal {
    struct toolbox_call *call;
    struct toolbox_run_op *run; /* NULL: it is over, or has not begun */
    struct websocket *socket;   /* valid while the call's exchange is */
    struct pty_shape shape;
    json_t *envs;
    bool make, says_exit, connected, sending;
    struct buf typed;
};

static void terminal_free(void *state)
{
    struct terminal *t = state;

    json_decref(t->envs);
    buf_free(&t->typed);
    free(t);
}

/* -- to the client ----------------------------------------------------------------------------- */

/* A client that is not told what it waits for is told so by the end. */
static void say(struct terminal *t, json_t *message)
{
    char *text = json_text(message, JSON_COMPACT);

    if (text && t->call->x)
        websocket_send(t->socket, true, text, strlen(text));
    else if (t->call->x)
        websocket_close(t->socket, WEBSOCKET_FAILED, "memory is out");
    free(text);
    json_decref(message);
}

static void fail(struct terminal *t, const char *why)
{
    if (!t->call->x)
        return;
    say(t, json_pack("{s:s, s:s, s:s}", "type", "control", "status", "error", "error", why));
    websocket_close(t->socket, WEBSOCKET_FAILED, why);
}

static void send_typed(struct terminal *t);

/* Input that came before the program was connected is sent now. */
static void say_connected(struct terminal *t)
{
    if (t->connected)
        return;
    t->connected = true;
    say(t, json_pack("{s:s, s:s}", "type", "control", "status", "connected"));
    if (t->typed.len > 0 && !t->sending)
        send_typed(t);
}

static void on_started(void *arg, struct toolbox_run_op *op, int64_t pid UNUSED)
{
    struct terminal *t = arg;

    t->run = op;
    say_connected(t);
}

static bool on_output(void *arg, int which UNUSED, const char *bytes, size_t len)
{
    struct terminal *t = arg;

    if (!t->call->x)
        return false;
    say_connected(t);
    if (len > 0 && websocket_send(t->socket, false, bytes, len) == 1 && t->run)
        toolbox_run_pause(t->run, true);
    return true;
}

static void on_done(void *arg, const struct toolbox_result *r, const struct err *why)
{
    struct terminal *t = arg;
    char reason[64];

    t->run = NULL;
    if (!t->call->x)
        return;
    if (why) {
        fail(t, why->code == ERR_NOT_FOUND ? "PTY session not found" : why->text);
        return;
    }
    if (r->reason) {
        websocket_send(t->socket, false, "\r\n[", 3);
        websocket_send(t->socket, false, r->reason, strlen(r->reason));
        websocket_send(t->socket, false, "]\r\n", 3);
    }
    if (t->says_exit)
        say(t, json_pack("{s:s, s:s, s:i}", "type", "control", "status", "exited", "exitCode",
                         r->exit_code));
    snprintf(reason, sizeof(reason), "{\"exitCode\":%d}", r->exit_code);
    websocket_close(t->socket, r->exit_code == 0 ? WEBSOCKET_NORMAL : WEBSOCKET_FAILED, reason);
}

/* -- from the client --------------------------------------------------------------------------- */

static void typed_sent(void *arg, const struct http_head *head UNUSED, const char *body UNUSED,
                       size_t len UNUSED, const struct err *why UNUSED)
{
    struct terminal *t = arg;

    t->sending = false;
    if (!t->call->x)
        return;
    if (t->typed.len > 0)
        send_typed(t);
    websocket_pause(t->socket, t->typed.len >= TYPED_MAX);
}

/* Sends one call at a time, so that input stays in order. */
static void send_typed(struct terminal *t)
{
    size_t n = MIN(t->typed.len, TYPED_MAX);
    char *coded = malloc(base64_encoded_len(n) + 1), tag[PTY_TAG_SIZE];
    struct toolbox_agent_request r = {.method = "POST",
                                      .target = strdup("/process.Process/SendInput"),
                                      .type = "application/json",
                                      .max_response_bytes = 65536,
                                      .head_timeout_ms = TOOLBOX_RUN_MAX_MS,
                                      .timeout_ms = t->call->toolbox->config.agent_timeout_ms,
                                      .done = typed_sent,
                                      .arg = t};

    pty_tag(t->shape.id, tag);
    if (coded)
        base64_encode(t->typed.data, n, coded);
    if (coded && asprintf(&r.body, "{\"process\":{\"tag\":\"%s\"},\"input\":{\"pty\":\"%s\"}}", tag,
                          coded) < 0)
        r.body = NULL;
    free(coded);
    buf_consume(&t->typed, n);
    if (t->typed.len == 0)
        buf_free(&t->typed);
    if (!r.body) {
        free(r.target);
        fail(t, "memory is out");
        return;
    }
    r.body_len = strlen(r.body);
    t->sending = true;
    toolbox_agent(t->call, &r);
}

static void on_message(void *arg, bool text UNUSED, const char *data, size_t len)
{
    struct terminal *t = arg;

    if (len == 0)
        return;
    if (buf_append(&t->typed, data, len) < 0) {
        fail(t, "more was typed at once than fits");
        return;
    }
    if (t->typed.len >= TYPED_MAX)
        websocket_pause(t->socket, true);
    if (t->connected && !t->sending)
        send_typed(t);
}

static void on_drain(void *arg)
{
    struct terminal *t = arg;

    if (t->run)
        toolbox_run_pause(t->run, false);
}

/* -- the request ------------------------------------------------------------------------------- */

static void run(struct terminal *t)
{
    struct pty_words words = {.envs = NULL};
    char tag[PTY_TAG_SIZE];
    struct toolbox_run r = {
        .on_output = on_output, .on_started = on_started, .done = on_done, .arg = t};

    pty_tag(t->shape.id, tag);
    if (t->make)
        pty_fill(&t->shape, &words, &r);
    else
        r.attach = tag;
    toolbox_run(t->call, &r);
    json_decref(words.envs);
}

static void on_info(void *arg, const json_t *info, const struct err *why)
{
    struct terminal *t = arg;

    if (!t->call->x)
        return;
    if (why)
        fail(t, why->text);
    else if (info)
        fail(t, "a PTY session with this ID already exists");
    else
        run(t);
}

/* base64url without padding, of a JSON object. False: it is none. */
static bool read_envs(struct terminal *t, const char *coded)
{
    size_t n = strlen(coded), padded = (n + 3) / 4 * 4;
    CLEANUP_FREE char *text = malloc(padded + 1);
    ssize_t len;

    if (!text)
        return false;
    memset(text, '=', padded);
    text[padded] = '\0';
    for (size_t i = 0; i < n; i++)
        text[i] = coded[i] == '-' ? '+' : coded[i] == '_' ? '/' : coded[i];
    len = base64_decode(text, padded, text);
    t->envs = len > 0 ? json_loadb(text, (size_t)len, JSON_REJECT_DUPLICATES, NULL) : NULL;
    return json_is_object(t->envs) &&
           json_check_env(t->envs, "envs", 4096, ENVS_MAX, NULL) == ERR_OK;
}

/* Exactly one of what was offered, and none where none was. */
static bool choose_protocol(struct terminal *t, char *out, size_t size)
{
    const struct http_head *h = http_exchange_head(t->call->x);

    t->says_exit = websocket_offers(h, EXIT_CONTROL, out, size);
    return t->says_exit || websocket_offers(h, "", out, size);
}

static struct terminal *begin(struct toolbox_call *c, const char *id)
{
    static const struct websocket_callbacks callbacks = {
        .on_message = on_message, .on_drain = on_drain, .in_pieces = true};
    struct terminal *t = calloc(1, sizeof(*t));
    CLEANUP_FREE char *protocol = malloc(ENVS_MAX);
    bool offered;

    if (!t || !protocol) {
        free(t);
        toolbox_fail(c, 503, NULL, "memory is out");
        return NULL;
    }
    c->state = t;
    c->state_free = terminal_free;
    t->call = c;
    buf_init(&t->typed, TYPED_MAX + 4 * PIECE_MAX); /* a piece is less than three of them */
    snprintf(t->shape.id, sizeof(t->shape.id), "%s", id);
    if (websocket_offers(http_exchange_head(c->x), ENVS_PROTOCOL, protocol, ENVS_MAX) &&
        !read_envs(t, protocol + strlen(ENVS_PROTOCOL))) {
        toolbox_fail(c, 400, "BAD_REQUEST",
                     "the environment in Sec-WebSocket-Protocol is no object "
                     "of strings by names of variables");
        return NULL;
    }
    t->shape.envs = t->envs;
    offered = choose_protocol(t, protocol, ENVS_MAX);
    c->answered = true;
    t->socket = websocket_accept(c->x, offered ? protocol : NULL, PIECE_MAX, &callbacks, t);
    return t->socket ? t : NULL;
}

void pty_refuse(struct toolbox_call *c, const char *why)
{
    struct terminal *t = begin(c, "");

    if (t)
        fail(t, why);
}

void pty_connect(struct toolbox_call *c)
{
    struct terminal *t;

    if (!pty_is_id(c->params[0])) {
        toolbox_fail(c, 404, NULL, "PTY session not found: %s", c->params[0]);
        return;
    }
    t = begin(c, c->params[0]);
    if (t)
        run(t);
}

/* Columns or rows of the query; false: the call was answered. */
static bool query_size(struct toolbox_call *c, const char *name, int64_t otherwise, int64_t *out)
{
    char text[16], *end;

    if (!toolbox_query(c, name, text, sizeof(text)))
        return false;
    *out = text[0] ? strtol(text, &end, 10) : otherwise;
    if (!text[0] || (*end == '\0' && *out >= 1 && *out <= PTY_SIZE_MAX))
        return true;
    toolbox_fail(c, 400, "BAD_REQUEST", "%s must be 1 to %d", name, PTY_SIZE_MAX);
    return false;
}

void pty_create_connect(struct toolbox_call *c)
{
    char id[TOOLBOX_PARAM_SIZE], cwd[TOOLBOX_PATH_SIZE];
    int64_t cols, rows;
    struct terminal *t;

    if (!toolbox_query(c, "id", id, sizeof(id)) || !toolbox_query(c, "cwd", cwd, sizeof(cwd)) ||
        !query_size(c, "cols", 80, &cols) || !query_size(c, "rows", 24, &rows))
        return;
    if (!pty_is_id(id)) {
        toolbox_fail(c, 400, "BAD_REQUEST", "id must be 1 to %d letters, digits, '.', '_' and '-'",
                     PTY_ID_SIZE - 1);
        return;
    }
    t = begin(c, id);
    if (!t)
        return;
    t->make = true;
    t->shape.cols = cols;
    t->shape.rows = rows;
    memcpy(t->shape.cwd, cwd, sizeof(cwd));
    pty_find(c, id, on_info, t);
}
