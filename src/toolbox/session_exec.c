/* The start of a session's command: five calls of the agent, in this order: is the session's shell
 * there (session_found), how many the kernel has killed so far (counted), the command's folder and
 * text (put_command), the line for the shell (written), and for a synchronous one the wait (begun)
 * and its files (session_command_fetch). Called by the routes alone. */
#include "toolbox/session_command.h"

#include "base/base64.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/ids.h"
#include "http/json.h"
#include "toolbox/agent.h"
#include "toolbox/call.h"
#include "toolbox/files.h"
#include "toolbox/reply.h"
#include "toolbox/run.h"
#include "toolbox/session.h"
#include "toolbox/session_oom.h"
#include "toolbox/toolbox.h"
#include "toolbox/toolbox_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void sync_fetched(struct session_command *k)
{
    CLEANUP_BUF struct buf b = {0};
    int rc;

    buf_init(&b, SESSION_LOGS_MAX);
    rc = buf_append_str(&b, "{");
    if (rc == 0)
        rc = toolbox_put_text(&b, "cmdId", k->cid, strlen(k->cid));
    if (rc == 0)
        rc = session_command_put(&b, k);
    if (rc == 0)
        rc = buf_printf(&b, ",\"exitCode\":%d", k->there[0] ? atoi(k->part[0]) : -1);
    session_command_reply(k, &b, rc);
}

static void ended(void *arg, const struct toolbox_result *r UNUSED, const struct err *why)
{
    struct session_command *k = arg;

    if (why)
        toolbox_fail_err(k->call, why);
    else if (k->call->x && session_command_take_share(k))
        session_command_fetch(k);
}

static void begun(void *arg, const struct http_head *head, const char *body, size_t len,
                  const struct err *why)
{
    struct session_command *k = arg;
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
static char *shell_line(const struct session_command *k)
{
    char *line = NULL;
    char d[2 * SESSION_PATH_SIZE];

    snprintf(d, sizeof(d), SESSIONS_SHELL "%s/%s", k->call->params[0], k->cid);
    if (k->async && asprintf(&line,
                             "echo %" PRIu64 " >%s/" SESSION_KILLS
                             "; command mkfifo %s/in; . %s/cmd <>%s/in >>%s/out 2>>%s/err; echo $? "
                             ">%s/exit.new; command mv %s/exit.new %s/exit\n",
                             k->kills, d, d, d, d, d, d, d, d, d) < 0)
        return NULL;
    if (!k->async && asprintf(&line,
                              "echo %" PRIu64 " >%s/" SESSION_KILLS
                              "; . %s/cmd </dev/null >>%s/out 2>>%s/err; echo $? >%s/exit.new; "
                              "command mv %s/exit.new %s/exit\n",
                              k->kills, d, d, d, d, d, d, d) < 0)
        return NULL;
    return line;
}

static void written(void *arg, const struct http_head *head, const char *body, size_t len,
                    const struct err *why)
{
    struct session_command *k = arg;
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

static void put_command(struct session_command *k, const char *name, const char *text,
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
    char path[SESSION_PATH_SIZE];

    snprintf(path, sizeof(path), SESSIONS_AGENT "%s/%s/%s", k->call->params[0], k->cid, name);
    r.target = toolbox_files_target(path);
    toolbox_agent(k->call, &r);
}

static void quiet_written(void *arg, const struct http_head *head, const char *body, size_t len,
                          const struct err *why)
{
    struct session_command *k = arg;

    if (why || head->status != 200)
        toolbox_fail_file(k->call, head, body, len, why, "the command");
    else if (k->call->x)
        put_command(k, "cmd", k->text, written);
}

static void counted(void *arg, uint64_t kills)
{
    struct session_command *k = arg;

    k->kills = kills;
    if (k->quiet)
        put_command(k, "quiet", "", quiet_written);
    else
        put_command(k, "cmd", k->text, written);
}

static void session_ended(void *arg, const struct http_head *head, const char *body, size_t len,
                          const struct err *why)
{
    struct session_command *k = arg;

    if (!why && head->status == 404)
        toolbox_fail(k->call, 404, NULL, "session not found: %s", k->call->params[0]);
    else if (why || head->status != 200)
        toolbox_fail_file(k->call, head, body, len, why, "the session");
    else
        toolbox_fail(k->call, 410, "SESSION_ENDED", "the session's shell has ended: %s",
                     k->call->params[0]);
}

static void check_session(struct session_command *k, const char *file,
                          void (*done)(void *, const struct http_head *, const char *, size_t,
                                       const struct err *))
{
    char path[SESSION_PATH_SIZE];

    snprintf(path, sizeof(path), SESSIONS_AGENT "%s%s", k->call->params[0], file);
    toolbox_rpc(k->call, "/filesystem.Filesystem/Stat", json_pack("{s:s}", "path", path), done, k);
}

/* Its folder outlives its shell. */
static void session_found(void *arg, const struct http_head *head, const char *body, size_t len,
                          const struct err *why)
{
    struct session_command *k = arg;

    if (!why && head->status == 404)
        check_session(k, "", session_ended);
    else if (why || head->status != 200)
        toolbox_fail_file(k->call, head, body, len, why, "the session");
    else if (k->call->x)
        session_oom_count(k->call, counted, k);
}

static enum err_code read_exec(struct session_command *k, struct err *e)
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
    struct session_command *k = session_ids(c, false) ? session_command_new(c) : NULL;
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
    check_session(k, "/shell", session_found);
}
