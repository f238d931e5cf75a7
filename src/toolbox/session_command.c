/* The commands of a session: their files, what they printed, their ends, what is put in. Logs begin
 * with whether there is such a command (find_command_id). Starts are session_exec.c. Called by the
 * routes, and by session_exec.c for what a synchronous command printed. */
#include "toolbox/session_command.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/share.h"
#include "http/json.h"
#include "http/server.h"
#include "http/websocket.h"
#include "toolbox/agent.h"
#include "toolbox/call.h"
#include "toolbox/files.h"
#include "toolbox/reply.h"
#include "toolbox/run.h"
#include "toolbox/session.h"
#include "toolbox/session_oom.h"
#include "toolbox/toolbox_internal.h"

#include <stdio.h>
#include <string.h>

#define INPUT_MAX        100000u
#define INPUT_MS         5000u
#define COMMAND_YOUNG_MS 100u /* since its start: the question for its end waits until then */
#define COMMAND_CHECK_MS 5u

static void command_free(void *state)
{
    struct session_command *k = state;

    for (size_t i = 0; i < ARRAY_SIZE(k->part); i++)
        free(k->part[i]);
    share_return(k->share);
    free(k);
}

struct session_command *session_command_new(struct toolbox_call *c)
{
    struct session_command *k = calloc(1, sizeof(*k));

    if (!k) {
        toolbox_fail(c, 503, NULL, "memory is out");
        return NULL;
    }
    k->call = c;
    k->marks = session_wants_marks(c);
    snprintf(k->cid, sizeof(k->cid), "%.39s", c->params[1]);
    c->state = k;
    c->state_free = command_free;
    return k;
}

static void no_command(struct session_command *k)
{
    toolbox_fail(k->call, 404, NULL, "command not found: %s", k->cid);
}

/* -- files of a command ------------------------------------------------------------------------ */

static const char *const fetch_names[] = {"exit", "out", "err"};

static void got_part(void *arg, const struct http_head *head, const char *body, size_t len,
                     const struct err *why)
{
    struct session_command *k = arg;
    unsigned i = k->next++;

    if (why || (head->status != 200 && head->status != 206 && head->status != 404)) {
        toolbox_fail_file(k->call, head, body, len, why, fetch_names[i]);
        return;
    }
    k->there[i] = head->status != 404;
    if (k->there[i] && !(k->part[i] = malloc(len + 1))) {
        toolbox_fail(k->call, 503, NULL, "memory is out");
        return;
    }
    if (k->there[i]) {
        memcpy(k->part[i], body, len);
        k->part[i][len] = '\0';
        k->len[i] = len;
    }
    if (k->call->x)
        session_command_fetch(k);
}

static void why_known(void *arg, const char *text)
{
    struct session_command *k = arg;
    char *more = text ? realloc(k->part[2], k->len[2] + strlen(text) + 5) : NULL;

    if (more) {
        k->part[2] = more;
        k->there[2] = true;
        k->len[2] += (size_t)sprintf(more + k->len[2], "%s[%s]\n",
                                     k->len[2] > 0 && more[k->len[2] - 1] != '\n' ? "\n" : "",
                                     text);
    }
    k->fetched(k);
}

static void all_fetched(struct session_command *k)
{
    char folder[SESSION_PATH_SIZE];

    if (!k->there[0] || atoi(k->part[0]) != SESSION_KILLED) {
        k->fetched(k);
        return;
    }
    snprintf(folder, sizeof(folder), "%s/%s", k->call->params[0], k->cid);
    session_oom_check(k->call, folder, why_known, k);
}

/* A part that was not found before is not fetched again. */
void session_command_fetch(struct session_command *k)
{
    struct toolbox_agent_request r = {.method = "GET",
                                      .last_bytes = SESSION_LOG_MAX,
                                      .max_response_bytes = SESSION_LOG_MAX + 65536u,
                                      .timeout_ms = k->call->toolbox->config.agent_timeout_ms,
                                      .done = got_part,
                                      .arg = k};
    char path[SESSION_PATH_SIZE];

    if (k->next == ARRAY_SIZE(fetch_names)) {
        all_fetched(k);
        return;
    }
    snprintf(path, sizeof(path), SESSIONS_AGENT "%s/%s/%s", k->call->params[0], k->cid,
             fetch_names[k->next]);
    r.target = toolbox_files_target(path);
    toolbox_agent(k->call, &r);
}

/* -- what they printed ------------------------------------------------------------------------- */

static const char *output(const struct session_command *k, int i)
{
    return k->there[i] ? k->part[i] : "";
}

/* As older daemons gave it: each part after its mark. */
static int put_marked(struct buf *b, const struct session_command *k)
{
    int rc = 0;

    if (k->len[1])
        rc = buf_append_str(b, "\1\1\1");
    if (rc == 0)
        rc = buf_append(b, output(k, 1), k->len[1]);
    if (rc == 0 && k->len[2])
        rc = buf_append_str(b, "\2\2\2");
    return rc == 0 ? buf_append(b, output(k, 2), k->len[2]) : rc;
}

static int put_both(struct buf *b, const struct session_command *k)
{
    CLEANUP_BUF struct buf text = {0};
    int rc;

    buf_init(&text, 2 * SESSION_LOG_MAX + 64);
    if (k->marks)
        rc = put_marked(&text, k);
    else if ((rc = buf_append(&text, output(k, 1), k->len[1])) == 0)
        rc = buf_append(&text, output(k, 2), k->len[2]);
    return rc == 0 ? toolbox_put_text(b, "output", text.len ? text.data : "", text.len) : rc;
}

int session_command_put(struct buf *b, const struct session_command *k)
{
    int rc = put_both(b, k);

    if (rc == 0 && !k->marks)
        rc = toolbox_put_text(b, "stdout", output(k, 1), k->len[1]);
    if (rc == 0 && !k->marks)
        rc = toolbox_put_text(b, "stderr", output(k, 2), k->len[2]);
    return rc;
}

void session_command_reply(struct session_command *k, struct buf *b, int rc)
{
    if (rc == 0)
        rc = buf_append_str(b, "}");
    if (rc == 0)
        toolbox_reply_text(k->call, b->data, b->len);
    else
        toolbox_fail(k->call, 503, NULL, "memory is out");
}

static void reply_marked(struct session_command *k)
{
    static const struct http_header headers[] = {{"Content-Type", "text/plain; charset=utf-8"},
                                                 {"Access-Control-Allow-Origin", "*"}};
    CLEANUP_BUF struct buf b = {0};

    buf_init(&b, SESSION_LOGS_MAX);
    if (put_marked(&b, k) < 0) {
        toolbox_fail(k->call, 503, NULL, "memory is out");
    } else if (k->call->x && !k->call->answered) {
        k->call->answered = true;
        http_respond(k->call->x, 200, headers, ARRAY_SIZE(headers), b.len ? b.data : "", b.len);
    }
}

static void logs_fetched(struct session_command *k)
{
    CLEANUP_BUF struct buf b = {0};
    int rc;

    if (k->marks) {
        reply_marked(k);
        return;
    }
    buf_init(&b, SESSION_LOGS_MAX);
    rc = buf_append_str(&b, "{");
    if (rc == 0)
        rc = session_command_put(&b, k);
    session_command_reply(k, &b, rc);
}

/* Both outputs are held at once, beside the JSON that is made of them: that takes a place. */
bool session_command_take_share(struct session_command *k)
{
    k->share = share_take(k->call->toolbox->bodies, k->call->tenant, k->call->id);
    if (k->share)
        return true;
    toolbox_fail(k->call, 503, NULL, "too many logs of this sandbox are read at once; try again");
    return false;
}

static void has_command(void *arg, const struct http_head *head, const char *body, size_t len,
                        const struct err *why)
{
    struct session_command *k = arg;

    if (!why && head->status == 404)
        no_command(k);
    else if (why || head->status != 200)
        toolbox_fail_file(k->call, head, body, len, why, "the command");
    else if (k->call->x)
        session_command_fetch(k);
}

static void find_command_id(struct session_command *k)
{
    char path[SESSION_PATH_SIZE];

    snprintf(path, sizeof(path), SESSIONS_AGENT "%s/%s/cmd", k->call->params[0], k->cid);
    toolbox_rpc(k->call, "/filesystem.Filesystem/Stat", json_pack("{s:s}", "path", path),
                has_command, k);
}

/* Stat's answer about what is not there is Connect's, whose status is 404 too. */
void session_logs(struct toolbox_call *c)
{
    struct session_command *k;

    if (!session_ids(c, true))
        return;
    if (websocket_requested(http_exchange_head(c->x))) {
        session_follow(c);
        return;
    }
    k = session_command_new(c);
    if (!k || !session_command_take_share(k))
        return;
    k->fetched = logs_fetched;
    find_command_id(k);
}

/* -- its end ----------------------------------------------------------------------------------- */

static void command_shown(void *arg, const struct toolbox_result *r, const struct err *why)
{
    struct session_command *k = arg;
    const char *end = why ? NULL : memchr(r->out[0], '\0', r->len[0]);
    CLEANUP_BUF struct buf b = {0};
    int rc;

    if (why) {
        toolbox_fail_err(k->call, why);
        return;
    }
    if (r->exit_code == 3 || !end) {
        no_command(k);
        return;
    }
    buf_init(&b, SESSION_LOGS_MAX);
    rc = buf_append_str(&b, "{");
    if (rc == 0)
        rc = toolbox_put_text(&b, "id", k->cid, strlen(k->cid));
    if (rc == 0)
        rc = toolbox_put_text(&b, "command", end + 1, r->len[0] - (size_t)(end + 1 - r->out[0]));
    if (rc == 0 && end > r->out[0])
        rc = buf_printf(&b, ",\"exitCode\":%d", atoi(r->out[0]));
    session_command_reply(k, &b, rc);
}

/* How often the script looks for the end. Its id begins with the time of its start (session_exec);
 * one that the sandbox has named itself counts as old. */
static unsigned count_checks(const char *cid)
{
    uint64_t age_ms = clock_real_ms() - strtoull(cid, NULL, 16);

    return age_ms < COMMAND_YOUNG_MS ? (unsigned)(COMMAND_YOUNG_MS - age_ms) / COMMAND_CHECK_MS : 0;
}

/* Clients ask at once and then every 100 ms: without a wait, a command of a few milliseconds would
 * cost them that. */
void session_command(struct toolbox_call *c)
{
    static const char script[] = "cd " SESSIONS_SHELL
                                 "\"$1/$2\" 2>/dev/null && [ -e cmd ] || exit 3\n"
                                 "n=$3; while [ $n -gt 0 ] && [ ! -e exit ]; do\n"
                                 "  sleep 0.005; n=$((n-1))\n"
                                 "done\n"
                                 "e=; [ -e exit ] && read e <exit\n"
                                 "printf '%s\\0' \"$e\"; exec cat cmd";
    struct session_command *k = session_ids(c, true) ? session_command_new(c) : NULL;
    struct toolbox_run r = {.timeout_ms = INPUT_MS, .done = command_shown, .arg = k};
    char times[16];

    if (!k)
        return;
    snprintf(times, sizeof(times), "%u", count_checks(k->cid));
    toolbox_script(&r, script, (const char *const[]){c->params[0], k->cid, times, NULL});
    toolbox_run(c, &r);
}

/* -- what is put in ---------------------------------------------------------------------------- */

static void input_put(void *arg, const struct toolbox_result *r, const struct err *why)
{
    struct session_command *k = arg;

    if (why)
        toolbox_fail_err(k->call, why);
    else if (r->exit_code == 3)
        no_command(k);
    else if (r->exit_code == 4 || r->timed_out)
        toolbox_fail(k->call, 410, "COMMAND_ALREADY_COMPLETED", "command has already completed: %s",
                     k->cid);
    else if (r->exit_code == 5)
        toolbox_fail(k->call, 400, "BAD_REQUEST",
                     "command takes no input: it was started without "
                     "runAsync");
    else
        toolbox_reply_empty(k->call, 204);
}

void session_input(struct toolbox_call *c)
{
    static const char script[] =
        "d=" SESSIONS_SHELL "$1/$2\n"
        "[ -e \"$d/cmd\" ] || exit 3\n"
        "n=0; while [ ! -p \"$d/in\" ]; do\n"
        "  [ -e \"$d/exit\" ] && exit 4; [ -e \"$d/out\" ] && exit 5\n"
        "  n=$((n+1)); [ $n -gt 100 ] && exit 4; sleep 0.02\n"
        "done\n"
        "[ -e \"$d/exit\" ] && exit 4\n"
        "[ -e \"$d/quiet\" ] || printf '%s\\n' \"$CAY_DATA\" >>\"$d/out\"\n"
        "printf '%s\\n' \"$CAY_DATA\" >\"$d/in\"";
    struct session_command *k = session_ids(c, true) ? session_command_new(c) : NULL;
    struct toolbox_run r = {.timeout_ms = INPUT_MS, .done = input_put, .arg = k};
    const char *data = NULL;
    json_t *envs;
    struct err e;

    if (!k)
        return;
    if (json_get_str(c->body, "data", NULL, JSON_REQUIRED, INPUT_MAX, &data, &e) != ERR_OK) {
        toolbox_fail(c, 400, "BAD_REQUEST", "%s", e.text);
        return;
    }
    envs = json_pack("{s:s}", "CAY_DATA", data);
    r.envs = envs;
    toolbox_script(&r, script, (const char *const[]){c->params[0], k->cid, NULL});
    toolbox_run(c, &r);
    json_decref(envs);
}
