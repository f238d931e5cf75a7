/* The commands of a session: starting them, their ends, what they printed, what is put in.
 *
 * struct command is the call's state. A start goes through four calls of the agent, in this order:
 * is the session's shell there (session_found), its folder and text (put_command), the line for the
 * shell (written), and for a synchronous one the wait (begun) and its files (fetch_next). Logs
 * begin with whether there is such a command (look_for_command). Called by the routes alone. */
#include "toolbox/session.h"

#include "base/base64.h"
#include "base/clock.h"
#include "base/share.h"
#include "http/json.h"
#include "http/websocket.h"
#include "toolbox/files.h"

#include <stdio.h>
#include <string.h>

#define CID_SIZE  40
#define PATH_SIZE 512
#define LOG_MAX   (4u * 1024u * 1024u) /* of each output: what is older is left out */
#define INPUT_MAX 100000u
#define INPUT_MS  5000u
#define LOGS_MAX  (12u * LOG_MAX + 65536u) /* as JSON */

struct command {
    struct toolbox_call *call;
    char cid[CID_SIZE];
    const char *text;
    bool async, quiet, marks;
    char *part[3]; /* as of fetch_names */
    size_t len[3];
    bool there[3];
    unsigned next;
    void (*fetched)(struct command *k);
    struct share *share;
};

static void command_free(void *state)
{
    struct command *k = state;

    for (size_t i = 0; i < ARRAY_SIZE(k->part); i++)
        free(k->part[i]);
    share_return(k->share);
    free(k);
}

static struct command *command_new(struct toolbox_call *c)
{
    struct command *k = calloc(1, sizeof(*k));

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

static void no_command(struct command *k)
{
    toolbox_fail(k->call, 404, NULL, "command not found: %s", k->cid);
}

/* -- files of a command ------------------------------------------------------------------------ */

static const char *const fetch_names[] = {"exit", "out", "err"};

static void fetch_next(struct command *k);

static void got_part(void *arg, const struct http_head *head, const char *body, size_t len,
                     const struct err *why)
{
    struct command *k = arg;
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
        fetch_next(k);
}

/* One that was not found before is not looked for again. */
static void fetch_next(struct command *k)
{
    struct toolbox_agent_request r = {.method = "GET",
                                      .last_bytes = LOG_MAX,
                                      .max_response_bytes = LOG_MAX + 65536u,
                                      .timeout_ms = k->call->toolbox->config.agent_timeout_ms,
                                      .done = got_part,
                                      .arg = k};
    char path[PATH_SIZE];

    if (k->next == ARRAY_SIZE(fetch_names)) {
        k->fetched(k);
        return;
    }
    snprintf(path, sizeof(path), SESSIONS_AGENT "%s/%s/%s", k->call->params[0], k->cid,
             fetch_names[k->next]);
    r.target = toolbox_files_target(path);
    toolbox_agent(k->call, &r);
}

/* -- what they printed ------------------------------------------------------------------------- */

static const char *output(const struct command *k, int i)
{
    return k->there[i] ? k->part[i] : "";
}

/* As older daemons gave it: each part after its mark. */
static int put_marked(struct buf *b, const struct command *k)
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

static int put_both(struct buf *b, const struct command *k)
{
    CLEANUP_BUF struct buf text = {0};
    int rc;

    buf_init(&text, 2 * LOG_MAX + 64);
    if (k->marks)
        rc = put_marked(&text, k);
    else if ((rc = buf_append(&text, output(k, 1), k->len[1])) == 0)
        rc = buf_append(&text, output(k, 2), k->len[2]);
    return rc == 0 ? toolbox_put_text(b, "output", text.len ? text.data : "", text.len) : rc;
}

static int put_outputs(struct buf *b, const struct command *k)
{
    int rc = put_both(b, k);

    if (rc == 0 && !k->marks)
        rc = toolbox_put_text(b, "stdout", output(k, 1), k->len[1]);
    if (rc == 0 && !k->marks)
        rc = toolbox_put_text(b, "stderr", output(k, 2), k->len[2]);
    return rc;
}

static void reply_buf(struct command *k, struct buf *b, int rc)
{
    if (rc == 0)
        rc = buf_append_str(b, "}");
    if (rc == 0)
        toolbox_reply_text(k->call, b->data, b->len);
    else
        toolbox_fail(k->call, 503, NULL, "memory is out");
}

static void reply_marked(struct command *k)
{
    static const struct http_header headers[] = {{"Content-Type", "text/plain; charset=utf-8"},
                                                 {"Access-Control-Allow-Origin", "*"}};
    CLEANUP_BUF struct buf b = {0};

    buf_init(&b, LOGS_MAX);
    if (put_marked(&b, k) < 0) {
        toolbox_fail(k->call, 503, NULL, "memory is out");
    } else if (k->call->x && !k->call->answered) {
        k->call->answered = true;
        http_respond(k->call->x, 200, headers, ARRAY_SIZE(headers), b.len ? b.data : "", b.len);
    }
}

static void logs_fetched(struct command *k)
{
    CLEANUP_BUF struct buf b = {0};
    int rc;

    if (k->marks) {
        reply_marked(k);
        return;
    }
    buf_init(&b, LOGS_MAX);
    rc = buf_append_str(&b, "{");
    if (rc == 0)
        rc = put_outputs(&b, k);
    reply_buf(k, &b, rc);
}

/* Both outputs are held at once, beside the JSON that is made of them: that takes a place. */
static bool take_place(struct command *k)
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
    struct command *k = arg;

    if (!why && head->status == 404)
        no_command(k);
    else if (why || head->status != 200)
        toolbox_fail_file(k->call, head, body, len, why, "the command");
    else if (k->call->x)
        fetch_next(k);
}

static void look_for_command(struct command *k)
{
    char path[PATH_SIZE];

    snprintf(path, sizeof(path), SESSIONS_AGENT "%s/%s/cmd", k->call->params[0], k->cid);
    toolbox_rpc(k->call, "/filesystem.Filesystem/Stat", json_pack("{s:s}", "path", path),
                has_command, k);
}

/* Stat's answer about what is not there is Connect's, whose status is 404 too. */
void session_logs(struct toolbox_call *c)
{
    struct command *k;

    if (!session_ids(c, true))
        return;
    if (websocket_asked(http_exchange_head(c->x))) {
        session_follow(c);
        return;
    }
    k = command_new(c);
    if (!k || !take_place(k))
        return;
    k->fetched = logs_fetched;
    look_for_command(k);
}

/* -- its end ----------------------------------------------------------------------------------- */

static void command_shown(void *arg, const struct toolbox_result *r, const struct err *why)
{
    struct command *k = arg;
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
    buf_init(&b, LOGS_MAX);
    rc = buf_append_str(&b, "{");
    if (rc == 0)
        rc = toolbox_put_text(&b, "id", k->cid, strlen(k->cid));
    if (rc == 0)
        rc = toolbox_put_text(&b, "command", end + 1, r->len[0] - (size_t)(end + 1 - r->out[0]));
    if (rc == 0 && end > r->out[0])
        rc = buf_printf(&b, ",\"exitCode\":%d", atoi(r->out[0]));
    reply_buf(k, &b, rc);
}

void session_command(struct toolbox_call *c)
{
    static const char script[] = "cd " SESSIONS_SHELL
                                 "\"$1/$2\" 2>/dev/null && [ -e cmd ] || exit 3\n"
                                 "e=; [ -e exit ] && read e <exit\n"
                                 "printf '%s\\0' \"$e\"; exec cat cmd";
    struct command *k = session_ids(c, true) ? command_new(c) : NULL;
    struct toolbox_run r = {.timeout_ms = INPUT_MS, .done = command_shown, .arg = k};

    if (!k)
        return;
    toolbox_script(&r, script, (const char *const[]){c->params[0], k->cid, NULL});
    toolbox_run(c, &r);
}

/* -- start ------------------------------------------------------------------------------------- */

static void sync_fetched(struct command *k)
{
    CLEANUP_BUF struct buf b = {0};
    int rc;

    buf_init(&b, LOGS_MAX);
    rc = buf_append_str(&b, "{");
    if (rc == 0)
        rc = toolbox_put_text(&b, "cmdId", k->cid, strlen(k->cid));
    if (rc == 0)
        rc = put_outputs(&b, k);
    if (rc == 0)
        rc = buf_printf(&b, ",\"exitCode\":%d", k->there[0] ? atoi(k->part[0]) : -1);
    reply_buf(k, &b, rc);
}

static void ended(void *arg, const struct toolbox_result *r UNUSED, const struct err *why)
{
    struct command *k = arg;

    if (why)
        toolbox_fail_err(k->call, why);
    else if (k->call->x && take_place(k))
        fetch_next(k);
}

static void begun(void *arg, const struct http_head *head, const char *body, size_t len,
                  const struct err *why)
{
    struct command *k = arg;
    struct toolbox_run r = {.done = ended, .arg = k};

    if (!why && head->status == 404) {
        toolbox_fail(k->call, 410, "SESSION_ENDED", "the session's shell has ended: %s",
                     k->call->params[0]);
    } else if (why || head->status != 200) {
        toolbox_fail_file(k->call, head, body, len, why, "the session");
    } else if (k->async) {
        toolbox_reply_json(k->call, 202, json_pack("{s:s}", "cmdId", k->cid));
    } else if (k->call->x) {
        k->fetched = sync_fetched;
        toolbox_script(&r, session_follow_script,
                       (const char *const[]){k->call->params[0], k->cid, "wait", NULL});
        toolbox_run(k->call, &r);
    }
}

/* A line for the session's shell. The command is read from its file, with all that its lines may
 * be; what it is given is empty, or a FIFO that stays open. */
static char *shell_line(const struct command *k)
{
    char *line = NULL;
    char d[2 * PATH_SIZE];

    snprintf(d, sizeof(d), SESSIONS_SHELL "%s/%s", k->call->params[0], k->cid);
    if (k->async && asprintf(&line,
                             "command mkfifo %s/in; . %s/cmd <>%s/in >>%s/out 2>>%s/err; echo $? "
                             ">%s/exit.new; command mv %s/exit.new %s/exit\n",
                             d, d, d, d, d, d, d, d) < 0)
        return NULL;
    if (!k->async && asprintf(&line,
                              ". %s/cmd </dev/null >>%s/out 2>>%s/err; echo $? >%s/exit.new; "
                              "command mv %s/exit.new %s/exit\n",
                              d, d, d, d, d, d) < 0)
        return NULL;
    return line;
}

static void written(void *arg, const struct http_head *head, const char *body, size_t len,
                    const struct err *why)
{
    struct command *k = arg;
    CLEANUP_FREE char *line = NULL;
    CLEANUP_FREE char *coded = NULL;
    char tag[sizeof(SESSION_TAG) + TOOLBOX_PARAM_SIZE];

    if (why || head->status != 200) {
        toolbox_fail_file(k->call, head, body, len, why, "the command");
        return;
    }
    line = k->call->x ? shell_line(k) : NULL;
    coded = line ? malloc(base64_encoded_len(strlen(line)) + 1) : NULL;
    if (!coded) {
        toolbox_fail(k->call, 503, NULL, "memory is out");
        return;
    }
    base64_encode(line, strlen(line), coded);
    snprintf(tag, sizeof(tag), SESSION_TAG "%s", k->call->params[0]);
    toolbox_rpc(k->call, "/process.Process/SendInput",
                json_pack("{s:{s:s}, s:{s:s}}", "process", "tag", tag, "input", "stdin", coded),
                begun, k);
}

static void put_command(struct command *k, const char *name, const char *text,
                        void (*done)(void *, const struct http_head *, const char *, size_t,
                                     const struct err *))
{
    struct toolbox_agent_request r = {.method = "POST",
                                      .body = strdup(text),
                                      .body_len = strlen(text),
                                      .type = "application/octet-stream",
                                      .max_response_bytes = 65536,
                                      .timeout_ms = k->call->toolbox->config.agent_timeout_ms,
                                      .done = done,
                                      .arg = k};
    char path[PATH_SIZE];

    snprintf(path, sizeof(path), SESSIONS_AGENT "%s/%s/%s", k->call->params[0], k->cid, name);
    r.target = toolbox_files_target(path);
    toolbox_agent(k->call, &r);
}

static void quiet_written(void *arg, const struct http_head *head, const char *body, size_t len,
                          const struct err *why)
{
    struct command *k = arg;

    if (why || head->status != 200)
        toolbox_fail_file(k->call, head, body, len, why, "the command");
    else if (k->call->x)
        put_command(k, "cmd", k->text, written);
}

static void session_ended(void *arg, const struct http_head *head, const char *body, size_t len,
                          const struct err *why)
{
    struct command *k = arg;

    if (!why && head->status == 404)
        toolbox_fail(k->call, 404, NULL, "session not found: %s", k->call->params[0]);
    else if (why || head->status != 200)
        toolbox_fail_file(k->call, head, body, len, why, "the session");
    else
        toolbox_fail(k->call, 410, "SESSION_ENDED", "the session's shell has ended: %s",
                     k->call->params[0]);
}

static void look_for_session(struct command *k, const char *file,
                             void (*done)(void *, const struct http_head *, const char *, size_t,
                                          const struct err *))
{
    char path[PATH_SIZE];

    snprintf(path, sizeof(path), SESSIONS_AGENT "%s%s", k->call->params[0], file);
    toolbox_rpc(k->call, "/filesystem.Filesystem/Stat", json_pack("{s:s}", "path", path), done, k);
}

/* Its folder outlives its shell. */
static void session_found(void *arg, const struct http_head *head, const char *body, size_t len,
                          const struct err *why)
{
    struct command *k = arg;

    if (!why && head->status == 404)
        look_for_session(k, "", session_ended);
    else if (why || head->status != 200)
        toolbox_fail_file(k->call, head, body, len, why, "the session");
    else if (k->call->x && k->quiet)
        put_command(k, "quiet", "", quiet_written);
    else if (k->call->x)
        put_command(k, "cmd", k->text, written);
}

static enum err_code read_exec(struct command *k, struct err *e)
{
    const json_t *body = k->call->body;
    enum err_code rc = json_get_str(body, "command", NULL, JSON_REQUIRED, TOOLBOX_BODY_MAX_BYTES,
                                    &k->text, e);

    if (rc == ERR_OK && k->text[0] == '\0')
        return err_set(e, ERR_INVALID, "command is required");
    if (rc == ERR_OK)
        rc = json_get_bool(body, "async", NULL, JSON_OPTIONAL, &k->async, e);
    if (rc == ERR_OK)
        rc = json_get_bool(body, "runAsync", NULL, JSON_OPTIONAL, &k->async, e);
    return rc == ERR_OK
               ? json_get_bool(body, "suppressInputEcho", NULL, JSON_OPTIONAL, &k->quiet, e)
               : rc;
}

/* Names of commands are in the order of their starts. */
void session_exec(struct toolbox_call *c)
{
    struct command *k = session_ids(c, false) ? command_new(c) : NULL;
    char random[17];
    struct err e;

    if (!k)
        return;
    if (read_exec(k, &e) != ERR_OK) {
        toolbox_fail(c, 400, "BAD_REQUEST", "%s", e.text);
        return;
    }
    ids_random_text(random, sizeof(random) - 1);
    snprintf(k->cid, sizeof(k->cid), "%013llx-%s", (unsigned long long)clock_real_ms(), random);
    look_for_session(k, "/shell", session_found);
}

/* -- what is put in ---------------------------------------------------------------------------- */

static void input_put(void *arg, const struct toolbox_result *r, const struct err *why)
{
    struct command *k = arg;

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
    struct command *k = session_ids(c, true) ? command_new(c) : NULL;
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
