/* Git calls of newer clients of Daytona's: a repository that is made, what takes changes back,
 * remotes, and git's settings. As git.c's: fields, and one script for each (git_internal.h). */
#include "toolbox/git_internal.h"

#include "toolbox/reply.h"

#include <stdio.h>
#include <string.h>

#define URL_MAX  8192u
#define KEY_MAX  1024u
#define HOST_MAX 256u

static bool is_one_of(struct git *g, const char *field, const char *value, const char *const *words)
{
    for (; *words; words++)
        if (strcmp(value, *words) == 0)
            return true;
    toolbox_fail(g->call, 400, "BAD_REQUEST", "%s '%.60s' is none that there is", field, value);
    return false;
}

/* -- a repository and its changes -------------------------------------------------------------- */

void git_init(struct toolbox_call *c)
{
    struct git *g = git_new(c);
    const char *branch;
    bool bare;

    if (!g || !git_path_of_body(g) || !git_flag(g, "bare", &bare) ||
        !git_name_of(g, "initial_branch", JSON_OPTIONAL, &branch))
        return;
    g->status = 201;
    git_begin(g, false, "exec git init -q $1 ${2:+\"--initial-branch=$2\"} -- \"$p\"",
              (const char *const[]){bare ? "--bare" : "", branch, NULL});
}

/* An empty list, as none, is all; any other value is refused then, and not taken for none. */
static bool names_files(const struct git *g)
{
    const json_t *files = json_object_get(g->call->body, "files");

    return files && !json_is_null(files) && !(json_is_array(files) && json_array_size(files) == 0);
}

/* Of files their entries in the index alone are reset, which is what `mixed` means. */
void git_reset(struct toolbox_call *c)
{
    static const char *const modes[] = {"soft", "mixed", "hard", "merge", "keep", NULL};
    struct git *g = git_new(c);
    const char *mode, *target;

    if (!g || !git_path_of_body(g) || !git_text(g, "mode", JSON_OPTIONAL, 16, &mode) ||
        !git_name_of(g, "target", JSON_OPTIONAL, &target))
        return;
    mode = *mode ? mode : "mixed";
    target = *target ? target : "HEAD";
    if (!is_one_of(g, "mode", mode, modes) || (names_files(g) && !git_files(g)))
        return;
    if (!g->has_files)
        git_begin(g, true, "exec git reset -q \"--$1\" \"$2\" --",
                  (const char *const[]){mode, target, NULL});
    else if (strcmp(mode, "mixed") != 0)
        toolbox_fail(c, 400, "BAD_REQUEST", "files cannot be reset in mode %s, only in mixed",
                     mode);
    else
        git_begin(g, true, "files | git reset -q --pathspec-from-file=- --pathspec-file-nul \"$1\"",
                  (const char *const[]){target, NULL});
}

/* Without a word about either it is the working tree. */
void git_restore(struct toolbox_call *c)
{
    struct git *g = git_new(c);
    const char *source;
    bool staged, worktree;

    if (!g || !git_path_of_body(g) || !git_files(g) ||
        !git_name_of(g, "source", JSON_OPTIONAL, &source) || !git_flag(g, "staged", &staged) ||
        !git_flag(g, "worktree", &worktree))
        return;
    if (!json_is_boolean(json_object_get(c->body, "worktree")))
        worktree = !staged;
    if (!staged && !worktree) {
        toolbox_fail(c, 400, "BAD_REQUEST", "staged and worktree are both false: nothing is left");
        return;
    }
    git_begin(g, true,
              "files | git restore -q $1 $2 ${3:+\"--source=$3\"} --pathspec-from-file=- "
              "--pathspec-file-nul",
              (const char *const[]){staged ? "--staged" : "", worktree ? "--worktree" : "", source,
                                    NULL});
}

/* -- remotes ----------------------------------------------------------------------------------- */

void git_remotes(struct toolbox_call *c)
{
    struct git *g = git_new(c);

    if (!g || !git_path_of_query(g))
        return;
    g->read = git_read_remotes;
    git_begin(g, true, "git config -z --get-regexp '^remote\\..*\\.url$' || [ $? = 1 ]",
              (const char *const[]){NULL});
}

/* A remote whose fetch fails stays, as with git's own `remote add -f`. */
void git_remote_add(struct toolbox_call *c)
{
    struct git *g = git_new(c);
    const char *name, *url;
    bool fetch, overwrite;

    if (!g || !git_path_of_body(g) || !git_name_of(g, "name", JSON_REQUIRED, &name) ||
        !git_text(g, "url", JSON_REQUIRED, URL_MAX, &url) || !git_flag(g, "fetch", &fetch) ||
        !git_flag(g, "overwrite", &overwrite))
        return;
    g->status = 201;
    git_begin(g, true,
              "if [ -n \"$4\" ] && git remote get-url -- \"$1\" >/dev/null 2>&1; then\n"
              "  git remote set-url -- \"$1\" \"$2\" || exit 1\n"
              "else git remote add -- \"$1\" \"$2\" || exit 1; fi\n"
              "[ -z \"$3\" ] || over_net git -c http.version=HTTP/1.1 fetch -q -- \"$1\"",
              (const char *const[]){name, url, fetch ? "1" : "", overwrite ? "1" : "", NULL});
}

/* -- settings ---------------------------------------------------------------------------------- */

/* section.name or section.anything.name: git itself takes one that is none for one that is not
 * set. */
static bool is_key(const char *key)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    static const char in_name[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-";
    const char *last = strrchr(key, '.');
    size_t section = strspn(key, in_name);

    return last && section > 0 && key[0] != '-' && key[section] == '.' && !strchr(key, '\n') &&
           last[1] && strchr(letters, last[1]) && last[1 + strspn(last + 1, in_name)] == '\0';
}

static bool check_key(struct git *g, const char *key)
{
    if (!is_key(key))
        toolbox_fail(g->call, 400, "BAD_REQUEST", "key '%.100s' is not section.name", key);
    return is_key(key);
}

/* Which file: "global" where nothing is said. */
static bool check_scope(struct git *g, const char **scope)
{
    static const char *const scopes[] = {"global", "local", "system", NULL};

    *scope = **scope ? *scope : scopes[0];
    return is_one_of(g, "scope", *scope, scopes);
}

static bool is_local(const char *scope)
{
    return strcmp(scope, "local") == 0;
}

/* "scope" of the body, and "path" where it needs one. */
static bool scope_of_body(struct git *g, const char **scope)
{
    return git_text(g, "scope", JSON_OPTIONAL, 16, scope) && check_scope(g, scope) &&
           (!is_local(*scope) || git_path_of_body(g));
}

void git_config_get(struct toolbox_call *c)
{
    struct git *g = git_new(c);
    char key[KEY_MAX + 1], text[16];
    const char *scope = text;

    if (!g || !toolbox_query(c, "key", key, sizeof(key)) || !check_key(g, key) ||
        !toolbox_query(c, "scope", text, sizeof(text)) || !check_scope(g, &scope) ||
        (is_local(scope) && !git_path_of_query(g)))
        return;
    g->read = git_read_value;
    git_begin(g, is_local(scope), "git config \"--$1\" -z --get \"$2\" || [ $? = 1 ]",
              (const char *const[]){scope, key, NULL});
}

void git_config_set(struct toolbox_call *c)
{
    struct git *g = git_new(c);
    const char *key, *value, *scope;

    if (!g || !git_text(g, "key", JSON_REQUIRED, KEY_MAX, &key) || !check_key(g, key) ||
        !git_text(g, "value", JSON_OPTIONAL, GIT_TEXT_MAX, &value) || !scope_of_body(g, &scope))
        return;
    if (!json_is_string(json_object_get(c->body, "value")))
        toolbox_fail(c, 400, "BAD_REQUEST", "value is required");
    else
        git_begin(g, is_local(scope), "exec git config \"--$1\" \"$2\" \"$3\"",
                  (const char *const[]){scope, key, value, NULL});
}

void git_config_user(struct toolbox_call *c)
{
    struct git *g = git_new(c);
    const char *name, *email, *scope;

    if (!g || !git_text(g, "name", JSON_REQUIRED, GIT_TEXT_MAX, &name) ||
        !git_text(g, "email", JSON_REQUIRED, GIT_TEXT_MAX, &email) || !scope_of_body(g, &scope))
        return;
    git_begin(g, is_local(scope),
              "git config \"--$1\" user.name \"$2\" || exit 1\n"
              "exec git config \"--$1\" user.email \"$3\"",
              (const char *const[]){scope, name, email, NULL});
}

/* The one call that leaves a password in a file of the sandbox, which is all that it is for. */
void git_credentials_store(struct toolbox_call *c)
{
    struct git *g = git_new(c);
    const char *host, *protocol;

    if (!g || !git_credentials(g, JSON_REQUIRED) ||
        !git_text(g, "host", JSON_OPTIONAL, HOST_MAX, &host) ||
        !git_text(g, "protocol", JSON_OPTIONAL, 16, &protocol))
        return;
    if (strpbrk(host, "\r\n") || strpbrk(protocol, "\r\n")) {
        toolbox_fail(c, 400, "BAD_REQUEST", "host and protocol must each be one line");
        return;
    }
    git_begin(
        g, false,
        "git config --global credential.helper store || exit 1\n"
        "printf 'protocol=%s\\nhost=%s\\nusername=%s\\npassword=%s\\n\\n' \"$1\" \"$2\" "
        "\"$CAY_GIT_USERNAME\" \"$CAY_GIT_PASSWORD\" | git credential-store store",
        (const char *const[]){*protocol ? protocol : "https", *host ? host : "github.com", NULL});
}
