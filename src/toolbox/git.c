/* Git calls of Daytona's clients.
 *
 * struct git is the call's state; each handler reads its request into variables of the program and
 * arguments, and begins one script (begin): `prelude`, which goes to the folder and says by its
 * exit status what is not there, and a few lines of the call's own. `ended` answers a failure by
 * what git said, and leaves the rest to the call's reader (git_read.c). */
#include "toolbox/git.h"

#include "base/buf.h"
#include "base/utf8.h"
#include "base/util.h"
#include "http/json.h"
#include "toolbox/call.h"
#include "toolbox/git_internal.h"
#include "toolbox/reply.h"
#include "toolbox/run.h"

#include <stdio.h>
#include <string.h>

#define ANSWER_MAX (8u * TOOLBOX_OUTPUT_MAX)
#define SAID_MAX   600u

enum {
    NO_FOLDER = 90,
    NO_GIT = 91,
    NO_REPOSITORY = 92,
};

/* $1: the folder. `files` prints those of the request, each with a NUL behind it. `remote ADDRESS`
 * gives the credentials to what git asks of that address's server, and of no other; where the
 * address is none of HTTP's, there are none. `over_net COMMAND` adds the reason of a server's
 * refusal to what git says, which shows its status alone: cay-egress has it in the status line,
 * which HTTP/2 does not have. The trace has no contents, and no credentials. The words may be any
 * server's: of its last status line, short, and without control characters. */
static const char prelude[] =
    "export LC_ALL=C.UTF-8 LANGUAGE=C GIT_TERMINAL_PROMPT=0 GIT_ASKPASS= SSH_ASKPASS= "
    "GIT_LITERAL_PATHSPECS=1\n"
    "command -v git >/dev/null || exit 91\n"
    "remote() {\n"
    "  [ -n \"$CAY_GIT_PASSWORD\" ] || return 0\n"
    "  case $1 in http://*|https://*) ;; *) unset CAY_GIT_USERNAME CAY_GIT_PASSWORD; return 0 ;; "
    "esac\n"
    "  h=${1#*://}; h=${h%%/*}\n"
    "  export GIT_CONFIG_COUNT=4 GIT_CONFIG_KEY_0=credential.helper GIT_CONFIG_VALUE_0= "
    "GIT_CONFIG_KEY_1=core.hooksPath GIT_CONFIG_VALUE_1=/dev/null "
    "GIT_CONFIG_KEY_2=core.fsmonitor GIT_CONFIG_VALUE_2=false "
    "GIT_CONFIG_KEY_3=\"credential.${1%%://*}://${h##*@}.helper\"\n"
    "  export GIT_CONFIG_VALUE_3='!f() { [ \"$1\" = get ] || exit 0; "
    "printf \"username=%s\\npassword=%s\\n\" \"$CAY_GIT_USERNAME\" \"$CAY_GIT_PASSWORD\"; }; f'\n"
    "}\n"
    "over_net() {\n"
    "  t=$(mktemp) || { \"$@\"; return; }\n"
    "  GIT_TRACE_CURL=$t GIT_TRACE_CURL_NO_DATA=1 \"$@\"; s=$?\n"
    "  [ $s = 0 ] || sed -n 's/[[:cntrl:]]//g; "
    "s|^[^<]*<= Recv header: HTTP/1\\.1 [45][0-9][0-9] [A-Za-z ]*: |reason: |p' "
    "\"$t\" | tail -n 1 | cut -b 1-300 >&2\n"
    "  rm -f \"$t\"; return $s\n"
    "}\n"
    "files() {\n"
    "  i=0\n"
    "  while [ $i -lt $CAY_COUNT ]; do\n"
    "    eval \"printf '%s\\\\0' \\\"\\$CAY_FILE_$i\\\"\"; i=$((i + 1))\n"
    "  done\n"
    "}\n"
    "case $1 in /*) p=$1 ;; *) p=./$1 ;; esac\n"
    "shift\n";

static const char in_repository[] = "cd -- \"$p\" 2>/dev/null || exit 90\n"
                                    "e=$(git rev-parse --git-dir 2>&1 >/dev/null) || {\n"
                                    "  s=$?\n"
                                    "  case $e in *'not a git repository'*) exit 92 ;; esac\n"
                                    "  [ -z \"$e\" ] || printf '%s\\n' \"$e\" >&2; exit $s\n"
                                    "}\n";

static void git_free(void *state)
{
    struct git *g = state;

    json_decref(g->envs);
    free(g);
}

struct git *git_new(struct toolbox_call *c)
{
    struct git *g = calloc(1, sizeof(*g));

    if (g)
        g->envs = json_object();
    if (!g || !g->envs) {
        free(g);
        toolbox_fail(c, 503, NULL, "memory is out");
        return NULL;
    }
    g->call = c;
    g->status = 200;
    c->state = g;
    c->state_free = git_free;
    return g;
}

/* -- the end ----------------------------------------------------------------------------------- */

/* The last that git said, as text for people: it repeats what the remote and its hooks say. out is
 * "": nothing. */
static void copy_said(const char *said, size_t n, char out[static SAID_MAX + 1])
{
    size_t len = 0;

    while (n > 0 && (said[n - 1] == '\n' || said[n - 1] == '\0'))
        n--;
    for (size_t at = n > SAID_MAX ? n - SAID_MAX : 0; at < n;) {
        size_t whole = MAX(utf8_char(said + at, n - at), 1);
        bool is_space = said[at] == '\n' || said[at] == '\t';
        bool is_shown = is_space || utf8_shown(said + at, n - at) > 0;

        memcpy(out + len, is_shown ? said + at : "?", is_shown ? whole : 1);
        len += is_shown ? whole : 1;
        at += whole;
    }
    out[len] = '\0';
}

static void fail_git(struct git *g, const struct toolbox_result *r)
{
    int which = r->len[1] ? 1 : 0;
    struct git_refusal refusal = git_read_refusal(r->out[which], g->has_files);
    char said[SAID_MAX + 1];

    copy_said(r->out[which], r->len[which], said);
    if (*said)
        toolbox_fail(g->call, refusal.status, refusal.code, "%s", said);
    else
        toolbox_fail(g->call, 400, "BAD_REQUEST", "git ended with status %d", r->exit_code);
}

static void reply(struct git *g, const struct toolbox_result *r)
{
    CLEANUP_BUF struct buf b = {0};
    int rc;

    if (!g->read) {
        toolbox_reply_empty(g->call, g->status);
        return;
    }
    buf_init(&b, ANSWER_MAX);
    rc = r->truncated && g->read != git_read_history ? -EMSGSIZE
                                                     : g->read(r->out[0], r->len[0], &b);
    if (rc == 0)
        toolbox_reply_text(g->call, b.data, b.len);
    else if (rc == -EBADMSG)
        toolbox_fail(g->call, 500, NULL, "the sandbox's git does not answer as git does");
    else
        toolbox_fail(g->call, 413, NULL, "the answer is larger than this server holds");
}

static void ended(void *arg, const struct toolbox_result *r, const struct err *why)
{
    struct git *g = arg;

    if (why)
        toolbox_fail_err(g->call, why);
    else if (r->timed_out)
        toolbox_fail(g->call, 408, NULL, "git took longer than %u s", GIT_RUN_MS / 1000);
    else if (r->reason)
        toolbox_fail(g->call, 507, NULL, "%s", r->reason);
    else if (r->exit_code == 0)
        reply(g, r);
    else if (r->exit_code == NO_FOLDER)
        toolbox_fail(g->call, 404, "FILE_NOT_FOUND", "file not found: %.800s", g->path);
    else if (r->exit_code == NO_GIT)
        toolbox_fail(g->call, 501, NULL, "there is no git in this sandbox: install it");
    else if (r->exit_code == NO_REPOSITORY)
        toolbox_fail(g->call, 404, "GIT_REPO_NOT_FOUND", "not a git repository: %.800s", g->path);
    else
        fail_git(g, r);
}

void git_begin(struct git *g, bool repository, const char *lines, const char *const *args)
{
    struct toolbox_run r = {.timeout_ms = GIT_RUN_MS, .envs = g->envs, .done = ended, .arg = g};
    const char *all[8] = {g->path};

    for (size_t i = 0; args[i] && i + 2 < ARRAY_SIZE(all); i++)
        all[i + 1] = args[i];
    snprintf(g->script, sizeof(g->script), "%s%s%s", prelude, repository ? in_repository : "",
             lines);
    toolbox_script(&r, g->script, all);
    toolbox_run(g->call, &r);
}

/* -- requests ---------------------------------------------------------------------------------- */

bool git_text(struct git *g, const char *name, enum json_need need, size_t max, const char **out)
{
    struct err e;

    *out = "";
    if (json_get_str(g->call->body, name, NULL, need, max, out, &e) != ERR_OK)
        toolbox_fail(g->call, 400, "BAD_REQUEST", "%s", e.text);
    else if (need == JSON_REQUIRED && (*out)[0] == '\0')
        toolbox_fail(g->call, 400, "BAD_REQUEST", "%s is required", name);
    else
        return true;
    return false;
}

bool git_set_env(struct git *g, const char *name, const char *value)
{
    if (json_object_set_new(g->envs, name, json_string(value)) == 0)
        return true;
    toolbox_fail(g->call, 503, NULL, "memory is out");
    return false;
}

bool git_path_of_body(struct git *g)
{
    const char *path;

    if (!git_text(g, "path", JSON_REQUIRED, TOOLBOX_PATH_SIZE - 1, &path))
        return false;
    snprintf(g->path, sizeof(g->path), "%s", path);
    return true;
}

bool git_name_of(struct git *g, const char *field, enum json_need need, const char **out)
{
    if (!git_text(g, field, need, 1024, out))
        return false;
    if ((*out)[0] != '-')
        return true;
    toolbox_fail(g->call, 400, "BAD_REQUEST", "%s must not begin with '-'", field);
    return false;
}

/* git's credential protocol has a line for each. */
bool git_credentials(struct git *g, enum json_need need)
{
    const char *user, *password;

    if (!git_text(g, "username", need, GIT_TEXT_MAX, &user) ||
        !git_text(g, "password", need, GIT_TEXT_MAX, &password))
        return false;
    if (strpbrk(user, "\r\n") || strpbrk(password, "\r\n")) {
        toolbox_fail(g->call, 400, "BAD_REQUEST", "username and password must each be one line");
        return false;
    }
    return git_set_env(g, "CAY_GIT_USERNAME", user) && git_set_env(g, "CAY_GIT_PASSWORD", password);
}

bool git_flag(struct git *g, const char *name, bool *out)
{
    struct err e;

    *out = false;
    if (json_get_bool(g->call->body, name, NULL, JSON_OPTIONAL, out, &e) == ERR_OK)
        return true;
    toolbox_fail(g->call, 400, "BAD_REQUEST", "%s", e.text);
    return false;
}

bool git_path_of_query(struct git *g)
{
    return toolbox_query_path(g->call, "path", g->path);
}

/* -- reading ----------------------------------------------------------------------------------- */

static void read_only(struct toolbox_call *c, const char *lines,
                      int (*read)(const char *text, size_t len, struct buf *b))
{
    struct git *g = git_new(c);

    if (!g || !git_path_of_query(g))
        return;
    g->read = read;
    git_begin(g, true, lines, (const char *const[]){NULL});
}

void git_status(struct toolbox_call *c)
{
    read_only(c,
              "exec git --no-optional-locks status --porcelain=v2 --branch -z "
              "--untracked-files=all",
              git_read_status);
}

void git_branches(struct toolbox_call *c)
{
    read_only(c,
              "printf '%s\\n' \"$(git symbolic-ref -q --short HEAD)\"\n"
              "exec git for-each-ref --format='%(refname:short)' refs/heads",
              git_read_branches);
}

/* A repository without a commit has no history. */
void git_history(struct toolbox_call *c)
{
    read_only(c,
              "git rev-parse -q --verify HEAD >/dev/null || exit 0\n"
              "exec git log -z --no-color --no-show-signature "
              "--format='%H%x00%an%x00%ae%x00%aI%x00%B'",
              git_read_history);
}

/* -- changing ---------------------------------------------------------------------------------- */

bool git_files(struct git *g)
{
    json_t *files = NULL, *file;
    char name[32];
    struct err e;
    size_t i;

    if (json_get_arr(g->call->body, "files", NULL, JSON_REQUIRED, &files, &e) != ERR_OK) {
        toolbox_fail(g->call, 400, "BAD_REQUEST", "%s", e.text);
        return false;
    }
    if (json_array_size(files) == 0 || json_array_size(files) > GIT_FILES_MAX) {
        toolbox_fail(g->call, 400, "BAD_REQUEST", "files must be 1 to %u paths", GIT_FILES_MAX);
        return false;
    }
    json_array_foreach (files, i, file) {
        snprintf(name, sizeof(name), "CAY_FILE_%zu", i);
        if (!json_string_length(file) || json_string_length(file) >= TOOLBOX_PATH_SIZE ||
            json_object_set(g->envs, name, file) < 0) {
            toolbox_fail(g->call, 400, "BAD_REQUEST", "files[%zu] must be a path", i);
            return false;
        }
    }
    snprintf(name, sizeof(name), "%zu", i);
    g->has_files = true;
    return git_set_env(g, "CAY_COUNT", name);
}

void git_add(struct toolbox_call *c)
{
    struct git *g = git_new(c);

    if (g && git_path_of_body(g) && git_files(g))
        git_begin(g, true, "files | git add --pathspec-from-file=- --pathspec-file-nul",
                  (const char *const[]){NULL});
}

static int read_hash(const char *text, size_t len, struct buf *b)
{
    size_t n = strspn(text, "0123456789abcdef");

    if (n != 40 && n != 64)
        return -EBADMSG;
    return n < len ? buf_printf(b, "{\"hash\":\"%.*s\"}", (int)n, text) : -EBADMSG;
}

void git_commit(struct toolbox_call *c)
{
    struct git *g = git_new(c);
    const char *message, *author, *email;
    bool empty;

    if (!g || !git_path_of_body(g) ||
        !git_text(g, "message", JSON_REQUIRED, GIT_TEXT_MAX, &message) ||
        !git_text(g, "author", JSON_REQUIRED, 1024, &author) ||
        !git_text(g, "email", JSON_REQUIRED, 1024, &email) || !git_flag(g, "allow_empty", &empty))
        return;
    g->read = read_hash;
    if (git_set_env(g, "CAY_MESSAGE", message) && git_set_env(g, "GIT_AUTHOR_NAME", author) &&
        git_set_env(g, "GIT_COMMITTER_NAME", author) && git_set_env(g, "GIT_AUTHOR_EMAIL", email) &&
        git_set_env(g, "GIT_COMMITTER_EMAIL", email))
        git_begin(
            g, true,
            "printf %s \"$CAY_MESSAGE\" | git commit -q $1 --cleanup=verbatim -F - >&2 || exit 1\n"
            "exec git rev-parse HEAD",
            (const char *const[]){empty ? "--allow-empty" : "", NULL});
}

static void by_name(struct toolbox_call *c, const char *field, int status, const char *lines)
{
    struct git *g = git_new(c);
    const char *name;

    if (!g || !git_path_of_body(g) || !git_name_of(g, field, JSON_REQUIRED, &name))
        return;
    g->status = status;
    git_begin(g, true, lines, (const char *const[]){name, NULL});
}

/* As upstream: the new branch is the current one then. */
void git_branch_create(struct toolbox_call *c)
{
    by_name(c, "name", 201, "exec git checkout -q -b \"$1\"");
}

void git_branch_delete(struct toolbox_call *c)
{
    by_name(c, "name", 204, "exec git branch -q -D -- \"$1\"");
}

/* A branch or a commit. */
void git_checkout(struct toolbox_call *c)
{
    by_name(c, "branch", 200, "exec git checkout -q \"$1\" --");
}

/* -- with a remote ----------------------------------------------------------------------------- */

void git_clone(struct toolbox_call *c)
{
    struct git *g = git_new(c);
    const char *url, *branch, *commit;
    char depth[24] = "";
    bool insecure;
    int64_t n = 0;
    struct err e;

    if (!g || !git_path_of_body(g) || !git_text(g, "url", JSON_REQUIRED, 8192, &url) ||
        !git_name_of(g, "branch", JSON_OPTIONAL, &branch) ||
        !git_name_of(g, "commit_id", JSON_OPTIONAL, &commit) ||
        !git_credentials(g, JSON_OPTIONAL) || !git_flag(g, "insecure_skip_tls", &insecure))
        return;
    if (json_get_int(c->body, "depth", NULL, JSON_OPTIONAL, 0, INT32_MAX, &n, &e) != ERR_OK) {
        toolbox_fail(c, 400, "BAD_REQUEST", "%s", e.text);
        return;
    }
    if (n > 0)
        snprintf(depth, sizeof(depth), "%lld", (long long)n);
    if (insecure && !git_set_env(g, "GIT_SSL_NO_VERIFY", "1"))
        return;
    git_begin(g, false,
              "remote \"$1\"\n"
              "over_net git -c http.version=HTTP/1.1 clone -q ${2:+\"--branch=$2\"} "
              "${4:+\"--depth=$4\"} -- \"$1\" \"$p\" || exit 1\n"
              "[ -z \"$3\" ] || exec git -C \"$p\" checkout -q --detach \"$3\" --",
              (const char *const[]){url, branch, commit, depth, NULL});
}

static void with_remote(struct toolbox_call *c, const char *lines)
{
    struct git *g = git_new(c);
    const char *remote, *branch;
    bool upstream;

    if (!g || !git_path_of_body(g) || !git_name_of(g, "remote", JSON_OPTIONAL, &remote) ||
        !git_name_of(g, "branch", JSON_OPTIONAL, &branch) ||
        !git_flag(g, "set_upstream", &upstream) || !git_credentials(g, JSON_OPTIONAL))
        return;
    git_begin(g, true, lines,
              (const char *const[]){*remote ? remote : "origin", branch,
                                    upstream ? "--set-upstream" : "", NULL});
}

/* No merge: a branch that cannot be fast-forwarded is refused, as upstream does. */
void git_pull(struct toolbox_call *c)
{
    with_remote(c,
                "b=${2:-$(git symbolic-ref -q --short HEAD)}\n"
                "remote \"$(git remote get-url \"$1\" 2>/dev/null)\"\n"
                "over_net git -c http.version=HTTP/1.1 pull -q --ff-only -- \"$1\" ${b:+\"$b\"}");
}

void git_push(struct toolbox_call *c)
{
    with_remote(c, "b=${2:-$(git symbolic-ref -q --short HEAD)}\n"
                   "[ -n \"$b\" ] || { echo 'HEAD is not currently on a branch' >&2; exit 1; }\n"
                   "remote \"$(git remote get-url --push \"$1\" 2>/dev/null)\"\n"
                   "over_net git -c http.version=HTTP/1.1 push -q $3 -- \"$1\" "
                   "\"refs/heads/$b:refs/heads/$b\"");
}
