/* Contents of files from the client: its form is read as it comes, and written anew as the agent's,
 * so that nothing of a file is held. */
#include "toolbox/files.h"

#include "base/buf.h"
#include "base/share.h"
#include "http/client.h"
#include "http/json.h"
#include "http/message.h"
#include "http/multipart.h"
#include "http/server.h"
#include "toolbox/agent.h"
#include "toolbox/call.h"
#include "toolbox/reply.h"
#include "toolbox/run.h"
#include "toolbox/toolbox.h"
#include "toolbox/toolbox_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define PARTS_MAX     32768u /* a path and a file for each that the agent takes in one request */
#define ANSWER_MAX    (8u * 1024u * 1024u)
#define REFUSED_MAX   (64u * 1024u * 1024u) /* that a refused client may go on sending */
#define BOUNDARY_SIZE (TOOLBOX_TOKEN_SIZE + 8)

/* Of the paths that come ahead of their files. */
#define PATHS_MAX_BYTES (1024u * 1024u)
#define PART_NAME_SIZE  24

struct upload {
    struct toolbox_call *call;
    struct http_client *client; /* NULL: not connected yet, or its answer has come */
    struct multipart *form;     /* NULL: the body is the file */
    bool bulk;
    bool entry;            /* the answer is what the file is now */
    bool in_path, in_file; /* which part is being read */
    bool reading, body_ended;
    bool done; /* the agent has answered */
    bool busy; /* `why` is the server's */
    size_t files;
    size_t forgotten;  /* bytes that came after the agent's answer */
    int status;        /* of that answer */
    struct buf said;   /* its body */
    struct err broken; /* or why there was none */
    json_t *paths;     /* of the file parts, by the begin of their names: "files[0]" */
    size_t paths_bytes;
    char part[PART_NAME_SIZE]; /* the begin of this part's name */
    struct buf wanted;         /* the path that is being read */
    char path[TOOLBOX_PATH_SIZE];
    char boundary[BOUNDARY_SIZE];
    char why[160]; /* of the form itself; "" while it is good */
};

static void upload_free(void *state)
{
    struct upload *u = state;

    multipart_free(u->form);
    buf_free(&u->wanted);
    json_decref(u->paths);
    buf_free(&u->said);
    free(u);
}

/* -- to the agent ------------------------------------------------------------------------------ */

static void give(struct upload *u, const void *data, size_t len)
{
    if (!u->client || len == 0)
        return;
    if (http_client_write(u->client, data, len) == 1 && u->call->x && !u->body_ended)
        http_body_pause(u->call->x);
}

static int put_file_head(struct upload *u, const char *path)
{
    CLEANUP_BUF struct buf b = {0};
    int rc;

    buf_init(&b, 4 * TOOLBOX_PATH_SIZE);
    rc = buf_printf(&b,
                    "--%s\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"; "
                    "filename*=utf-8''",
                    u->boundary);
    for (const char *p = path; *p && rc == 0; p++)
        rc = buf_printf(&b, "%%%02X", (unsigned char)*p);
    if (rc == 0)
        rc = buf_append_str(&b, "\r\nContent-Type: application/octet-stream\r\n\r\n");
    if (rc == 0)
        give(u, b.data, b.len);
    return rc;
}

/* -- the client's form ------------------------------------------------------------------------- */

static int refuse(struct upload *u, const char *why)
{
    if (!u->why[0])
        snprintf(u->why, sizeof(u->why), "%s", why);
    return -ECANCELED;
}

/* "files[0].path", "files[0].file": the text before the end into part. */
static bool ends_with(const char *name, const char *end, char part[static PART_NAME_SIZE])
{
    size_t n = strlen(name), m = strlen(end);

    if (strncmp(name, "files[", 6) != 0 || n <= m || n - m >= PART_NAME_SIZE ||
        strcmp(name + n - m, end) != 0)
        return false;
    memcpy(part, name, n - m);
    part[n - m] = '\0';
    return true;
}

static int on_part(void *arg, const struct multipart_part *part)
{
    struct upload *u = arg;
    const char *path = u->path;

    u->in_path = u->bulk && ends_with(part->name, "].path", u->part);
    u->in_file = u->bulk ? ends_with(part->name, "].file", u->part)
                         : strcmp(part->name, "file") == 0;
    if (u->in_path)
        buf_clear(&u->wanted);
    if (!u->in_file)
        return 0;
    if (u->bulk)
        path = json_string_value(json_object_get(u->paths, u->part));
    if (u->bulk && !path)
        path = part->filename;
    if (!path || !path[0])
        return refuse(u, "a file has no path");
    if (strlen(path) >= TOOLBOX_PATH_SIZE)
        return refuse(u, "a file's path is too long");
    u->files++;
    return put_file_head(u, path);
}

static int on_part_data(void *arg, const char *data, size_t len)
{
    struct upload *u = arg;

    if (u->in_path && memchr(data, '\0', len)) /* the name before it is another file */
        return refuse(u, "a file's path has a NUL");
    if (u->in_path && buf_append(&u->wanted, data, len) < 0)
        return refuse(u, "a file's path is too long");
    if (u->in_file)
        give(u, data, len);
    return 0;
}

/* Paths beyond what is small are held as a request's body is, and take such a place. */
static bool may_hold_paths(struct upload *u)
{
    struct toolbox_call *c = u->call;

    if (u->paths_bytes > TOOLBOX_SMALL_BYTES && !c->body_share)
        c->body_share = share_take(c->toolbox->bodies, c->tenant, c->id);
    return u->paths_bytes <= TOOLBOX_SMALL_BYTES || c->body_share;
}

static int on_part_end(void *arg)
{
    struct upload *u = arg;

    if (u->in_file)
        give(u, "\r\n", 2);
    u->paths_bytes += u->in_path ? u->wanted.len : 0;
    if (u->paths_bytes > PATHS_MAX_BYTES)
        return refuse(u, "the files' paths are too long together");
    u->busy = !may_hold_paths(u);
    if (u->busy)
        return refuse(u, "the server holds as many paths of this sandbox's uploads as it may; try "
                         "again, or with fewer files");
    if (u->in_path &&
        json_object_set_new(u->paths, u->part,
                            json_stringn(u->wanted.len ? u->wanted.data : "", u->wanted.len)) < 0) {
        u->busy = json_was_cut();
        return refuse(u, u->busy ? "memory is out" : "a file's path is not UTF-8");
    }
    u->in_path = u->in_file = false;
    return 0;
}

/* Ends the agent's call without its closing boundary, which it takes as a failure. */
static void take(struct upload *u, const char *data, size_t len)
{
    int rc;

    if (u->why[0])
        return;
    if (!u->form) {
        give(u, data, len);
        return;
    }
    rc = multipart_feed(u->form, data, len);
    if (rc == 0)
        return;
    refuse(u, rc == -EMSGSIZE ? "a part's head or the number of parts is over its limit"
                              : "it is not well-formed multipart/form-data");
}

/* -- the answer -------------------------------------------------------------------------------- */

static void reply_bulk(struct upload *u, const json_t *entries)
{
    json_t *files = json_array(), *entry;
    size_t i;

    json_array_foreach (entries, i, entry) {
        const json_t *path = json_object_get(entry, "path");

        json_array_append_new(
            files,
            json_pack("{s:s}", "path", json_string_value(path) ? json_string_value(path) : ""));
    }
    toolbox_reply_json(u->call, 200, json_pack("{s:o}", "files", files));
}

/* The agent's own words of it: a list of one. */
static void reply_entry(struct upload *u, const json_t *entries)
{
    const json_t *e = json_array_get(entries, 0);
    const char *name = json_string_value(json_object_get(e, "name"));
    const char *path = json_string_value(json_object_get(e, "path"));
    const char *type = json_string_value(json_object_get(e, "type"));

    toolbox_reply_json(u->call, 200,
                       json_pack("{s:s, s:s, s:s}", "name", name ? name : "", "path",
                                 path ? path : u->path, "type", type ? type : "file"));
}

static void reply_good(struct upload *u, const char *body, size_t len)
{
    json_t *entries = u->bulk || u->entry ? json_load_answer(body, len) : NULL;

    if (u->bulk)
        reply_bulk(u, entries);
    else if (u->entry)
        reply_entry(u, entries);
    else
        toolbox_reply_empty(u->call, 200);
    json_decref(entries);
}

/* The file that an error of the agent's is about: of several files it is not known. */
static const char *named(const struct upload *u)
{
    if (!u->bulk)
        return u->path;
    if (json_object_size(u->paths) != 1)
        return "one of the files";
    return json_string_value(json_object_iter_value(json_object_iter(u->paths)));
}

static void answer(struct upload *u)
{
    const char *body = u->said.len ? u->said.data : "";
    size_t len = u->said.len;
    int status = u->status;

    if (u->why[0]) {
        toolbox_fail(u->call, u->busy ? 503 : 400, NULL, "%s%s",
                     u->busy ? "" : "invalid request body: ", u->why);
    } else if (u->broken.code != ERR_OK) {
        toolbox_fail_err(u->call, &u->broken);
    } else if (status != 200) {
        char message[1024];
        const char *code = NULL;

        status = toolbox_file_error(status, body, len, named(u), &code, message, sizeof(message));
        if (u->bulk) {
            json_t *error = toolbox_error_json(u->call, 400, toolbox_whole_code(code), message);

            json_object_set_new(error, "errors", json_pack("[s]", message));
            json_object_set_new(error, "files", json_array());
            toolbox_reply_json(u->call, 400, error);
        } else {
            toolbox_fail(u->call, status, toolbox_whole_code(code), "%s", message);
        }
    } else {
        reply_good(u, body, len);
    }
}

static void on_done(void *arg, const struct http_head *head, const char *body, size_t len,
                    const struct err *why)
{
    struct upload *u = arg;

    u->client = NULL;
    u->done = true;
    if (why)
        u->broken = *why;
    else if (buf_append(&u->said, body, len) == 0)
        u->status = head->status;
    else
        u->status = 503;
    /* The rest is read and forgotten first: clients send all before they read. */
    if (u->call->x && u->reading && !u->body_ended)
        http_body_resume(u->call->x);
    else
        answer(u);
}

/* -- the client's bytes ------------------------------------------------------------------------ */

static void body_data(struct http_exchange *x, const char *data, size_t len)
{
    struct toolbox_call *c = http_exchange_get(x);

    struct upload *u = c->state;

    if (u->done) {
        u->forgotten += len;
        if (u->forgotten > REFUSED_MAX)
            answer(u);
    } else {
        take(u, data, len);
    }
}

static void body_end(struct http_exchange *x)
{
    struct toolbox_call *c = http_exchange_get(x);
    struct upload *u = c->state;
    char end[BOUNDARY_SIZE + 8];

    u->body_ended = true;
    if (u->form && !u->why[0] && !multipart_complete(u->form))
        refuse(u, "the closing boundary is missing");
    if (u->form && !u->why[0] && u->files == 0)
        refuse(u, "there is no file in it");
    if (u->done || !u->client) {
        answer(u);
        return;
    }
    if (u->why[0]) {
        toolbox_agent_cancel(c);
        return;
    }
    if (u->form) {
        snprintf(end, sizeof(end), "--%s--\r\n", u->boundary);
        http_client_write(u->client, end, strlen(end));
    }
    http_client_end_body(u->client);
}

static void on_begun(void *arg, struct http_client *client)
{
    struct upload *u = arg;

    u->client = client;
    u->reading = true;
    http_body_stream(u->call->x, body_data, body_end);
}

static void on_drain(void *arg)
{
    struct upload *u = arg;

    if (u->call->x && !u->body_ended && u->client) {
        http_client_timeout(u->client, TOOLBOX_TREE_MS);
        http_body_resume(u->call->x);
    }
}

/* -- the request ------------------------------------------------------------------------------- */

static void begin(struct upload *u, const char *target, const char *type)
{
    struct toolbox_agent_request r = {.method = "POST",
                                      .target = strdup(target),
                                      .type = type,
                                      .body_streams = true,
                                      .max_response_bytes = ANSWER_MAX,
                                      .head_timeout_ms = TOOLBOX_TREE_MS,
                                      .timeout_ms = u->call->toolbox->config.agent_timeout_ms,
                                      .on_begun = on_begun,
                                      .on_drain = on_drain,
                                      .done = on_done,
                                      .arg = u};

    toolbox_agent(u->call, &r);
}

static struct upload *upload_new(struct toolbox_call *c, bool bulk)
{
    struct upload *u = calloc(1, sizeof(*u));

    if (!u) {
        toolbox_fail(c, 503, NULL, "memory is out");
        return NULL;
    }
    u->call = c;
    u->bulk = bulk;
    buf_init(&u->wanted, TOOLBOX_PATH_SIZE);
    buf_init(&u->said, ANSWER_MAX);
    u->paths = json_object();
    memcpy(u->boundary, "cay", 3);
    toolbox_token(u->boundary + 3);
    c->state = u;
    c->state_free = upload_free;
    return u;
}

static void take_form(struct upload *u)
{
    static const struct multipart_callbacks callbacks = {on_part, on_part_data, on_part_end};
    const char *type = http_head_get(http_exchange_head(u->call->x), "Content-Type");
    char *ours = arena_printf(http_exchange_arena(u->call->x), "multipart/form-data; boundary=%s",
                              u->boundary);
    int rc = multipart_new(type ? type : "", PARTS_MAX, &callbacks, u, &u->form);

    if (rc < 0 || !ours)
        toolbox_fail(u->call, rc == -EINVAL ? 400 : 503, "INVALID_REQUEST_BODY",
                     rc == -EINVAL ? "the body must be multipart/form-data with a boundary"
                                   : "memory is out");
    else
        begin(u, "/files?username=" TOOLBOX_USER, ours);
}

void toolbox_files_bulk_upload(struct toolbox_call *c)
{
    struct upload *u = upload_new(c, true);

    if (u)
        take_form(u);
}

/* A form with a part "file", or, of newer clients, the file itself. */
static void upload_one(struct toolbox_call *c, bool entry)
{
    const char *type = http_head_get(http_exchange_head(c->x), "Content-Type");
    struct upload *u = upload_new(c, false);
    CLEANUP_FREE char *target = NULL;

    if (!u || !toolbox_query_path(c, "path", u->path))
        return;
    u->entry = entry;
    if (type && strncasecmp(type, "multipart/", 10) == 0) {
        take_form(u);
        return;
    }
    target = toolbox_files_target(u->path);
    if (target)
        begin(u, target, "application/octet-stream");
    else
        toolbox_fail(c, 503, NULL, "memory is out");
}

void toolbox_files_upload(struct toolbox_call *c)
{
    upload_one(c, false);
}

void toolbox_files_upload_v2(struct toolbox_call *c)
{
    upload_one(c, true);
}
