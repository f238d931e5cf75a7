/* The tools that read: a file in pieces, and a directory. A read is stat, then one range of the
 * file, whose size the client chooses within a bound; text is cut at a character's end and the
 * next offset is told, images and other bytes go as base64. The request is answered once, from
 * the last callback or the first that failed. */

#include "base/base64.h"
#include "http/json.h"
#include "mcp/file_call.h"
#include "mcp/result.h"
#include "mcp/target.h"
#include "mcp/tool.h"

#include <stdio.h>
#include <string.h>

#define WHAT_BYTES 300u
#define LIST_TEXT  (2u * 1024u * 1024u)

static const char *path_of(const struct request *r)
{
    return schema_text(r->args, "path", ".");
}

static void say_what(const struct request *r, const char *verb, char out[static WHAT_BYTES])
{
    (void)snprintf(out, WHAT_BYTES, "%s %.250s", verb, path_of(r));
}

/* -- read -------------------------------------------------------------------------------------- */

struct reading {
    struct file_stat stat;
    int64_t offset;
    size_t max;
};

/* Text where it is one: a character that was cut is left for the next piece. Length in *len. */
static bool is_text(const char *bytes, size_t *len)
{
    size_t whole = *len > 0 ? json_whole_text(bytes, *len) : 0;
    json_t *text = json_stringn(bytes, whole);

    if (!text || (whole == 0 && *len > 0) || memchr(bytes, '\0', whole)) {
        json_decref(text);
        return *len == 0;
    }
    *len = whole;
    json_decref(text);
    return true;
}

static json_t *base64_text(const char *bytes, size_t len)
{
    CLEANUP_FREE char *text = malloc(base64_encoded_len(len) + 1);

    if (!text)
        return NULL;
    base64_encode(bytes, len, text);
    return json_string(text);
}

static json_t *image_of(const char *bytes, size_t len)
{
    static const struct {
        const char *magic, *type;
        size_t len;
    } known[] = {{"\x89PNG\r\n\x1a\n", "image/png", 8},
                 {"\xff\xd8\xff", "image/jpeg", 3},
                 {"GIF8", "image/gif", 4}};

    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        if (len >= known[i].len && memcmp(bytes, known[i].magic, known[i].len) == 0)
            return json_pack("{s:s, s:o, s:s}", "type", "image", "data", base64_text(bytes, len),
                             "mimeType", known[i].type);
    return NULL;
}

static void answer_piece(struct request *r, const char *bytes, size_t len)
{
    const struct reading *reading = r->state;
    bool text = strcmp(schema_text(r->args, "encoding", "auto"), "auto") == 0 &&
                is_text(bytes, &len);
    int64_t end = reading->offset + (int64_t)len, size = MAX(reading->stat.size, end);
    json_t *content = text ? rpc_text(bytes, len) : base64_text(bytes, len), *image = NULL;
    json_t *o = json_pack("{s:s, s:I, s:I, s:I, s:s, s:o}", "path", path_of(r), "size",
                          (json_int_t)size, "offset", (json_int_t)reading->offset, "bytes",
                          (json_int_t)len, "encoding", text ? "utf-8" : "base64", "content",
                          content);
    CLEANUP_BUF struct buf b;
    int rc;

    if (!o) { /* content is NULL likewise */
        result_no_memory(r);
        return;
    }
    buf_init(&b, 4 * TOOL_TEXT_BYTES_MAX);
    if (end < size)
        json_object_set_new(o, "next_offset", json_integer(end));
    if (!text && reading->offset == 0 && end == size)
        image = image_of(bytes, len);
    if (image)
        rc = buf_printf(&b, "[%lld bytes of an image]", (long long)size);
    else
        rc = text ? buf_append(&b, bytes, len) : buf_append_str(&b, json_string_value(content));
    if (rc == 0 && end < size)
        rc = buf_printf(&b, "\n[bytes %lld to %lld of %lld%s; go on with offset %lld]",
                        (long long)reading->offset, (long long)end, (long long)size,
                        text ? "" : ", in base64", (long long)end);
    if (rc < 0) {
        json_decref(o);
        json_decref(image);
        result_no_memory(r);
        return;
    }
    result_done_with(r, image, o, b.data ? b.data : "", b.len);
}

static void on_piece(void *arg, const struct err *why, int status, const char *body, size_t len)
{
    struct request *r = arg;
    char what[WHAT_BYTES];

    say_what(r, "reading", what);
    if (!why && status == 416)
        answer_piece(r, "", 0);
    else if (!result_agent_failed(r, what, why, status, body, len))
        answer_piece(r, body ? body : "", len);
}

static void on_stat(void *arg, const struct err *why, int status, const char *body, size_t len)
{
    struct request *r = arg;
    struct reading *reading = r->state;
    char what[WHAT_BYTES];

    say_what(r, "reading", what);
    if (result_agent_failed(r, what, why, status, body, len))
        return;
    if (!file_read_stat(body, len, &reading->stat))
        result_fail(r, "%s: the sandbox's answer cannot be read", what);
    else if (reading->stat.is_directory)
        result_fail(r, "%s: it is a directory; use \"list\"", what);
    else
        file_get(r, path_of(r), reading->offset, reading->max, on_piece);
}

static void begin_read(struct request *r)
{
    file_stat(r, path_of(r), on_stat);
}

void tool_read(struct request *r)
{
    struct reading *reading = calloc(1, sizeof(*reading));

    if (!reading) {
        result_no_memory(r);
        return;
    }
    r->state = reading;
    r->state_free = free;
    reading->offset = schema_integer(r->args, "offset", 0);
    reading->max = (size_t)schema_integer(r->args, "max_bytes", TOOL_TEXT_BYTES);
    target_running(r, begin_read);
}

/* -- list -------------------------------------------------------------------------------------- */

static int put_entry(struct buf *b, const json_t *entry)
{
    const char *type = schema_text(entry, "type", "");

    return buf_printf(b, "%s%s\t%lld\n", schema_text(entry, "path", ""),
                      strcmp(type, "directory") == 0 ? "/"
                      : strcmp(type, "symlink") == 0 ? "@"
                                                     : "",
                      (long long)schema_integer(entry, "size", 0));
}

static void answer_entries(struct request *r, const json_t *all)
{
    size_t total = json_array_size(all), at = (size_t)schema_integer(r->args, "offset", 0);
    size_t end = MIN(at + (size_t)schema_integer(r->args, "limit", TOOL_ENTRIES), total);
    json_t *entries = json_array(), *o;
    CLEANUP_BUF struct buf b;
    int rc = 0;

    buf_init(&b, LIST_TEXT);
    for (size_t i = at; rc == 0 && i < end; i++) {
        json_t *entry = file_entry(json_array_get(all, i));

        rc = entry ? put_entry(&b, entry) : -1;
        json_array_append_new(entries, entry);
    }
    o = json_pack("{s:s, s:o, s:I}", "path", path_of(r), "entries", entries, "total",
                  (json_int_t)total);
    if (end < total) {
        json_object_set_new(o, "next_offset", json_integer((json_int_t)end));
        rc = rc == 0 ? buf_printf(&b, "[%zu of %zu; go on with offset %zu]\n", end - MIN(at, end),
                                  total, end)
                     : rc;
    }
    if (rc == 0 && b.len == 0)
        rc = buf_append_str(&b, "[nothing]\n");
    if (rc == 0 && o) {
        result_done(r, o, b.data, b.len);
        return;
    }
    json_decref(o);
    result_no_memory(r);
}

static void on_list(void *arg, const struct err *why, int status, const char *body, size_t len)
{
    struct request *r = arg;
    char what[WHAT_BYTES];
    json_t *o;

    say_what(r, "listing", what);
    if (why && why->code == ERR_TOO_LARGE) {
        result_fail(r,
                    "%s: there are too many entries for one answer; take a smaller depth, or a "
                    "directory below",
                    what);
        return;
    }
    if (result_agent_failed(r, what, why, status, body, len))
        return;
    o = json_load_answer(body, len);
    if (json_is_object(o))
        answer_entries(r, json_object_get(o, "entries"));
    else
        result_fail(r, "%s: the sandbox's answer cannot be read", what);
    json_decref(o);
}

static void begin_list(struct request *r)
{
    file_list(r, path_of(r), schema_integer(r->args, "depth", 1), on_list);
}

void tool_list_folder(struct request *r)
{
    target_running(r, begin_list);
}
