/* Making, showing and ending sessions.
 *
 * struct session is the call's state. A session is a process with a tag (SESSION_TAG) and a folder
 * in the sandbox: making one starts `supervise`, showing runs a script over the folders
 * (begin_show, shown), ending kills the process and then removes the folder (killed, deleted). The
 * sandbox may have written the contents of the folders itself. Called by the routes alone. */
#include "toolbox/session.h"

#include "base/plain_name.h"
#include "http/json.h"
#include "http/message.h"
#include "http/server.h"
#include "toolbox/agent.h"
#include "toolbox/call.h"
#include "toolbox/reply.h"
#include "toolbox/run.h"

#include <stdio.h>
#include <string.h>

#define SESSION_ENTRIES_MAX 8192u /* sessions and commands of one answer */
#define CALL_MS             15000u

/* $1: the session. The inner shell reads its commands from standard input. A command that ends that
 * shell ("exit 42") has ended with its status. */
static const char supervise[] =
    "d=" SESSIONS_SHELL "$1\n"
    "[ -d " SESSIONS_SHELL " ] || mkdir -p " SESSIONS_SHELL "\n"
    "mkdir \"$d\" 2>/dev/null || exit 9\n"
    ": >\"$d/shell\" || exit 8\n"
    "echo ok\n"
    "b=/bin/bash; [ -x $b ] || b=/bin/sh\n"
    "$b >/dev/null 2>&1\n"
    "r=$?\n"
    "rm -f \"$d/shell\"\n"
    "for c in \"$d\"/*/; do\n"
    "  [ -e \"${c}cmd\" ] && [ ! -e \"${c}exit\" ] && echo $r >\"${c}exit\"\n"
    "done\n"
    "exit 0";

const char session_follow_script[] =
    "d=" SESSIONS_SHELL "$1/$2\n"
    "[ -e \"$d/cmd\" ] || exit 3\n"
    "w() { n=0.005; while [ ! -e \"$d/exit\" ] && [ -e \"$d/cmd\" ]; do sleep $n; n=0.05; done; }\n"
    "if [ \"$3\" = wait ]; then w\n"
    "else\n"
    "  : >>\"$d/out\"; : >>\"$d/err\"\n"
    "  w & p=$!\n"
    "  tail -s 0.05 -c +1 -f --pid=$p \"$d/out\" & a=$!\n"
    "  tail -s 0.05 -c +1 -f --pid=$p \"$d/err\" >&2 & wait $a $!\n"
    "fi\n"
    "[ -e \"$d/exit\" ] || exit 4\n"
    "read e <\"$d/exit\"; exit $e";

struct session {
    struct toolbox_call *call;
    const char *sid;
    bool there;
};

static struct session *session_new(struct toolbox_call *c, const char *sid)
{
    struct session *s = calloc(1, sizeof(*s));

    if (!s) {
        toolbox_fail(c, 503, NULL, "memory is out");
        return NULL;
    }
    s->call = c;
    s->sid = sid;
    c->state = s;
    c->state_free = free;
    return s;
}

/* -- ids --------------------------------------------------------------------------------------- */

static bool is_id(const char *text)
{
    return plain_name_is_valid(text, SESSION_ID_SIZE - 1) && text[0] != '.' && text[0] != '-';
}

bool session_ids(struct toolbox_call *c, bool command)
{
    if (!is_id(c->params[0]))
        toolbox_fail(c, 404, NULL, "session not found: %s", c->params[0]);
    else if (command && !is_id(c->params[1]))
        toolbox_fail(c, 404, NULL, "command not found: %s", c->params[1]);
    else
        return true;
    return false;
}

/* A missing version counts as new, as that of a client built from sources does: it reads the newer
 * form. */
bool session_wants_marks(const struct toolbox_call *c)
{
    const char *version = http_head_get(http_exchange_head(c->x), "X-Daytona-SDK-Version");
    unsigned major, minor;

    return version && sscanf(version, "%u.%u", &major, &minor) == 2 && major == 0 && minor < 167 &&
           !strstr(version, "-dev");
}

/* -- create ------------------------------------------------------------------------------------ */

static bool said_ok(void *arg, int which UNUSED, const char *bytes UNUSED, size_t len)
{
    struct session *s = arg;

    s->there = s->there || len > 0;
    return !s->there;
}

static void created(void *arg, const struct toolbox_result *r, const struct err *why)
{
    struct session *s = arg;

    if (s->there)
        toolbox_reply_empty(s->call, 201);
    else if (why)
        toolbox_fail_err(s->call, why);
    else if (r->exit_code == 9)
        toolbox_fail(s->call, 409, "CONFLICT", "session already exists: %s", s->sid);
    else
        toolbox_fail(s->call, 500, NULL, "the session's folder cannot be made");
}

void session_create(struct toolbox_call *c)
{
    const char *sid = "";
    struct session *s;
    char tag[sizeof(SESSION_TAG) + SESSION_ID_SIZE];
    struct toolbox_run r = {.tag = tag, .stdin_open = true, .on_output = said_ok, .done = created};
    struct err e;

    if (json_get_str(c->body, "sessionId", NULL, JSON_REQUIRED, SESSION_ID_SIZE - 1, &sid, &e) !=
        ERR_OK) {
        toolbox_fail(c, 400, "BAD_REQUEST", "%s", e.text);
        return;
    }
    if (!is_id(sid)) {
        toolbox_fail(c, 400, "BAD_REQUEST",
                     "sessionId must be 1 to %d letters, digits, '.', '_' and '-'",
                     SESSION_ID_SIZE - 1);
        return;
    }
    s = session_new(c, sid);
    if (!s)
        return;
    r.arg = s;
    snprintf(tag, sizeof(tag), SESSION_TAG "%s", sid);
    toolbox_script(&r, supervise, (const char *const[]){sid, NULL});
    toolbox_run(c, &r);
}

/* -- list and get ------------------------------------------------------------------------------ */

/* $1: a session, or nothing for all. NUL after each word: "S" and a name; "C" and a command's, its
 * exit status or nothing, its text. */
static const char show[] = "cd " SESSIONS_SHELL " 2>/dev/null || exit 0\n"
                           "for s in ${1:-*}; do\n"
                           "  [ -d \"$s\" ] || continue\n"
                           "  printf 'S%s\\0' \"$s\"\n"
                           "  for c in \"$s\"/*/; do\n"
                           "    [ -e \"${c}cmd\" ] || continue\n"
                           "    e=; [ -e \"${c}exit\" ] && read e <\"${c}exit\"\n"
                           "    c=${c%/}\n"
                           "    printf 'C%s\\0%s\\0' \"${c##*/}\" \"$e\"\n"
                           "    tr -d '\\0' <\"$c/cmd\"; printf '\\0'\n"
                           "  done\n"
                           "done";

static const char *next_word(const char **at, const char *end)
{
    const char *word = *at;
    const char *stop = word < end ? memchr(word, '\0', (size_t)(end - word)) : NULL;

    if (!stop)
        return NULL;
    *at = stop + 1;
    return word;
}

/* NULL: memory is out. */
static json_t *command_json(const char *id, const char *exit_code, const char *text)
{
    json_t *command = json_string(text); /* NULL: the sandbox wrote what is not UTF-8 */
    json_t *out = json_pack("{s:s, s:o}", "id", id, "command", command ? command : json_string(""));

    if (exit_code[0])
        json_object_set_new(out, "exitCode", json_integer(atoi(exit_code)));
    return out;
}

/* The commands of the session that was added, which out owns; NULL: it was not added. */
static json_t *add_session(json_t *out, const char *sid)
{
    json_t *one = is_id(sid) ? json_pack("{s:s, s:[]}", "sessionId", sid, "commands") : NULL;

    return one && json_array_append_new(out, one) == 0 ? json_object_get(one, "commands") : NULL;
}

/* NULL: there are more than SESSION_ENTRIES_MAX, or memory is out (json_was_cut). The words are the
 * sandbox's, and may be any bytes. A folder whose name this server would not have given is no
 * session's and no command's, and is left out before JSON is made of it. */
static json_t *sessions_json(const char *at, size_t len)
{
    const char *end = at + len, *word, *exit_code, *text;
    json_t *out = json_array(), *commands = NULL;
    size_t n = 0;

    while ((word = next_word(&at, end))) {
        if (++n > SESSION_ENTRIES_MAX) {
            json_decref(out);
            return NULL;
        }
        if (word[0] == 'S') {
            commands = add_session(out, word + 1);
            continue;
        }
        exit_code = next_word(&at, end);
        text = next_word(&at, end);
        if (!exit_code || !text)
            break;
        if (commands && word[0] == 'C' && is_id(word + 1))
            json_array_append_new(commands, command_json(word + 1, exit_code, text));
    }
    return out;
}

/* A part of the list would be taken for all of it. */
static void not_whole(struct session *s, const struct toolbox_result *r)
{
    const char *of = s->sid ? "the session's commands" : "the sessions";

    if (r->timed_out)
        toolbox_fail(s->call, 408, NULL,
                     "the sandbox took longer than %u s to list %s; delete sessions that are not "
                     "needed, or look at what is in " SESSIONS_AGENT,
                     CALL_MS / 1000, of);
    else if (r->truncated)
        toolbox_fail(s->call, 413, NULL,
                     "the list of %s is longer than this server holds; delete sessions, or ask for "
                     "one of them",
                     of);
    else
        toolbox_fail(s->call, r->reason ? 507 : 500, NULL, "cannot list %s: %s", of,
                     r->reason ? r->reason : "the program for it failed in the sandbox");
}

static void shown(void *arg, const struct toolbox_result *r, const struct err *why)
{
    struct session *s = arg;
    json_t *all;

    if (why) {
        toolbox_fail_err(s->call, why);
        return;
    }
    if (r->timed_out || r->truncated || r->exit_code != 0) {
        not_whole(s, r);
        return;
    }
    all = sessions_json(r->out[0], r->len[0]);
    if (json_was_cut())
        toolbox_fail(s->call, 503, NULL, "memory is out");
    else if (!all)
        toolbox_fail(s->call, 409, NULL,
                     "there are more than %u sessions and commands: delete sessions",
                     SESSION_ENTRIES_MAX);
    else if (!s->sid)
        toolbox_reply_json(s->call, 200, json_incref(all));
    else if (json_array_size(all) == 0)
        toolbox_fail(s->call, 404, NULL, "session not found: %s", s->sid);
    else
        toolbox_reply_json(s->call, 200, json_incref(json_array_get(all, 0)));
    json_decref(all);
}

static void begin_show(struct toolbox_call *c, const char *sid)
{
    struct session *s = session_new(c, sid);
    struct toolbox_run r = {.timeout_ms = CALL_MS, .done = shown, .arg = s};

    if (!s)
        return;
    toolbox_script(&r, show, (const char *const[]){sid ? sid : "", NULL});
    toolbox_run(c, &r);
}

void session_list(struct toolbox_call *c)
{
    begin_show(c, NULL);
}

void session_get(struct toolbox_call *c)
{
    if (session_ids(c, false))
        begin_show(c, c->params[0]);
}

/* -- delete ------------------------------------------------------------------------------------ */

static void deleted(void *arg, const struct http_head *head UNUSED, const char *body UNUSED,
                    size_t len UNUSED, const struct err *why)
{
    struct session *s = arg;

    if (why)
        toolbox_fail_err(s->call, why);
    else
        toolbox_reply_empty(s->call, 204);
}

static void about_folder(struct session *s, const char *method,
                         void (*done)(void *, const struct http_head *, const char *, size_t,
                                      const struct err *))
{
    char path[sizeof(SESSIONS_AGENT) + SESSION_ID_SIZE];

    snprintf(path, sizeof(path), SESSIONS_AGENT "%s", s->sid);
    toolbox_rpc(s->call, method, json_pack("{s:s}", "path", path), done, s);
}

static void folder_found(void *arg, const struct http_head *head, const char *body UNUSED,
                         size_t len UNUSED, const struct err *why)
{
    struct session *s = arg;

    if (why)
        toolbox_fail_err(s->call, why);
    else if (head->status == 404)
        toolbox_fail(s->call, 404, NULL, "session not found: %s", s->sid);
    else if (s->call->x)
        about_folder(s, "/filesystem.Filesystem/Remove", deleted);
}

/* Its folder outlives its shell. */
static void killed(void *arg, const struct http_head *head, const char *body UNUSED,
                   size_t len UNUSED, const struct err *why)
{
    struct session *s = arg;

    if (why)
        toolbox_fail_err(s->call, why);
    else if (s->call->x && head->status == 200)
        about_folder(s, "/filesystem.Filesystem/Remove", deleted);
    else if (s->call->x)
        about_folder(s, "/filesystem.Filesystem/Stat", folder_found);
}

/* The agent ends all that the session's shell has started, and answers when it was reaped. */
void session_delete(struct toolbox_call *c)
{
    char tag[sizeof(SESSION_TAG) + TOOLBOX_PARAM_SIZE];
    struct session *s = session_ids(c, false) ? session_new(c, c->params[0]) : NULL;

    if (!s)
        return;
    snprintf(tag, sizeof(tag), SESSION_TAG "%s", s->sid);
    toolbox_rpc(c, "/process.Process/SendSignal",
                json_pack("{s:{s:s}, s:s}", "process", "tag", tag, "signal", "SIGNAL_SIGKILL"),
                killed, s);
}
