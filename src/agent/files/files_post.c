/* POST /files: uploads, as multipart/form-data or as one application/octet-stream, either one
 * gzipped or not. Source: E2B's envd.
 *
 * The loop only gathers bytes; the worker takes them in pieces and does all the rest (unpacking,
 * parsing, writing), so a slow disk or a body that unpacks to gigabytes holds up no other request.
 * Two buffers: one is filled while the other is at the worker; with both full the client waits. */
#include "agent/common/user.h"
#include "agent/files/files.h"
#include "agent/files/files_sink.h"
#include "agent/fs/fs_open.h"
#include "agent/fs/fs_service.h"
#include "http/gzip.h"
#include "http/multipart.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* the server hands over up to 1 MiB */
#define BUFFER_MAX   (FILES_PIECE_BYTES + 2u * 1024u * 1024u)
#define UNPACKED_MAX (4u * 1024u * 1024u) /* in one step */
#define REFUSED_MAX  (64u * 1024u * 1024u)

struct upload {
    struct fs_job job;
    struct fs_worker *worker;
    struct http_exchange *x; /* the loop's; NULL when the client went */
    bool at_work;
    bool ended;     /* the body is here in full */
    bool paused;    /* the client waits */
    size_t refused; /* bytes that came after an error */
    struct buf filling;

    /* the worker's, while at_work */
    struct buf piece;
    bool last; /* piece ends the body */
    bool finished;
    struct gzip *gzip;
    struct multipart *multipart; /* NULL: the body is the file */
    bool skipping;               /* a part that is no file */
    const char *path_requested;  /* of the query, or NULL */
    size_t unpacked;             /* in this step */
    struct files_sink sink;
    struct files_meta meta;
    struct user user;
    struct files_owner owner; /* of a volume's file */
    files_put_cb put;         /* answers for one; NULL: of POST /files */
    struct agent *agent;
    char path_buf[AGENT_PATH_SIZE], workdir[AGENT_PATH_SIZE];
};

static void upload_free(struct upload *u)
{
    gzip_free(u->gzip);
    multipart_free(u->multipart);
    files_sink_free(&u->sink);
    files_meta_free(&u->meta);
    buf_free(&u->filling);
    buf_free(&u->piece);
    u->agent->transfers--;
    free(u);
}

static void upload_closed(struct http_exchange *x, void *data)
{
    struct upload *u = data;

    u->x = NULL;
    if (!u->at_work)
        upload_free(u);
}

/* -- on the worker ----------------------------------------------------------------------------- */

static int on_part(void *arg, const struct multipart_part *part)
{
    struct upload *u = arg;
    const char *path = u->path_requested ? u->path_requested : part->filename;

    u->skipping = strcmp(part->name, "file") != 0;
    if (u->skipping)
        return 0;
    if (!path)
        return files_sink_fail(&u->sink, 400, "filename not found in Content-Disposition header");
    return files_sink_open(&u->sink, path);
}

static int on_part_data(void *arg, const char *data, size_t len)
{
    struct upload *u = arg;

    return u->skipping ? 0 : files_sink_write(&u->sink, data, len);
}

static int on_part_end(void *arg)
{
    struct upload *u = arg;

    return u->skipping ? 0 : files_sink_close(&u->sink);
}

/* Bytes of the body, unpacked. */
static int take(struct upload *u, const void *data, size_t len)
{
    int r;

    if (!u->multipart)
        return files_sink_write(&u->sink, data, len);
    r = multipart_feed(u->multipart, data, len);
    if (r == 0 || r == -ECANCELED)
        return r;
    return files_sink_fail(&u->sink, 400, "error reading form: %s",
                           r == -EMSGSIZE ? "a part's head or the number of parts is over its limit"
                                          : "it is not well-formed multipart/form-data");
}

static int take_unpacked(void *arg, const void *data, size_t len)
{
    struct upload *u = arg;
    int r = take(u, data, len);

    u->unpacked += len;
    return r < 0 ? r : u->unpacked >= UNPACKED_MAX;
}

static int gzip_failed(struct upload *u, int r)
{
    return r == -ECANCELED ? r
                           : files_sink_fail(&u->sink, 400,
                                             "error decompressing request body: it "
                                             "is not a whole gzip stream");
}

/* 1: piece is used up; 0: there is more in it; -ECANCELED. */
static int take_piece(struct upload *u)
{
    size_t used;
    int r;

    if (!u->gzip) {
        r = take(u, u->piece.data, u->piece.len);
        buf_clear(&u->piece);
        return r < 0 ? r : 1;
    }
    u->unpacked = 0;
    r = gzip_feed(u->gzip, u->piece.data, u->piece.len, &used);
    if (r < 0)
        return gzip_failed(u, r);
    buf_consume(&u->piece, used);
    return r == 0;
}

/* The body's end. 1: done; 0: call again; -ECANCELED. */
static int finish(struct upload *u)
{
    int r;

    u->unpacked = 0;
    r = u->gzip ? gzip_finish(u->gzip) : 0;
    if (r < 0)
        return gzip_failed(u, r);
    if (r == 1)
        return 0;
    if (u->multipart && !multipart_complete(u->multipart))
        return files_sink_fail(&u->sink, 400,
                               "error reading form: the closing boundary is missing");
    r = u->multipart ? 0 : files_sink_close(&u->sink);
    return r < 0 ? r : 1;
}

static void upload_work(struct fs_job *job)
{
    struct upload *u = CONTAINER_OF(job, struct upload, job);
    CLEANUP_FS_CRED struct fs_cred cred UNUSED = fs_as_user(&u->user);
    int r = 1;

    if (!u->multipart && u->sink.fd < 0)
        r = files_sink_open(&u->sink, u->path_requested) < 0 ? -ECANCELED : 1;
    if (r == 1 && u->piece.len > 0)
        r = take_piece(u);
    if (r == 1 && u->last)
        u->finished = finish(u) == 1;
}

/* -- on the loop ------------------------------------------------------------------------------- */

static void answer(struct upload *u)
{
    static const struct http_header type = {"Content-Type", "application/json"};

    if (u->sink.status)
        http_respond_error(u->x, u->sink.status, "%s", u->sink.error.text);
    else if (u->put)
        u->put(u->x, u->sink.path);
    else if (buf_append_str(&u->sink.answer, u->sink.answer.len ? "]" : "[]") < 0)
        http_respond_error(u->x, 500, "the answer is larger than %u bytes", FILES_SINK_ANSWER_MAX);
    else
        http_respond(u->x, 200, &type, 1, u->sink.answer.data, u->sink.answer.len);
}

static void upload_done(struct fs_job *job);

/* Hands what was gathered to the worker; a small body, which is here in full, is dealt with at
 * once. */
static void submit(struct upload *u)
{
    struct buf empty = u->piece;
    bool small = u->ended && !u->gzip && u->filling.len <= FILES_SMALL_BYTES;

    if (u->piece.len == 0) {
        u->piece = u->filling;
        u->filling = empty;
        buf_clear(&u->filling);
        u->last = u->ended;
    }
    u->at_work = true;
    if (u->paused) {
        u->paused = false;
        http_body_resume(u->x);
    }
    if (!small) {
        fs_worker_submit(u->worker, &u->job);
        return;
    }
    upload_work(&u->job);
    upload_done(&u->job);
}

static void upload_done(struct fs_job *job)
{
    struct upload *u = CONTAINER_OF(job, struct upload, job);

    u->at_work = false;
    if (!u->x) {
        upload_free(u);
    } else if (u->sink.status) {
        /* Most clients look for an answer only when they have sent everything: the rest is read and
         * thrown away, within reason. */
        buf_clear(&u->filling);
        if (u->ended)
            answer(u);
        else if (u->paused)
            http_body_resume(u->x);
        u->paused = false;
    } else if (u->finished) {
        answer(u);
    } else if (u->piece.len > 0 || u->last || u->ended || u->filling.len >= FILES_PIECE_BYTES) {
        submit(u);
    }
}

static void refuse(struct upload *u, size_t len)
{
    u->refused += len;
    if (u->refused > REFUSED_MAX && !http_response_begun(u->x))
        answer(u);
}

static void upload_data(struct http_exchange *x, const char *data, size_t len)
{
    struct upload *u = http_exchange_get(x);

    if (!u->at_work && u->sink.status) {
        refuse(u, len);
        return;
    }
    if (buf_append(&u->filling, data, len) < 0) {
        http_exchange_abort(x);
        return;
    }
    if (u->filling.len < FILES_PIECE_BYTES)
        return;
    if (!u->at_work) {
        submit(u);
    } else {
        u->paused = true;
        http_body_pause(x);
    }
}

static void upload_end(struct http_exchange *x)
{
    struct upload *u = http_exchange_get(x);

    u->ended = true;
    if (u->at_work)
        return;
    if (!u->sink.status)
        submit(u);
    else if (!http_response_begun(x))
        answer(u);
}

/* -- the request ------------------------------------------------------------------------------- */

/* The media type is `name`, whatever parameters follow. */
static bool is_type(const char *content_type, const char *name)
{
    size_t n = strlen(name);

    return strncasecmp(content_type, name, n) == 0 && strchr("; \t", content_type[n]);
}

/* False after answering. */
static bool prepare_coding(struct http_exchange *x, struct upload *u)
{
    const char *coding = http_head_get(http_exchange_head(x), "Content-Encoding");

    if (!coding || !coding[0] || strcasecmp(coding, "identity") == 0)
        return true;
    if (strcasecmp(coding, "gzip") != 0)
        http_respond_error(x, 400, "unsupported Content-Encoding: %s, supported: [gzip]", coding);
    else if (gzip_inflate_new(UINT64_MAX, take_unpacked, u, &u->gzip) < 0)
        http_respond_error(x, 500, "out of memory in the agent");
    else
        return true;
    return false;
}

/* Chooses how the body is read. False after answering. */
static bool prepare_body(struct http_exchange *x, struct upload *u)
{
    static const struct multipart_callbacks callbacks = {on_part, on_part_data, on_part_end};
    const char *type = http_head_get(http_exchange_head(x), "Content-Type");
    int r = 0;

    type = type ? type : "";
    if (!prepare_coding(x, u))
        return false;
    if (is_type(type, "application/octet-stream")) {
        if (!u->path_requested) {
            http_respond_error(x, 400, "path query parameter is required for raw body upload");
            return false;
        }
    } else if (strncasecmp(type, "multipart/", 10) == 0) {
        r = multipart_new(type, FILES_SINK_FILES_MAX, &callbacks, u, &u->multipart);
    } else {
        http_respond_error(x, 400,
                           "unsupported content type: %s, expected multipart/form-data or "
                           "application/octet-stream",
                           type);
        return false;
    }
    if (r < 0)
        http_respond_error(x, r == -EINVAL ? 400 : 500, "error parsing multipart form: %s",
                           strerror(-r));
    return r == 0;
}

static struct upload *upload_new(struct http_exchange *x, struct agent *a)
{
    struct upload *u = calloc(1, sizeof(*u));

    if (!u || !(u->worker = fs_worker_of(a))) {
        free(u);
        http_respond_error(x, 500, "out of memory in the agent");
        return NULL;
    }
    u->job = (struct fs_job){.work = upload_work, .done = upload_done};
    u->agent = a;
    a->transfers++;
    buf_init(&u->filling, BUFFER_MAX);
    buf_init(&u->piece, BUFFER_MAX);
    memcpy(u->workdir, a->default_workdir, sizeof(u->workdir));
    files_sink_init(&u->sink, &u->user, u->workdir, &u->meta,
                    http_exchange_head(x)->framing == HTTP_BODY_LENGTH
                        ? http_exchange_head(x)->content_length
                        : 0);
    return u;
}

/* ?mode=0755, which upstream does not know: for `cay cp`, so that a program stays one. Three octal
 * digits at most: no set-id bits. False after answering. */
static bool read_mode(struct http_exchange *x, const char *text, unsigned *out)
{
    size_t len = text ? strlen(text) : 0;

    if (!text)
        return true;
    if (len < 1 || len > 4 || strspn(text, "01234567") != len ||
        (*out = (unsigned)strtoul(text, NULL, 8)) > 0777 || *out == 0) {
        http_respond_error(x, 400, "query parameter 'mode' is octal, of 1 to 0777");
        return false;
    }
    return true;
}

/* False after answering. */
static bool prepare(struct http_exchange *x, const struct agent *a, struct upload *u)
{
    const char *path, *username, *mode;
    struct err e;

    if (!files_query(x, "path", &path) || !files_query(x, "username", &username) ||
        !files_query(x, "mode", &mode) || !read_mode(x, mode, &u->sink.mode) ||
        !files_user(x, a, username, &u->user))
        return false;
    if (path) {
        memcpy(u->path_buf, path, strlen(path) + 1);
        u->path_requested = u->path_buf;
    }
    if (files_meta_read(http_exchange_head(x), &u->meta, &e) != ERR_OK) {
        http_respond_error(x, e.code == ERR_INVALID ? 400 : 500, "%s", e.text);
        return false;
    }
    return prepare_body(x, u);
}

void files_post(struct http_exchange *x, struct agent *a)
{
    struct upload *u = upload_new(x, a);

    if (!u)
        return;
    if (!prepare(x, a, u)) {
        upload_free(u);
        return;
    }
    u->x = x;
    http_exchange_set(x, u, upload_closed);
    http_body_stream(x, upload_data, upload_end);
}

void files_put(struct http_exchange *x, struct agent *a, const char *path,
               const struct files_owner *owner, files_put_cb put)
{
    struct upload *u = upload_new(x, a);

    if (!u)
        return;
    if (!prepare_coding(x, u)) {
        upload_free(u);
        return;
    }
    memcpy(u->path_buf, path, strlen(path) + 1);
    u->path_requested = u->path_buf;
    snprintf(u->user.name, sizeof(u->user.name), "root");
    u->owner = *owner;
    u->sink.owner = &u->owner;
    u->put = put;
    u->x = x;
    http_exchange_set(x, u, upload_closed);
    http_body_stream(x, upload_data, upload_end);
}
