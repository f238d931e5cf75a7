/* Contents of files to the client, as they come from the agent: one file, or many as parts of one
 * answer.
 *
 * struct download is the call's state. Files are fetched one at a time; the agent's bytes go to the
 * client at once (on_data), and while the client is behind the agent is not read from, nor asked
 * for the next file (drained). For many files the answer is begun before the first is asked for, so
 * that each file's error is a part of it. Called by the routes alone. */
#include "toolbox/files.h"

#include "base/buf.h"
#include "http/client.h"
#include "http/json.h"
#include "http/server.h"
#include "toolbox/agent.h"
#include "toolbox/call.h"
#include "toolbox/reply.h"
#include "toolbox/run.h"
#include "toolbox/toolbox.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define REFUSAL_MAX   65536u
#define PATHS_MAX     4096u
#define BOUNDARY_SIZE (TOOLBOX_TOKEN_SIZE + 8)

struct download {
    struct toolbox_call *call;
    struct http_client *client; /* of the file under way; NULL: none */
    json_t *paths;              /* of many; borrowed from the call's body; NULL: there is one */
    size_t next;
    char path[TOOLBOX_PATH_SIZE];
    char boundary[BOUNDARY_SIZE];
    bool begun; /* the head of the file under way was good */
    bool waits; /* for the client, before the next file of many is asked for */
};

static void download_free(void *state)
{
    free(state);
}

static struct download *download_new(struct toolbox_call *c)
{
    struct download *d = calloc(1, sizeof(*d));

    if (!d) {
        toolbox_fail(c, 503, NULL, "memory is out");
        return NULL;
    }
    d->call = c;
    c->state = d;
    c->state_free = download_free;
    return d;
}

char *toolbox_files_target(const char *path)
{
    static const char hex[] = "0123456789ABCDEF";
    static const char front[] = "/files?username=" TOOLBOX_USER "&path=";
    char *out = malloc(sizeof(front) + 3 * strlen(path)), *at = out;

    if (!out)
        return NULL;
    memcpy(at, front, sizeof(front) - 1);
    at += sizeof(front) - 1;
    for (const char *p = path; *p; p++) {
        *at++ = '%';
        *at++ = hex[(unsigned char)*p >> 4];
        *at++ = hex[(unsigned char)*p & 15];
    }
    *at = '\0';
    return out;
}

/* -- bytes on their way ------------------------------------------------------------------------ */

static void on_begun(void *arg, struct http_client *client)
{
    struct download *d = arg;

    d->client = client;
    d->begun = false;
}

static void next_part(struct download *d);

/* The client has taken what waited. */
static void drained(struct http_exchange *x UNUSED, void *data)
{
    struct toolbox_call *c = data;
    struct download *d = c->state;

    if (d->client)
        http_client_resume(d->client);
    if (!d->waits)
        return;
    d->waits = false;
    next_part(d);
}

static bool on_data(void *arg, const char *data, size_t len)
{
    struct download *d = arg;

    if (!d->call->x || !d->begun) /* another status than 200: its body is no file's contents */
        return false;
    if (http_response_write(d->call->x, data, len) == 1 && d->client)
        http_client_pause(d->client);
    return true;
}

static void fetch(struct download *d, void (*on_head)(void *arg, const struct http_head *head),
                  void (*done)(void *arg, const struct http_head *head, const char *body,
                               size_t len, const struct err *why))
{
    struct toolbox_agent_request r = {.method = "GET",
                                      .target = toolbox_files_target(d->path),
                                      .max_response_bytes = REFUSAL_MAX,
                                      .on_begun = on_begun,
                                      .on_head = on_head,
                                      .on_data = on_data,
                                      .done = done,
                                      .arg = d};

    toolbox_agent(d->call, &r);
}

/* Half of it has gone: the client must see that it is not whole. */
static void cut(struct download *d)
{
    if (d->call->x)
        http_exchange_abort(d->call->x);
}

/* -- one --------------------------------------------------------------------------------------- */

static void one_begins(void *arg, const struct http_head *head)
{
    struct download *d = arg;
    const char *base = strrchr(d->path, '/');
    char disposition[2 * 1024];
    struct http_header headers[] = {{"Content-Type", "application/octet-stream"},
                                    {"Content-Disposition", disposition},
                                    {"Access-Control-Allow-Origin", "*"}};
    size_t n = 0;

    if (head->status != 200 || !d->call->x)
        return;
    n = (size_t)snprintf(disposition, sizeof(disposition), "attachment; filename*=utf-8''");
    for (const char *p = base ? base + 1 : d->path; *p && n + 4 < sizeof(disposition); p++)
        n += (size_t)snprintf(disposition + n, 4, "%%%02X", (unsigned char)*p);
    d->begun = d->call->answered = true;
    http_response_begin(d->call->x, 200, headers, ARRAY_SIZE(headers),
                        head->framing == HTTP_BODY_LENGTH ? (int64_t)head->content_length : -1);
    http_response_on_drain(d->call->x, drained);
}

static void one_ends(void *arg, const struct http_head *head, const char *body, size_t len,
                     const struct err *why)
{
    struct download *d = arg;

    d->client = NULL;
    if (!d->begun)
        toolbox_fail_file(d->call, head, body, len, why, d->path);
    else if (why)
        cut(d);
    else if (d->call->x)
        http_response_end(d->call->x);
}

void toolbox_files_download(struct toolbox_call *c)
{
    struct download *d = download_new(c);

    if (d && toolbox_query_path(c, "path", d->path))
        fetch(d, one_begins, one_ends);
}

/* -- many -------------------------------------------------------------------------------------- */

/* A name by which the client finds what it asked for: byte for byte, in both forms. */
static int put_names(struct buf *b, const char *name, const char *path)
{
    int rc = buf_printf(b, "Content-Disposition: form-data; name=\"%s\"; filename=\"", name);

    for (const char *p = path; *p && rc == 0; p++) {
        if (*p == '"' || *p == '\\')
            rc = buf_append(b, "\\", 1);
        if (rc == 0)
            rc = buf_append(b, (unsigned char)*p < ' ' || *p == 0x7f ? "_" : p, 1);
    }
    if (rc == 0)
        rc = buf_append_str(b, "\"; filename*=utf-8''");
    for (const char *p = path; *p && rc == 0; p++)
        rc = strchr("._-", *p) || (*p >= '0' && *p <= '9') || ((*p | 32) >= 'a' && (*p | 32) <= 'z')
                 ? buf_append(b, p, 1)
                 : buf_printf(b, "%%%02X", (unsigned char)*p);
    return rc == 0 ? buf_append_str(b, "\r\n") : rc;
}

static bool put_part_head(struct download *d, const char *name, const char *type, int64_t length)
{
    CLEANUP_BUF struct buf b = {0};
    int rc;

    buf_init(&b, 8 * TOOLBOX_PATH_SIZE);
    rc = buf_printf(&b, "--%s\r\n", d->boundary);
    if (rc == 0)
        rc = put_names(&b, name, d->path);
    if (rc == 0)
        rc = buf_printf(&b, "Content-Type: %s\r\n", type);
    if (rc == 0 && length >= 0)
        rc = buf_printf(&b, "Content-Length: %lld\r\n", (long long)length);
    if (rc == 0)
        rc = buf_append_str(&b, "\r\n");
    if (rc == 0)
        http_response_write(d->call->x, b.data, b.len);
    return rc == 0;
}

static void part_begins(void *arg, const struct http_head *head)
{
    struct download *d = arg;

    if (head->status != 200 || !d->call->x)
        return;
    d->begun = put_part_head(d, "file", "application/octet-stream",
                             head->framing == HTTP_BODY_LENGTH ? (int64_t)head->content_length
                                                               : -1);
    if (!d->begun)
        cut(d);
}

static void put_error(struct download *d, const struct http_head *head, const char *body,
                      size_t len, const struct err *why)
{
    char message[1024];
    const char *code = NULL;
    int status = why ? 503 : 500;
    json_t *error;
    char *text;

    if (why)
        snprintf(message, sizeof(message), "%s", why->text);
    else
        status = toolbox_file_error(head->status, body, len, d->path, &code, message,
                                    sizeof(message));
    error = toolbox_error_json(d->call, status, code, message);
    text = json_text(error, JSON_COMPACT);
    json_decref(error);
    if (text && put_part_head(d, "error", "application/json", (int64_t)strlen(text)))
        http_response_write(d->call->x, text, strlen(text));
    else
        cut(d);
    free(text);
}

static void part_ends(void *arg, const struct http_head *head, const char *body, size_t len,
                      const struct err *why)
{
    struct download *d = arg;

    d->client = NULL;
    if (!d->call->x)
        return;
    if (d->begun && why) {
        cut(d);
        return;
    }
    if (!d->begun)
        put_error(d, head, body, len, why);
    if (!d->call->x)
        return;
    d->waits = http_response_write(d->call->x, "\r\n", 2) == 1;
    if (!d->waits)
        next_part(d);
}

static void next_part(struct download *d)
{
    char end[BOUNDARY_SIZE + 8];

    if (d->next < json_array_size(d->paths)) {
        snprintf(d->path, sizeof(d->path), "%s",
                 json_string_value(json_array_get(d->paths, d->next++)));
        d->begun = false;
        fetch(d, part_begins, part_ends);
        return;
    }
    snprintf(end, sizeof(end), "--%s--\r\n", d->boundary);
    http_response_write(d->call->x, end, strlen(end));
    http_response_end(d->call->x);
}

static bool check_paths(struct toolbox_call *c, const json_t *paths)
{
    size_t n = json_array_size(paths);

    if (!json_is_array(paths) || n == 0 || n > PATHS_MAX) {
        toolbox_fail(c, 400, "BAD_REQUEST",
                     "request body must be {\"paths\": [...]} of 1 to %u paths", PATHS_MAX);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *path = json_array_get(paths, i);

        if (json_string_length(path) == 0 || json_string_length(path) >= TOOLBOX_PATH_SIZE) {
            toolbox_fail(c, 400, "BAD_REQUEST", "paths[%zu] must be a path of 1 to %u bytes", i,
                         TOOLBOX_PATH_SIZE - 1);
            return false;
        }
    }
    return true;
}

void toolbox_files_bulk_download(struct toolbox_call *c)
{
    struct download *d = download_new(c);
    char type[BOUNDARY_SIZE + 64];
    const struct http_header headers[] = {{"Content-Type", type},
                                          {"Access-Control-Allow-Origin", "*"}};

    if (!d || !check_paths(c, json_object_get(c->body, "paths")))
        return;
    d->paths = json_object_get(c->body, "paths");
    memcpy(d->boundary, "cay", 3);
    toolbox_token(d->boundary + 3);
    snprintf(type, sizeof(type), "multipart/form-data; boundary=%s", d->boundary);
    c->answered = true;
    http_response_begin(c->x, 200, headers, ARRAY_SIZE(headers), -1);
    http_response_on_drain(c->x, drained);
    next_part(d);
}
