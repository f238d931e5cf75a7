/* A command's outputs as they come, by WebSocket: binary messages, each after its mark, until it
 * has ended. */
#include "toolbox/session.h"

#include "core/exec_stream.h"
#include "http/server.h"
#include "http/websocket.h"
#include "toolbox/agent.h"
#include "toolbox/call.h"
#include "toolbox/reply.h"
#include "toolbox/run.h"
#include "toolbox/session_oom.h"

#include <stdio.h>
#include <string.h>

#define MESSAGE_MAX 4096u /* of a client that has nothing to say */
#define PATH_SIZE   768

struct follow {
    struct toolbox_call *call;
    struct toolbox_run_op *run; /* NULL: it is over, or has not begun */
    struct websocket *socket;   /* valid while the call's exchange is */
};

static void on_message(void *arg UNUSED, bool text UNUSED, const char *data UNUSED,
                       size_t len UNUSED)
{
}

static void on_drain(void *arg)
{
    struct follow *f = arg;

    if (f->run)
        toolbox_run_pause(f->run, false);
}

static void on_started(void *arg, struct toolbox_run_op *op, int64_t pid UNUSED)
{
    struct follow *f = arg;

    f->run = op;
}

static bool on_output(void *arg, int which, const char *bytes, size_t len)
{
    struct follow *f = arg;
    const char *mark = which == EXEC_STDERR ? "\2\2\2" : "\1\1\1";

    if (!f->call->x)
        return false;
    if (len > 0 && websocket_send_two(f->socket, false, mark, 3, bytes, len) == 1 && f->run)
        toolbox_run_pause(f->run, true);
    return true;
}

static void why_known(void *arg, const char *text)
{
    struct follow *f = arg;
    char line[640];
    int n = text ? snprintf(line, sizeof(line), "[%.630s]\n", text) : 0;

    if (n > 0)
        websocket_send_two(f->socket, false, "\2\2\2", 3, line, (size_t)n);
    websocket_close(f->socket, WEBSOCKET_NORMAL, "");
}

static void on_done(void *arg, const struct toolbox_result *r, const struct err *why)
{
    struct follow *f = arg;
    char folder[PATH_SIZE];

    f->run = NULL;
    if (!f->call->x)
        return;
    if (why) {
        websocket_close(f->socket, WEBSOCKET_FAILED, why->text);
    } else if (r->exit_code != SESSION_KILLED) {
        websocket_close(f->socket, WEBSOCKET_NORMAL, "");
    } else {
        snprintf(folder, sizeof(folder), "%s/%s", f->call->params[0], f->call->params[1]);
        session_oom_check(f->call, folder, why_known, f);
    }
}

static void begin(struct follow *f)
{
    static const struct websocket_callbacks callbacks = {on_message, on_drain};
    struct toolbox_call *c = f->call;
    struct toolbox_run r = {
        .on_output = on_output, .on_started = on_started, .done = on_done, .arg = f};
    char protocol[64];
    bool offered = websocket_offers(http_exchange_head(c->x), "", protocol, sizeof(protocol));

    c->answered = true;
    f->socket = websocket_accept(c->x, offered ? protocol : NULL, MESSAGE_MAX, &callbacks, f);
    if (!f->socket)
        return;
    toolbox_script(&r, session_follow_script,
                   (const char *const[]){c->params[0], c->params[1], "", NULL});
    toolbox_run(c, &r);
}

/* An unknown session is answered before the connection becomes a WebSocket. */
static void on_stat(void *arg, const struct http_head *head, const char *body, size_t len,
                    const struct err *why)
{
    struct follow *f = arg;

    if (!why && head->status == 404)
        toolbox_fail(f->call, 404, NULL, "command not found: %s", f->call->params[1]);
    else if (why || head->status != 200)
        toolbox_fail_file(f->call, head, body, len, why, "the command");
    else if (f->call->x)
        begin(f);
}

void session_follow(struct toolbox_call *c)
{
    struct follow *f = calloc(1, sizeof(*f));
    char path[PATH_SIZE];

    if (!f) {
        toolbox_fail(c, 503, NULL, "memory is out");
        return;
    }
    f->call = c;
    c->state = f;
    c->state_free = free;
    snprintf(path, sizeof(path), SESSIONS_AGENT "%s/%s/cmd", c->params[0], c->params[1]);
    toolbox_rpc(c, "/filesystem.Filesystem/Stat", json_pack("{s:s}", "path", path), on_stat, f);
}
