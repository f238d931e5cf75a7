/* Resources: a list of sandboxes with the files of one of them, and the contents of a file or a
 * directory. A list is made in the call that asks for it, but for the files of the session's home
 * directory, which its agent is asked for; a read asks first what stands at the path, then for the
 * whole of it, which is bounded. A request's state is the list, or the path. */
#include "mcp/resources.h"

#include "base/arena.h"
#include "base/base64.h"
#include "core/life.h"
#include "core/list.h"
#include "http/json.h"
#include "http/message.h"
#include "mcp/file_call.h"
#include "mcp/schema.h"
#include "mcp/target.h"
#include "mcp/tool.h"

#include <stdio.h>
#include <string.h>

#define SCHEME           "cay://"
#define PAGE             50u
#define ARENA_BYTES      (256u * 1024u)
#define TEMPLATES_TTL_MS 3600000
#define TEXT_BYTES       (8u * TOOL_FILE_MAX)

bool resources_parse(const char *uri, char sandbox[static IDS_SANDBOX_SIZE],
                     char path[static RESOURCES_PATH_SIZE])
{
    size_t n;

    if (strncmp(uri, SCHEME, strlen(SCHEME)) != 0)
        return false;
    uri += strlen(SCHEME);
    n = strcspn(uri, "/");
    if (n >= IDS_SANDBOX_SIZE || uri[n] != '/')
        return false;
    memcpy(sandbox, uri, n);
    sandbox[n] = '\0';
    uri += n;
    return ids_is_sandbox(sandbox) && strpbrk(uri, "?#") == NULL &&
           http_percent_decode(uri, strlen(uri), false, path, RESOURCES_PATH_SIZE) > 0;
}

static json_t *address_of(const char *sandbox, const char *path)
{
    char target[FILE_TARGET_SIZE];

    file_target(path, target);
    return json_sprintf(SCHEME "%s%s", sandbox, strchr(target, '=') + 1);
}

static void no_such(struct request *r, const char *uri, const char *why)
{
    json_t *data = json_pack("{s:o}", "uri", rpc_text(uri, strlen(uri)));
    char text[512];

    (void)snprintf(text, sizeof(text), "Resource not found: %.400s", why);
    request_error(r, 200, RPC_INVALID_PARAMS, text, data);
}

/* -- list -------------------------------------------------------------------------------------- */

static json_t *sandbox_json(const struct sandbox *s)
{
    return json_pack(
        "{s:o, s:s, s:o, s:s}", "uri", address_of(s->id, "/"), "name", s->id, "description",
        json_sprintf("Files of sandbox %s (template %s), which %s", s->id, s->template_id,
                     life_of(s->state)->reachable ? "runs" : "is paused"),
        "mimeType", "inode/directory");
}

/* "<ms>.<id>" of the last one of the page before. False: it is none. */
static bool read_cursor(const char *text, struct sandbox_filter *f,
                        char id[static IDS_SANDBOX_SIZE])
{
    char *end;
    long long ms = strtoll(text, &end, 10);

    if (end == text || *end != '.' || ms <= 0 || !ids_is_sandbox(end + 1))
        return false;
    (void)snprintf(id, IDS_SANDBOX_SIZE, "%s", end + 1);
    f->cursor_ms = ms;
    f->cursor_id = id;
    return true;
}

static json_t *list_page(struct request *r, struct sandbox_filter *f, struct err *e)
{
    struct sandbox_page page;
    struct arena arena;
    json_t *all = json_array(), *o = json_pack("{s:o}", "resources", all);

    arena_init(&arena, ARENA_BYTES);
    if (core_sandbox_list(r->core, f, &arena, &page, e) != ERR_OK) {
        json_decref(o);
        arena_free(&arena);
        return NULL;
    }
    for (size_t i = 0; i < page.count; i++)
        if (target_may_use(r, page.items[i]))
            json_array_append_new(all, sandbox_json(page.items[i]));
    if (page.more && page.count > 0) {
        const struct sandbox *last = page.items[page.count - 1];

        json_object_set_new(o, "nextCursor",
                            json_sprintf("%lld.%s", (long long)last->started_real_ms, last->id));
    }
    arena_free(&arena);
    return o;
}

/* The list under way waits for the files of the session's home directory; r->state is what there
 * is. */
static void free_list(void *state)
{
    json_decref(state);
}

static void answer_list(struct request *r)
{
    json_t *o = r->state;

    r->state = NULL;
    request_result_cached(r, o, 0, true);
}

static void add_file(struct request *r, json_t *all, const json_t *entry)
{
    json_t *e = file_entry(entry);
    const char *path = schema_text(e, "path", ""), *name = strrchr(path, '/');
    bool file = strcmp(schema_text(e, "type", ""), "file") == 0;

    if (file && name)
        json_array_append_new(all, json_pack("{s:o, s:s, s:I}", "uri", address_of(r->sandbox, path),
                                             "name", name + 1, "size",
                                             (json_int_t)schema_integer(e, "size", 0)));
    json_decref(e);
}

static void on_home(void *arg, const struct err *why, int status, const char *body, size_t len)
{
    struct request *r = arg;
    json_t *o = !why && status / 100 == 2 ? json_load_answer(body, len) : NULL;
    const json_t *entries = json_object_get(o, "entries");

    for (size_t i = 0; i < MIN(json_array_size(entries), TOOL_ENTRIES); i++)
        add_file(r, json_object_get(r->state, "resources"), json_array_get(entries, i));
    json_decref(o);
    answer_list(r);
}

void resources_list(struct request *r)
{
    json_t *made = json_pack("{s:s}", MCP_META_MADE, "1");
    struct sandbox_filter f = {
        .tenant = r->tenant, .running = true, .paused = true, .metadata = made, .limit = PAGE};
    const char *cursor = schema_text(r->message.params, "cursor", NULL);
    struct session *session = request_session(r);
    const struct sandbox *own = session ? core_sandbox_find(r->core, r->tenant, session->sandbox)
                                        : NULL;
    char id[IDS_SANDBOX_SIZE];
    struct err e = {0};

    if (cursor && !read_cursor(cursor, &f, id)) {
        request_error(r, 200, RPC_INVALID_PARAMS, "\"cursor\" is none that this server gave", NULL);
        json_decref(made);
        return;
    }
    r->state = list_page(r, &f, &e);
    r->state_free = free_list;
    json_decref(made);
    if (!r->state) {
        request_error(r, 200, RPC_INTERNAL_ERROR, e.text, NULL);
    } else if (own && life_of(own->state)->reachable && !cursor) {
        memcpy(r->sandbox, own->id, sizeof(r->sandbox));
        file_list(r, ".", 1, on_home);
    } else {
        answer_list(r);
    }
}

void resources_templates(struct request *r)
{
    json_t *file = json_pack(
        "{s:s, s:s, s:s, s:s}", "uriTemplate", "cay://{sandbox}/{+path}", "name", "file", "title",
        "File of a sandbox", "description",
        "A file by its absolute path, or a directory, of which the entries are listed");

    request_result_cached(r, json_pack("{s:[o]}", "resourceTemplates", file), TEMPLATES_TTL_MS,
                          false);
}

/* -- read -------------------------------------------------------------------------------------- */

static const char *uri_of(const struct request *r)
{
    return schema_text(r->message.params, "uri", "");
}

static const char *path_of(const struct request *r)
{
    return r->state;
}

static void answer_contents(struct request *r, json_t *content)
{
    json_object_set(content, "uri", json_object_get(r->message.params, "uri"));
    request_result_cached(r, json_pack("{s:[o]}", "contents", content), 0, true);
}

/* Answers for an agent that failed or answered other than 2xx. True: the request was answered. */
static bool failed(struct request *r, const struct err *why, int status)
{
    if (why)
        no_such(r, uri_of(r), why->text);
    else if (status / 100 != 2)
        no_such(r, uri_of(r), "there is no such file, or the sandbox's user may not read it");
    return why || status / 100 != 2;
}

static void answer_bytes(struct request *r, const char *bytes, size_t len)
{
    json_t *text = memchr(bytes, '\0', len) ? NULL : json_stringn(bytes, len);
    CLEANUP_FREE char *blob = text ? NULL : malloc(base64_encoded_len(len) + 1);

    if (text) {
        answer_contents(r, json_pack("{s:s, s:o}", "mimeType", "text/plain", "text", text));
        return;
    }
    if (blob)
        base64_encode(bytes, len, blob);
    answer_contents(r, json_pack("{s:s, s:s}", "mimeType", "application/octet-stream", "blob",
                                 blob ? blob : ""));
}

static void on_file(void *arg, const struct err *why, int status, const char *body, size_t len)
{
    struct request *r = arg;

    if (!why && status == 416)
        answer_bytes(r, "", 0);
    else if (!failed(r, why, status))
        answer_bytes(r, body ? body : "", len);
}

static void on_folder(void *arg, const struct err *why, int status, const char *body, size_t len)
{
    struct request *r = arg;
    const json_t *entries;
    CLEANUP_BUF struct buf b;
    json_t *o;
    int rc = 0;

    buf_init(&b, TEXT_BYTES);
    if (failed(r, why, status))
        return;
    o = json_load_answer(body, len);
    entries = json_object_get(o, "entries");
    for (size_t i = 0; rc == 0 && i < json_array_size(entries); i++) {
        json_t *e = file_entry(json_array_get(entries, i));

        rc = buf_printf(&b, "%s%s\n", schema_text(e, "path", ""),
                        strcmp(schema_text(e, "type", ""), "directory") == 0 ? "/" : "");
        json_decref(e);
    }
    json_decref(o);
    answer_contents(r, json_pack("{s:s, s:o}", "mimeType", "inode/directory", "text",
                                 rpc_text(b.data ? b.data : "", b.len)));
}

static void on_stat(void *arg, const struct err *why, int status, const char *body, size_t len)
{
    struct request *r = arg;
    struct file_stat st;

    if (failed(r, why, status))
        return;
    if (!file_read_stat(body, len, &st))
        no_such(r, uri_of(r), "the sandbox's answer cannot be read");
    else if (st.is_directory)
        file_list(r, path_of(r), 1, on_folder);
    else if (st.size > TOOL_FILE_MAX)
        request_error(r, 200, RPC_INVALID_PARAMS,
                      "The file is longer than 1048576 bytes, the most that a resource may have: "
                      "read it in pieces with the "
                      "tool \"read\"",
                      NULL);
    else
        file_get(r, path_of(r), 0, TOOL_FILE_MAX + 1, on_file);
}

static void begin_read(struct request *r)
{
    file_stat(r, path_of(r), on_stat);
}

/* A sandbox that is paused is resumed for it. */
void resources_read(struct request *r)
{
    const char *uri = uri_of(r);
    char sandbox[IDS_SANDBOX_SIZE], path[RESOURCES_PATH_SIZE];

    if (!json_is_string(json_object_get(r->message.params, "uri"))) {
        request_error(r, 200, RPC_INVALID_PARAMS, "\"uri\" is missing, a text", NULL);
        return;
    }
    if (!resources_parse(uri, sandbox, path) || !target_find(r, sandbox)) {
        no_such(r, uri, "there is no sandbox of that address; addresses are cay://SANDBOX/PATH");
        return;
    }
    r->state = strdup(path);
    r->state_free = free;
    if (!r->state) {
        request_error(r, 503, RPC_INTERNAL_ERROR, "memory is out", NULL);
        return;
    }
    target_named(r, sandbox, begin_read);
}
