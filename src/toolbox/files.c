/* Files: what the agent's file system service does in one call or two, or a few lines of sh.
 *
 * struct toolbox_paths is the call's state. Each handler reads its query, asks the agent, and
 * answers in the callback of its last question. Called by the routes alone. */
#include "toolbox/files.h"

#include "base/buf.h"
#include "base/clock.h"
#include "http/json.h"
#include "toolbox/agent.h"
#include "toolbox/call.h"
#include "toolbox/collect.h"
#include "toolbox/elements.h"
#include "toolbox/reply.h"
#include "toolbox/run.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LIST_BYTES_MAX (64u * 1024u * 1024u) /* of the answer that is made of an agent's list */

struct toolbox_paths {
    struct toolbox_call *call;
    char path[TOOLBOX_PATH_SIZE], to[TOOLBOX_PATH_SIZE];
    bool recursive;
};

static struct toolbox_paths *paths_new(struct toolbox_call *c)
{
    struct toolbox_paths *p = calloc(1, sizeof(*p));

    if (p) {
        p->call = c;
        c->state = p;
        c->state_free = free;
    } else {
        toolbox_fail(c, 503, NULL, "memory is out");
    }
    return p;
}

static json_t *path_json(const char *path)
{
    return json_pack("{s:s}", "path", path);
}

/* -- what is shown of a file ------------------------------------------------------------------- */

/* "-rw-r--r--", as ls(1) has it. */
static void mode_text(const char *type, unsigned bits, char out[static 11])
{
    static const char rwx[] = "rwxrwxrwx";

    out[0] = strstr(type, "DIRECTORY") ? 'd' : strstr(type, "SYMLINK") ? 'l' : '-';
    for (int i = 0; i < 9; i++)
        out[1 + i] = bits & (0400u >> i) ? rwx[i] : '-';
    out[10] = '\0';
}

static void set_text(json_t *out, const char *name, const json_t *value)
{
    const char *text = json_string_value(value);

    json_object_set_new(out, name, json_string(text ? text : ""));
}

/* modTime is the form that it has always had, Go's; modifiedAt the one to read. */
static void set_times(json_t *out, const json_t *entry)
{
    const char *at = json_string_value(json_object_get(entry, "modifiedTime"));
    char text[80];

    at = at ? at : "1970-01-01T00:00:00Z";
    snprintf(text, sizeof(text), "%.10s %.*s +0000 UTC", at, (int)MIN(strcspn(at, "Z") - 11, 18u),
             strlen(at) > 11 ? at + 11 : "");
    json_object_set_new(out, "modTime", json_string(text));
    json_object_set_new(out, "modifiedAt", json_string(at));
}

static json_t *file_json(const json_t *entry)
{
    const char *type = json_string_value(json_object_get(entry, "type"));
    const char *size = json_string_value(json_object_get(entry, "size"));
    unsigned bits = (unsigned)json_integer_value(json_object_get(entry, "mode")) & 0777;
    char mode[11], octal[8];
    json_t *out = json_object();

    mode_text(type ? type : "", bits, mode);
    snprintf(octal, sizeof(octal), "0%03o", bits);
    set_text(out, "name", json_object_get(entry, "name"));
    set_text(out, "path", json_object_get(entry, "path"));
    set_text(out, "owner", json_object_get(entry, "owner"));
    set_text(out, "group", json_object_get(entry, "group"));
    json_object_set_new(out, "isDir", json_boolean(type && strstr(type, "DIRECTORY")));
    json_object_set_new(out, "size", json_integer(size ? strtoll(size, NULL, 10) : 0));
    json_object_set_new(out, "mode", json_string(mode));
    json_object_set_new(out, "permissions", json_string(octal));
    set_times(out, entry);
    return out;
}

/* -- list and info ----------------------------------------------------------------------------- */

/* The agent's, which the sandbox can replace, is not believed to be one. */
static bool is_entry(const json_t *entry)
{
    return json_is_string(json_object_get(entry, "name")) &&
           json_is_string(json_object_get(entry, "path"));
}

/* After json_load_answer. */
static void no_answer(struct toolbox_paths *p)
{
    if (json_memory_was_out()) {
        toolbox_fail(p->call, 503, NULL, "memory is out");
        return;
    }
    toolbox_fail(p->call, 500, NULL, "the sandbox's agent does not answer as agents do: %.800s",
                 p->path);
}

/* An entry at a time: all of them as JSON would take some ten times what the answer does. */
static int add_entry(void *arg, const json_t *entry)
{
    struct buf *out = arg;
    bool is_good = is_entry(entry);
    json_t *file = is_good ? file_json(entry) : NULL;
    char *text = json_was_cut() ? NULL : json_text(file, JSON_COMPACT);
    int rc = !is_good ? -EBADMSG : text ? 0 : -ENOMEM;

    if (rc == 0 && out->len > 1)
        rc = buf_append_str(out, ",");
    if (rc == 0)
        rc = buf_append_str(out, text);
    free(text);
    json_decref(file);
    return rc;
}

static void listed(void *arg, const struct http_head *head, const char *body, size_t len,
                   const struct err *why)
{
    struct toolbox_paths *p = arg;
    CLEANUP_BUF struct buf out = {0};
    int rc;

    if (why || head->status != 200) {
        toolbox_fail_file(p->call, head, body, len, why, p->path);
        return;
    }
    buf_init(&out, LIST_BYTES_MAX);
    rc = buf_append_str(&out, "[");
    if (rc == 0)
        rc = elements_each(body, len, "entries", add_entry, &out);
    if (rc == 0)
        rc = buf_append_str(&out, "]");
    if (rc == 0)
        toolbox_reply_text(p->call, out.data, out.len);
    else if (rc == -EBADMSG)
        no_answer(p);
    else
        toolbox_fail(p->call, rc == -EMSGSIZE ? 413 : 503, NULL,
                     rc == -EMSGSIZE ? "the list is larger than this server holds: ask for a "
                                       "folder below, or less depth"
                                     : "memory is out");
}

void toolbox_files_list(struct toolbox_call *c)
{
    struct toolbox_paths *p = paths_new(c);
    struct toolbox_agent_request r = {.method = "POST",
                                      .max_response_bytes = TOOLBOX_COLLECTED_MAX,
                                      .head_timeout_ms = TOOLBOX_TREE_MS,
                                      .timeout_ms = TOOLBOX_TREE_MS,
                                      .done = listed,
                                      .arg = p};
    char depth[16];
    json_t *body;

    if (!p || !toolbox_query(c, "path", p->path, sizeof(p->path)) ||
        !toolbox_query(c, "depth", depth, sizeof(depth)))
        return;
    body = json_pack("{s:s, s:i}", "path", p->path[0] ? p->path : "~", "depth",
                     atoi(depth) > 0 ? atoi(depth) : 1);
    r.target = strdup("/filesystem.Filesystem/ListDir");
    toolbox_agent_body(&r, body);
    toolbox_agent(c, &r);
}

static void on_stat(void *arg, const struct http_head *head, const char *body, size_t len,
                    const struct err *why)
{
    struct toolbox_paths *p = arg;
    json_t *o = NULL;

    if (why || head->status != 200) {
        toolbox_fail_file(p->call, head, body, len, why, p->path);
        return;
    }
    o = json_load_answer(body, len);
    if (is_entry(json_object_get(o, "entry")))
        toolbox_reply_json(p->call, 200, file_json(json_object_get(o, "entry")));
    else
        no_answer(p);
    json_decref(o);
}

void toolbox_files_info(struct toolbox_call *c)
{
    struct toolbox_paths *p = paths_new(c);

    if (p && toolbox_query_path(c, "path", p->path))
        toolbox_rpc(c, "/filesystem.Filesystem/Stat", path_json(p->path), on_stat, p);
}

/* -- folder ------------------------------------------------------------------------------------ */

static bool is_word(const char *body, size_t len, const char *field, const char *word)
{
    json_t *o = len ? json_load_answer(body, len) : NULL;
    const char *text = json_string_value(json_object_get(o, field));
    bool is = text && strcmp(text, word) == 0;

    json_decref(o);
    return is;
}

/* A folder that is there already is what was asked for. */
static void folder_made(void *arg, const struct http_head *head, const char *body, size_t len,
                        const struct err *why)
{
    struct toolbox_paths *p = arg;

    if (!why && (head->status == 200 || is_word(body, len, "code", "already_exists")))
        toolbox_reply_empty(p->call, 201);
    else
        toolbox_fail_file(p->call, head, body, len, why, p->path);
}

static void folder_made_with_mode(void *arg, const struct toolbox_result *r, const struct err *why)
{
    struct toolbox_paths *p = arg;

    if (why)
        toolbox_fail_err(p->call, why);
    else if (r->exit_code == 0)
        toolbox_reply_empty(p->call, 201);
    else
        toolbox_fail_program(p->call, r, p->path);
}

static bool is_octal(const char *mode)
{
    size_t n = strlen(mode);

    return n >= 1 && n <= 5 && strspn(mode, "01234567") == n;
}

void toolbox_files_folder(struct toolbox_call *c)
{
    static const char script[] =
        "[ -d \"$1\" ] || { mkdir -p -- \"$1\" && chmod \"$2\" -- \"$1\"; }";
    struct toolbox_paths *p = paths_new(c);
    struct toolbox_run r = {.done = folder_made_with_mode, .arg = p};
    char mode[16];

    if (!p || !toolbox_query_path(c, "path", p->path) ||
        !toolbox_query(c, "mode", mode, sizeof(mode)))
        return;
    if (mode[0] && !is_octal(mode)) {
        toolbox_fail(c, 400, "BAD_REQUEST", "invalid mode: %s is not octal, as 755 is", mode);
    } else if (!mode[0] || strcmp(mode, "755") == 0 || strcmp(mode, "0755") == 0) {
        toolbox_rpc(c, "/filesystem.Filesystem/MakeDir", path_json(p->path), folder_made, p);
    } else {
        const char *const args[] = {p->path, mode, NULL};

        toolbox_script(&r, script, args);
        toolbox_run(c, &r);
    }
}

/* -- delete ------------------------------------------------------------------------------------ */

static void removed(void *arg, const struct http_head *head, const char *body, size_t len,
                    const struct err *why)
{
    struct toolbox_paths *p = arg;

    if (!why && head->status == 200)
        toolbox_reply_empty(p->call, 204);
    else
        toolbox_fail_file(p->call, head, body, len, why, p->path);
}

static void remove_tree(struct toolbox_paths *p)
{
    struct toolbox_agent_request r = {.method = "POST",
                                      .target = strdup("/filesystem.Filesystem/Remove"),
                                      .type = "application/json",
                                      .max_response_bytes = 65536,
                                      .head_timeout_ms = TOOLBOX_TREE_MS,
                                      .timeout_ms = TOOLBOX_TREE_MS,
                                      .done = removed,
                                      .arg = p};

    toolbox_agent_body(&r, path_json(p->path));
    toolbox_agent(p->call, &r);
}

static void on_stat_before_delete(void *arg, const struct http_head *head, const char *body,
                                  size_t len, const struct err *why)
{
    struct toolbox_paths *p = arg;
    json_t *o = NULL;
    const char *type;

    if (why || head->status != 200) {
        toolbox_fail_file(p->call, head, body, len, why, p->path);
        return;
    }
    o = json_load_answer(body, len);
    type = json_string_value(json_object_get(json_object_get(o, "entry"), "type"));
    if (!is_entry(json_object_get(o, "entry")))
        no_answer(p);
    else if (type && strstr(type, "DIRECTORY") && !p->recursive)
        toolbox_fail(p->call, 400, "BAD_REQUEST",
                     "cannot delete a folder without recursive=true: %.800s", p->path);
    else if (p->call->x)
        remove_tree(p);
    json_decref(o);
}

void toolbox_files_delete(struct toolbox_call *c)
{
    struct toolbox_paths *p = paths_new(c);
    char recursive[8];

    if (!p || !toolbox_query_path(c, "path", p->path) ||
        !toolbox_query(c, "recursive", recursive, sizeof(recursive)))
        return;
    p->recursive = strcasecmp(recursive, "true") == 0 || strcmp(recursive, "1") == 0;
    toolbox_rpc(c, "/filesystem.Filesystem/Stat", path_json(p->path), on_stat_before_delete, p);
}

/* -- move -------------------------------------------------------------------------------------- */

/* The end of a program that changes p->path; 3: there is no such file. */
static void changed(void *arg, const struct toolbox_result *r, const struct err *why)
{
    struct toolbox_paths *p = arg;

    if (why)
        toolbox_fail_err(p->call, why);
    else if (r->exit_code == 0)
        toolbox_reply_empty(p->call, 200);
    else if (r->exit_code == 3)
        toolbox_fail(p->call, 404, "FILE_NOT_FOUND", "file not found: %.800s", p->path);
    else
        toolbox_fail_program(p->call, r, p->path);
}

static void moved(void *arg, const struct toolbox_result *r, const struct err *why)
{
    struct toolbox_paths *p = arg;

    if (!why && r->exit_code == 4)
        toolbox_fail(p->call, 409, "CONFLICT", "destination already exists: %.800s", p->to);
    else if (!why && r->exit_code == 5)
        toolbox_fail(p->call, 404, "FILE_NOT_FOUND", "file not found: the folder of %.800s", p->to);
    else
        changed(p, r, why);
}

void toolbox_files_move(struct toolbox_call *c)
{
    static const char script[] = "[ -e \"$1\" ] || [ -L \"$1\" ] || exit 3\n"
                                 "[ -e \"$2\" ] && exit 4\n"
                                 "[ -d \"$(dirname -- \"$2\")\" ] || exit 5\n"
                                 "exec mv -nT -- \"$1\" \"$2\"";
    struct toolbox_paths *p = paths_new(c);
    struct toolbox_run r = {.done = moved, .arg = p};

    if (!p || !toolbox_query_path(c, "source", p->path) ||
        !toolbox_query_path(c, "destination", p->to))
        return;
    toolbox_script(&r, script, (const char *const[]){p->path, p->to, NULL});
    toolbox_run(c, &r);
}

/* -- permissions ------------------------------------------------------------------------------- */

/* A file can only be given away by root; sudo is the user's own way to that. */
void toolbox_files_permissions(struct toolbox_call *c)
{
    static const char script[] = "[ -e \"$1\" ] || exit 3\n"
                                 "[ -z \"$2\" ] || chmod \"$2\" -- \"$1\" || exit 1\n"
                                 "[ -z \"$3$4\" ] || sudo -n chown \"$3${4:+:$4}\" -- \"$1\"";
    struct toolbox_paths *p = paths_new(c);
    struct toolbox_run r = {.done = changed, .arg = p};
    char mode[16], owner[64], group[64];

    if (!p || !toolbox_query_path(c, "path", p->path) ||
        !toolbox_query(c, "mode", mode, sizeof(mode)) ||
        !toolbox_query(c, "owner", owner, sizeof(owner)) ||
        !toolbox_query(c, "group", group, sizeof(group)))
        return;
    if (mode[0] && !is_octal(mode)) {
        toolbox_fail(c, 400, "BAD_REQUEST", "invalid mode: %s is not octal, as 644 is", mode);
        return;
    }
    toolbox_script(&r, script, (const char *const[]){p->path, mode, owner, group, NULL});
    toolbox_run(c, &r);
}

/* -- where one is ------------------------------------------------------------------------------ */

static void said_where(void *arg, const struct toolbox_result *r, const struct err *why)
{
    struct toolbox_call *c = arg;

    if (why)
        toolbox_fail_err(c, why);
    else if (r->exit_code != 0)
        toolbox_fail_program(c, r, "");
    else
        toolbox_reply_json(c, 200, json_pack("{s:s#}", "dir", r->out[0], r->len[0]));
}

void toolbox_home(struct toolbox_call *c)
{
    struct toolbox_run r = {.done = said_where, .arg = c};

    toolbox_script(&r, "printf %s \"$PWD\"", (const char *const[]){NULL});
    toolbox_run(c, &r);
}

void toolbox_fail_program(struct toolbox_call *c, const struct toolbox_result *r, const char *path)
{
    const char *said = r->len[1] ? r->out[1] : r->out[0];

    if (r->timed_out)
        toolbox_fail(c, 408, NULL, "it took too long");
    else if (r->reason)
        toolbox_fail(c, 507, NULL, "%s", r->reason);
    else if (strstr(said, "Permission denied") || strstr(said, "Operation not permitted"))
        toolbox_fail(c, 403, "FILE_ACCESS_DENIED", "permission denied: %.800s", path);
    else if (strstr(said, "No such file or directory"))
        toolbox_fail(c, 404, "FILE_NOT_FOUND", "file not found: %.800s", path);
    else
        toolbox_fail(c, 400, "BAD_REQUEST", "%.*s", (int)MIN(r->len[1], 800u), said);
}
