/* The tools that write: a file as a whole, and a replaced text in a file. An edit is three calls
 * of the agent, one after the other: stat (size and kind), read, write; between read and write
 * another program may change the file, and its change is lost, as with any editor. The contents to
 * write are the request's state and freed with it; the request is answered once, from the last
 * callback or the first that failed. */

#include "base/base64.h"
#include "mcp/file_call.h"
#include "mcp/result.h"
#include "mcp/target.h"
#include "mcp/tool.h"

#include <stdio.h>
#include <string.h>

#define WHAT_BYTES 300u

static const char *path_of(const struct request *r)
{
    return schema_text(r->args, "path", ".");
}

static void say_what(const struct request *r, const char *verb, char out[static WHAT_BYTES])
{
    (void)snprintf(out, WHAT_BYTES, "%s %.250s", verb, path_of(r));
}

/* The contents while they are written; of an edit, the number of replacements. */
struct writing {
    char *bytes;
    size_t len;
    int64_t replaced;
};

static void free_writing(void *state)
{
    struct writing *w = state;

    free(w->bytes);
    free(w);
}

static bool begin(struct request *r)
{
    r->state = calloc(1, sizeof(struct writing));
    if (!r->state) {
        result_no_memory(r);
        return false;
    }
    r->state_free = free_writing;
    return true;
}

/* -- write ------------------------------------------------------------------------------------- */

static void on_written(void *arg, const struct err *why, int status, const char *body, size_t len)
{
    struct request *r = arg;
    struct writing *w = r->state;
    char what[WHAT_BYTES];
    int n;

    say_what(r, "writing", what);
    if (result_agent_failed(r, what, why, status, body, len))
        return;
    n = snprintf(what, sizeof(what), "%.200s has %zu bytes.", path_of(r), w->len);
    result_done(r, json_pack("{s:s, s:I}", "path", path_of(r), "size", (json_int_t)w->len), what,
                (size_t)n);
}

static void write_it(struct request *r)
{
    struct writing *w = r->state;

    file_put(r, path_of(r), TAKE_PTR(w->bytes), w->len, on_written);
}

void tool_write(struct request *r)
{
    const json_t *content = json_object_get(r->args, "content");
    bool base64 = strcmp(schema_text(r->args, "encoding", "utf-8"), "base64") == 0;
    size_t n = json_string_length(content);
    struct writing *w;
    ssize_t got = (ssize_t)n;

    if (!begin(r))
        return;
    w = r->state;
    w->bytes = malloc(n + 4);
    if (!w->bytes) {
        result_no_memory(r);
        return;
    }
    if (base64)
        got = base64_decode(json_string_value(content), n, w->bytes);
    else
        memcpy(w->bytes, json_string_value(content), n);
    if (got < 0) {
        result_fail(r, "\"content\" is not base64, which \"encoding\" says it is");
        return;
    }
    w->len = (size_t)got;
    w->bytes[got] = '\0';
    target_running(r, write_it);
}

/* -- edit -------------------------------------------------------------------------------------- */

static void on_edited(void *arg, const struct err *why, int status, const char *body, size_t len)
{
    struct request *r = arg;
    struct writing *w = r->state;
    char what[WHAT_BYTES];
    int n;

    say_what(r, "editing", what);
    if (result_agent_failed(r, what, why, status, body, len))
        return;
    n = snprintf(what, sizeof(what), "%.200s: replaced %lld time%s, %zu bytes now.", path_of(r),
                 (long long)w->replaced, w->replaced == 1 ? "" : "s", w->len);
    result_done(r,
                json_pack("{s:s, s:I, s:I}", "path", path_of(r), "replaced",
                          (json_int_t)w->replaced, "size", (json_int_t)w->len),
                what, (size_t)n);
}

static int64_t count_of(const char *text, size_t len, const char *old, size_t n)
{
    const char *end = text + len;
    int64_t count = 0;

    while ((text = memmem(text, (size_t)(end - text), old, n))) {
        text += n;
        count++;
    }
    return count;
}

/* Into w: text with each old in it replaced. False: memory is out. */
static bool replace(struct writing *w, const char *text, size_t len, const json_t *old,
                    const json_t *new)
{
    size_t old_len = json_string_length(old), new_len = json_string_length(new);
    const char *end = text + len;
    char *out;

    w->len = len - (size_t)w->replaced * old_len + (size_t)w->replaced * new_len;
    w->bytes = out = malloc(w->len + 1);
    if (!out)
        return false;
    out[w->len] = '\0';
    for (;;) {
        const char *at = memmem(text, (size_t)(end - text), json_string_value(old), old_len);
        size_t before = (size_t)((at ? at : end) - text);

        memcpy(out, text, before);
        if (!at)
            return true;
        memcpy(out + before, json_string_value(new), new_len);
        out += before + new_len;
        text = at + old_len;
    }
}

static void edit_text(struct request *r, const char *text, size_t len)
{
    const json_t *old = json_object_get(r->args, "old"), *new = json_object_get(r->args, "new");
    struct writing *w = r->state;

    w->replaced = count_of(text, len, json_string_value(old), json_string_length(old));
    if (w->replaced == 0)
        result_fail(r,
                    "%.250s: \"old\" does not stand in it; read the file and give the text "
                    "exactly, with its spaces "
                    "and line ends",
                    path_of(r));
    else if (w->replaced > 1 && !schema_boolean(r->args, "all", false))
        result_fail(r,
                    "%.250s: \"old\" stands in it %lld times; give more of what is around it, or "
                    "set \"all\"",
                    path_of(r), (long long)w->replaced);
    else if ((uint64_t)w->replaced * json_string_length(new) > TOOL_FILE_MAX)
        result_fail(r,
                    "%.250s: it would be longer than %u bytes, the most that an edited file may "
                    "have; use \"run\"",
                    path_of(r), TOOL_FILE_MAX);
    else if (!replace(w, text, len, old, new))
        result_no_memory(r);
    else
        file_put(r, path_of(r), TAKE_PTR(w->bytes), w->len, on_edited);
}

static void on_read(void *arg, const struct err *why, int status, const char *body, size_t len)
{
    struct request *r = arg;
    char what[WHAT_BYTES];

    say_what(r, "editing", what);
    if (!why && status == 416) /* it is empty */
        edit_text(r, "", 0);
    else if (!result_agent_failed(r, what, why, status, body, len))
        edit_text(r, body ? body : "", len);
}

static void on_stat(void *arg, const struct err *why, int status, const char *body, size_t len)
{
    struct request *r = arg;
    struct file_stat st;
    char what[WHAT_BYTES];

    say_what(r, "editing", what);
    if (result_agent_failed(r, what, why, status, body, len))
        return;
    if (!file_read_stat(body, len, &st) || !st.is_file)
        result_fail(r, "%s: it is no file", what);
    else if (st.size > TOOL_FILE_MAX)
        result_fail(r,
                    "%s: it has %lld bytes, and %u is the most that can be edited; use \"run\", "
                    "for example with sed",
                    what, (long long)st.size, TOOL_FILE_MAX);
    else
        file_get(r, path_of(r), 0, TOOL_FILE_MAX + 1, on_read);
}

static void begin_edit(struct request *r)
{
    file_stat(r, path_of(r), on_stat);
}

void tool_edit(struct request *r)
{
    if (json_string_length(json_object_get(r->args, "old")) == 0) {
        result_fail(
            r, "\"old\" is empty: give the text to replace; \"write\" writes a file as a whole");
        return;
    }
    if (begin(r))
        target_running(r, begin_edit);
}
