/* The tool "search": grep and find in the sandbox, as its user. They are started by core's exec
 * without a shell, so that a pattern or path is data and never a command; their output, which
 * may be cut at TEXT_BYTES, is read into matches up to where it was cut. The request is answered
 * once, when the program has ended; grep's status 1 is an empty result, not a failure. */

#include "core/exec.h"
#include "mcp/result.h"
#include "mcp/target.h"
#include "mcp/tool.h"

#include <stdio.h>
#include <string.h>

#define TIMEOUT_MS    30000u
#define TEXT_BYTES    (4u * TOOL_FOUND_BYTES_MAX)
#define LINE_BYTES    500u /* of a line that matches */
#define GREP_NO_MATCH 1
#define FAILED        2

static bool by_content(const struct request *r)
{
    return strcmp(schema_text(r->args, "by", ""), "content") == 0;
}

/* -- what was found ---------------------------------------------------------------------------- */

/* "path\0line:text\n": the end of it, or NULL for what was cut. */
static const char *read_line(const char *at, const char *end, json_t **out)
{
    const char *path_end = memchr(at, '\0', (size_t)(end - at));
    const char *line = path_end ? path_end + 1 : NULL,
               *stop = line ? memchr(line, '\n', (size_t)(end - line)) : NULL;
    const char *colon = stop ? memchr(line, ':', (size_t)(stop - line)) : NULL;

    if (!colon)
        return NULL;
    if (strncmp(at, "./", 2) == 0)
        at += 2;
    *out = json_pack("{s:o, s:I, s:o}", "path", rpc_text(at, (size_t)(path_end - at)), "line",
                     (json_int_t)strtoll(line, NULL, 10), "text",
                     rpc_text(colon + 1, MIN((size_t)(stop - colon - 1), LINE_BYTES)));
    return stop + 1;
}

/* "path\0". */
static const char *read_name(const char *at, const char *end, json_t **out)
{
    const char *stop = memchr(at, '\0', (size_t)(end - at));

    if (!stop)
        return NULL;
    if (strncmp(at, "./", 2) == 0)
        at += 2;
    *out = json_pack("{s:o}", "path", rpc_text(at, (size_t)(stop - at)));
    return stop + 1;
}

static int put_match(struct buf *b, const json_t *match)
{
    if (!json_object_get(match, "line"))
        return buf_printf(b, "%s\n", schema_text(match, "path", "?"));
    return buf_printf(b, "%s:%lld:%s\n", schema_text(match, "path", "?"),
                      (long long)schema_integer(match, "line", 0), schema_text(match, "text", ""));
}

struct found {
    json_t *matches;
    size_t at, end, total;
    struct buf text;
    int rc;
};

static void read_all(struct found *f, const char *at, size_t len,
                     const char *(*read)(const char *at, const char *end, json_t **out))
{
    const char *end = at + len;
    json_t *match = NULL;

    for (; at && at < end && f->rc == 0; f->total++, match = NULL) {
        at = read(at, end, &match);
        if (!at)
            break;
        if (f->total >= f->at && f->total < f->end) {
            f->rc = match ? put_match(&f->text, match) : -1;
            json_array_append(f->matches, match);
        }
        json_decref(match);
    }
}

static void answer_found(struct request *r, const struct core_exec_result *result)
{
    struct found f = {.matches = json_array(), .at = (size_t)schema_integer(r->args, "offset", 0)};
    bool truncated = result->truncated || result->timed_out;
    json_t *o;

    f.end = f.at + (size_t)schema_integer(r->args, "limit", TOOL_ENTRIES);
    buf_init(&f.text, TEXT_BYTES);
    read_all(&f, result->output[EXEC_STDOUT], result->output_len[EXEC_STDOUT],
             by_content(r) ? read_line : read_name);
    o = json_pack("{s:o, s:I, s:b}", "matches", f.matches, "total", (json_int_t)f.total,
                  "truncated", truncated);
    if (f.end < f.total) {
        json_object_set_new(o, "next_offset", json_integer((json_int_t)f.end));
        f.rc = f.rc == 0 ? buf_printf(&f.text, "[%zu of %zu; go on with offset %zu]\n",
                                      f.end - f.at, f.total, f.end)
                         : f.rc;
    }
    if (f.rc == 0 && truncated)
        f.rc = buf_append_str(
            &f.text,
            "[there is more than a search keeps or has time for; take a narrower pattern]\n");
    if (f.rc == 0 && f.text.len == 0)
        f.rc = buf_append_str(&f.text, "[nothing matches]\n");
    if (f.rc == 0 && o) {
        result_done(r, o, f.text.data, f.text.len);
    } else {
        json_decref(o);
        result_no_memory(r);
    }
    buf_free(&f.text);
}

static void on_end(void *arg, const struct core_exec_result *result, const struct err *why)
{
    struct request *r = arg;

    r->exec = 0;
    if (r->dropped)
        request_done(r);
    else if (why)
        result_fail(r, "searching: %s%s%s", why->text, why->hint[0] ? "; " : "", why->hint);
    else if (result->reason)
        result_fail(r, "searching: %s", result->reason);
    else if (result->exit_code >= FAILED && result->output_len[EXEC_STDOUT] == 0)
        result_fail(r, "searching: %.*s", (int)MIN(result->output_len[EXEC_STDERR], 600u),
                    result->output[EXEC_STDERR]);
    else if (!by_content(r) && result->exit_code == GREP_NO_MATCH &&
             result->output_len[EXEC_STDOUT] == 0)
        result_fail(r, "searching: %.*s", (int)MIN(result->output_len[EXEC_STDERR], 600u),
                    result->output[EXEC_STDERR]);
    else
        answer_found(r, result);
}

/* -- the search -------------------------------------------------------------------------------- */

static void add(json_t *args, const char *word)
{
    json_array_append_new(args, json_string(word));
}

/* A path that begins with '-' must not be taken for an option; nothing else is read from it: no
 * shell is there. */
static void add_path(const struct request *r, json_t *args)
{
    const char *path = schema_text(r->args, "path", ".");

    if (path[0] == '-')
        json_array_append_new(args, json_sprintf("./%s", path));
    else
        add(args, path);
}

static json_t *grep_of(const struct request *r)
{
    const char *include = schema_text(r->args, "include", NULL);
    json_t *args = json_array();

    add(args, "-rnIZ");
    if (strcmp(schema_text(r->args, "path", "."), "/") == 0) { /* files there have no end */
        add(args, "--exclude-dir=proc");
        add(args, "--exclude-dir=sys");
    }
    add(args, schema_boolean(r->args, "literal", false) ? "-F" : "-E");
    if (schema_boolean(r->args, "ignore_case", false))
        add(args, "-i");
    if (include)
        json_array_append_new(args, json_sprintf("--include=%s", include));
    add(args, "-e");
    add(args, schema_text(r->args, "pattern", ""));
    add(args, "--");
    add_path(r, args);
    return json_pack("{s:s, s:o}", "cmd", "grep", "args", args);
}

static json_t *find_of(const struct request *r)
{
    json_t *args = json_array();

    add_path(r, args);
    add(args, "-xdev");
    add(args, "-mindepth");
    add(args, "1");
    add(args, schema_boolean(r->args, "ignore_case", false) ? "-iname" : "-name");
    add(args, schema_text(r->args, "pattern", ""));
    add(args, "-print0");
    return json_pack("{s:s, s:o}", "cmd", "find", "args", args);
}

static void search(struct request *r)
{
    struct core_exec_request e = {.process = by_content(r) ? grep_of(r) : find_of(r),
                                  .timeout_ms = TIMEOUT_MS,
                                  .max_output_bytes = TOOL_FOUND_BYTES_MAX};

    if (e.process)
        r->exec = core_exec(r->core, r->tenant, r->sandbox, &e, on_end, r);
    else
        result_no_memory(r);
    json_decref(e.process);
}

void tool_search(struct request *r)
{
    target_running(r, search);
}
