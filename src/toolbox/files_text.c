/* Searches in files and in their names, and replacing, by the sandbox's own grep, find and perl
 * (run.h). Patterns, paths and values reach the program as arguments or variables of its
 * environment and never as a part of the script. Its output is read as NUL-terminated fields,
 * since a name may hold any other byte; an answer that was cut at ANSWER_MAX ends with the last
 * whole match. */

#include "toolbox/files.h"

#include "base/buf.h"
#include "http/json.h"
#include "toolbox/call.h"
#include "toolbox/reply.h"
#include "toolbox/run.h"

#include <stdio.h>
#include <string.h>

#define ANSWER_MAX          (8u * TOOLBOX_OUTPUT_MAX)
#define TOOLBOX_REPLACE_MAX 1000u
#define NAME_SIZE           16u

/* A kind of search: its program ($1: folder, $2: pattern), and the form of its answer. put appends
 * the entry at `at` and returns where the next begins; NULL after the last, where it was cut, and
 * with *rc below 0. */
struct kind {
    const char *script, *head, *tail;
    const char *(*put)(struct buf *b, const char *at, const char *end, int *rc);
};

struct search {
    struct toolbox_call *call;
    const struct kind *kind; /* NULL: of replacing */
    char path[TOOLBOX_PATH_SIZE];
};

static struct search *search_new(struct toolbox_call *c)
{
    struct search *s = calloc(1, sizeof(*s));

    if (!s) {
        toolbox_fail(c, 503, NULL, "memory is out");
        return NULL;
    }
    s->call = c;
    c->state = s;
    c->state_free = free;
    return s;
}

static bool failed(struct search *s, const struct toolbox_result *r, const struct err *why)
{
    if (why)
        toolbox_fail_err(s->call, why);
    else if (r->exit_code == 3)
        toolbox_fail(s->call, 404, "FILE_NOT_FOUND", "file not found: %.800s", s->path);
    else if (r->timed_out)
        toolbox_fail(s->call, 408, NULL, "the search took longer than %u s",
                     TOOLBOX_TREE_MS / 1000);
    else if (r->reason)
        toolbox_fail(s->call, 507, NULL, "%s", r->reason);
    else
        return false;
    return true;
}

static void reply_buf(struct toolbox_call *c, const struct buf *b, int rc)
{
    if (rc == 0)
        toolbox_reply_text(c, b->data, b->len);
    else
        toolbox_fail(c, 413, NULL, "the answer is larger than this server holds: search for less");
}

static bool read_query(struct search *s, char *pattern, size_t size)
{
    if (!toolbox_query(s->call, "path", s->path, sizeof(s->path)) ||
        !toolbox_query(s->call, "pattern", pattern, size))
        return false;
    if (!s->path[0])
        snprintf(s->path, sizeof(s->path), ".");
    if (pattern[0])
        return true;
    toolbox_fail(s->call, 400, "BAD_REQUEST", "pattern is required");
    return false;
}

static void searched(void *arg, const struct toolbox_result *r, const struct err *why)
{
    struct search *s = arg;
    CLEANUP_BUF struct buf b = {0};
    int rc;

    if (failed(s, r, why))
        return;
    buf_init(&b, ANSWER_MAX);
    rc = buf_append_str(&b, s->kind->head);
    for (const char *at = r->out[0]; at && rc == 0;)
        at = s->kind->put(&b, at, r->out[0] + r->len[0], &rc);
    if (rc == 0)
        rc = r->truncated ? -1 : buf_append_str(&b, s->kind->tail);
    reply_buf(s->call, &b, rc);
}

static void search(struct toolbox_call *c, const struct kind *kind)
{
    struct search *s = search_new(c);
    struct toolbox_run r = {.timeout_ms = TOOLBOX_TREE_MS, .done = searched, .arg = s};
    char pattern[TOOLBOX_PATH_SIZE];

    if (!s || !read_query(s, pattern, sizeof(pattern)))
        return;
    s->kind = kind;
    toolbox_script(&r, kind->script, (const char *const[]){s->path, pattern, NULL});
    toolbox_run(c, &r);
}

/* NAME NUL NUMBER ':' LINE NEWLINE. NULL at the end, or at a line that was cut. */
static const char *put_match(struct buf *b, const char *at, const char *end, int *rc)
{
    const char *number = memchr(at, '\0', (size_t)(end - at)), *line, *stop;

    line = number ? memchr(number + 1, ':', (size_t)(end - number - 1)) : NULL;
    stop = line ? memchr(line, '\n', (size_t)(end - line)) : NULL;
    if (!stop)
        return NULL;
    *rc = buf_append_str(b, b->len > 1 ? ",{" : "{");
    if (*rc == 0)
        *rc = buf_append_str(b, "\"file\":");
    if (*rc == 0)
        *rc = json_append_text(b, at, (size_t)(number - at));
    if (*rc == 0)
        *rc = buf_printf(b, ",\"line\":%lu,\"content\":", strtoul(number + 1, NULL, 10));
    if (*rc == 0)
        *rc = json_append_text(b, line + 1, (size_t)(stop - line - 1));
    if (*rc == 0)
        *rc = buf_append_str(b, "}");
    return *rc == 0 ? stop + 1 : NULL;
}

void toolbox_files_find(struct toolbox_call *c)
{
    static const struct kind lines = {
        .script =
            "[ -e \"$1\" ] || exit 3\ngrep -rnIHFZ -D skip -e \"$2\" -- \"$1\" 2>/dev/null\nexit 0",
        .head = "[",
        .tail = "]",
        .put = put_match};

    search(c, &lines);
}

/* NAME NUL. */
static const char *put_name(struct buf *b, const char *at, const char *end, int *rc)
{
    if (at >= end)
        return NULL;
    *rc = b->data[b->len - 1] == '[' ? 0 : buf_append_str(b, ",");
    if (*rc == 0)
        *rc = json_append_text(b, at, strlen(at));
    return *rc == 0 ? at + strlen(at) + 1 : NULL;
}

void toolbox_files_search(struct toolbox_call *c)
{
    static const struct kind names = {
        /* find would take such a path for an option or an expression. */
        .script = "[ -e \"$1\" ] || exit 3\np=$1\n"
                  "case $p in -*|'('*|')'*|,*|!*) p=./$p ;; esac\n"
                  "find \"$p\" -name \"$2\" -print0 2>/dev/null\nexit 0",
        .head = "{\"files\":[",
        .tail = "]}",
        .put = put_name};

    search(c, &names);
}

/* -- replacing --------------------------------------------------------------------------------- */

/* Files, pattern and value come as variables, so that no length of an argument matters. Its report
 * on each file, empty or the reason of a failure, ends with a NUL. */
static const char replacing[] =
    "exec perl -e 'for my $i (0..$ENV{CAY_COUNT}-1) { my $f=$ENV{\"CAY_FILE_$i\"}; my $e=\"\";"
    " if (-d $f) { $e=\"path points to a directory\" }"
    " elsif (!-e $f) { $e=\"file not found\" }"
    " elsif (!-f _) { $e=\"path is no regular file\" }"
    " elsif (!open(my $h,\"<:raw\",$f)) { $e=\"permission denied\" }"
    " else { local $/; my $t=<$h>; close $h; my $n=$t;"
    " if (length $ENV{CAY_FROM}) { $n=join($ENV{CAY_TO},split(/\\Q$ENV{CAY_FROM}\\E/,$t,-1)) }"
    " if ($n ne $t) { if (open(my $o,\">:raw\",$f)) { print $o $n; close $o or $e=\"disk is full\" "
    "}"
    " else { $e=\"permission denied\" } } }"
    " print \"$e\\0\" }'";

static void replaced(void *arg, const struct toolbox_result *r, const struct err *why)
{
    struct search *s = arg;
    json_t *out, *file;
    const char *at, *end;
    size_t i;

    if (why) {
        toolbox_fail_err(s->call, why);
        return;
    }
    if (r->exit_code != 0) {
        toolbox_fail_program(s->call, r, "");
        return;
    }
    out = json_array();
    at = r->out[0];
    end = at + r->len[0];
    json_array_foreach (json_object_get(s->call->body, "files"), i, file) {
        json_t *one = json_pack("{s:O, s:b}", "file", file, "success", at < end && !*at);

        if (at >= end || *at)
            json_object_set_new(one, "error", json_string(at < end ? at : "not looked at"));
        json_array_append_new(out, one);
        at += at < end ? strlen(at) + 1 : 0;
    }
    toolbox_reply_json(s->call, 200, out);
}

static json_t *replace_envs(const json_t *body, struct err *e)
{
    const char *pattern, *value;
    json_t *files = NULL, *envs, *file;
    char name[NAME_SIZE + 16];
    size_t i;

    if (json_get_arr(body, "files", NULL, JSON_REQUIRED, &files, e) != ERR_OK ||
        json_get_str(body, "pattern", NULL, JSON_REQUIRED, 100000, &pattern, e) != ERR_OK ||
        json_get_str(body, "newValue", NULL, JSON_REQUIRED, 100000, &value, e) != ERR_OK)
        return NULL;
    if (json_array_size(files) > TOOLBOX_REPLACE_MAX || !pattern[0]) {
        err_set(e, ERR_INVALID, pattern[0] ? "files: at most %u at once" : "pattern is required",
                TOOLBOX_REPLACE_MAX);
        return NULL;
    }
    envs = json_pack("{s:s, s:s}", "CAY_FROM", pattern, "CAY_TO", value);
    json_array_foreach (files, i, file) {
        snprintf(name, sizeof(name), "CAY_FILE_%zu", i);
        if (!json_string_length(file)) {
            err_set(e, ERR_INVALID, "files[%zu] must be a path", i);
            json_decref(envs);
            return NULL;
        }
        json_object_set(envs, name, file);
    }
    snprintf(name, sizeof(name), "%zu", i);
    json_object_set_new(envs, "CAY_COUNT", json_string(name));
    if (!json_was_cut())
        return envs;
    err_set(e, ERR_UNAVAILABLE, "memory is out");
    json_decref(envs);
    return NULL;
}

void toolbox_files_replace(struct toolbox_call *c)
{
    struct search *s = search_new(c);
    struct toolbox_run r = {.timeout_ms = TOOLBOX_TREE_MS, .done = replaced, .arg = s};
    json_t *envs;
    struct err e;

    if (!s)
        return;
    envs = replace_envs(c->body, &e);
    if (!envs) {
        toolbox_fail_err(c, &e);
        return;
    }
    r.envs = envs;
    toolbox_script(&r, replacing, (const char *const[]){NULL});
    toolbox_run(c, &r);
    json_decref(envs);
}
