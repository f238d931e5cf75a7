/* GET /files: the bytes of one file. Source: E2B's envd, which answers with Go's http.ServeContent;
 * RFC 9110 for conditions and ranges.
 *
 * The size that stat tells is not trusted: files of /proc say 0 and of /sys 4096. So a first piece
 * is read before the head is made; when the file ends in it, its real length is known. */
#include "agent/common/path.h"
#include "agent/common/user.h"
#include "agent/files/files.h"
#include "agent/files/files_disposition.h"
#include "agent/fs/fs_open.h"
#include "agent/fs/fs_service.h"
#include "base/buf.h"
#include "http/gzip.h"
#include "http/http_date.h"
#include "http/mime.h"
#include "http/range.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define MAX_HEADERS 8
#define OUT_MAX     (2u * FILES_PIECE_BYTES)
#define GZIP_LEVEL  1
#define TRIAL_BYTES (64u * 1024u) /* compressed to see whether it is worth it */

/* A download. It belongs to the worker while submitted; x is the loop's. */
struct get {
    struct fs_job job;
    struct fs_worker *worker;
    struct agent *agent;
    struct http_exchange *x;
    bool at_work; /* submitted, or waiting for room in the answer */
    bool waiting;

    int fd;
    struct stat st;
    uint64_t offset, left; /* where to read next, and how much; UINT64_MAX: to the end */
    bool ended;            /* the file or the range is read */
    int result;            /* of the last step: 0 or -errno */
    char *piece;
    size_t piece_len;
    struct gzip *gzip;
    struct buf out; /* compressed */

    bool want_gzip;
    struct range part; /* len > 0: the range asked for */
    char path[AGENT_PATH_SIZE];
};

static void get_free(struct get *g)
{
    util_close(&g->fd);
    gzip_free(g->gzip);
    buf_free(&g->out);
    free(g->piece);
    g->agent->transfers--;
    free(g);
}

static void get_closed(struct http_exchange *x, void *data)
{
    struct get *g = data;

    g->x = NULL;
    if (!g->at_work || g->waiting)
        get_free(g);
}

/* -- reading: on the worker, or for small files at once ---------------------------------------- */

static int read_piece(struct get *g)
{
    size_t want = (size_t)MIN((uint64_t)FILES_PIECE_BYTES, g->left);

    g->piece_len = 0;
    while (g->piece_len < want) {
        ssize_t n = pread(g->fd, g->piece + g->piece_len, want - g->piece_len, (off_t)g->offset);

        if (n < 0 && errno == EINTR)
            continue;
        /* EAGAIN of some /proc files: there is nothing more for now, and they have no end. */
        if (n < 0 && errno == EAGAIN)
            n = 0;
        if (n < 0)
            return -errno;
        if (n == 0) {
            g->ended = true;
            break;
        }
        g->piece_len += (size_t)n;
        g->offset += (uint64_t)n;
    }
    if (g->left != UINT64_MAX)
        g->left -= g->piece_len;
    if (g->left == 0)
        g->ended = true;
    return 0;
}

static int to_out(void *arg, const void *data, size_t len)
{
    struct get *g = arg;

    return buf_append(&g->out, data, len);
}

static int compress_piece(struct get *g)
{
    size_t used;
    int r = gzip_feed(g->gzip, g->piece, g->piece_len, &used);

    if (r == 0 && g->ended)
        r = gzip_finish(g->gzip);
    return r;
}

static void get_work(struct fs_job *job)
{
    struct get *g = CONTAINER_OF(job, struct get, job);

    g->result = read_piece(g);
    if (g->result == 0 && g->gzip)
        g->result = compress_piece(g);
}

/* -- the head ---------------------------------------------------------------------------------- */

struct answer {
    struct http_header headers[MAX_HEADERS];
    size_t count;
    char modified[HTTP_DATE_SIZE];
    char content_range[64];
    struct buf disposition;
};

static void add_header(struct answer *a, const char *name, const char *value)
{
    a->headers[a->count++] = (struct http_header){name, value};
}

/* The headers of every answer with or about contents. */
static void answer_init(struct answer *a, const struct get *g)
{
    *a = (struct answer){0};
    buf_init(&a->disposition, 4 * AGENT_PATH_SIZE);
    http_date_format(g->st.st_mtim.tv_sec, a->modified);
    add_header(a, "Vary", "Accept-Encoding");
    add_header(a, "Last-Modified", a->modified);
    if (files_disposition(&a->disposition, path_base(g->path)) == 0)
        add_header(a, "Content-Disposition", a->disposition.data);
}

/* Same second or older; HTTP dates have no smaller unit. */
static bool not_modified_since(const struct get *g, const char *value)
{
    time_t since;

    return value && http_date_parse(value, &since) == 0 && g->st.st_mtim.tv_sec <= since;
}

/* RFC 9110 13.2.2. There are no entity tags here, so a list of them never matches and "*" does. 0
 * to go on, else the status of the answer. */
static int check_conditions(const struct get *g, const struct http_head *h)
{
    const char *match = http_head_get(h, "If-Match"), *none = http_head_get(h, "If-None-Match");
    const char *unmodified = http_head_get(h, "If-Unmodified-Since");
    time_t t;

    if (match && strcmp(match, "*") != 0)
        return 412;
    if (!match && unmodified && http_date_parse(unmodified, &t) == 0 && g->st.st_mtim.tv_sec > t)
        return 412;
    if (none)
        return strcmp(none, "*") == 0 ? 304 : 0;
    return not_modified_since(g, http_head_get(h, "If-Modified-Since")) ? 304 : 0;
}

/* If-Range with anything but exactly this Last-Modified asks for the whole. */
static bool range_applies(const struct get *g, const struct http_head *h)
{
    const char *if_range = http_head_get(h, "If-Range");
    time_t t;

    if (!http_head_get(h, "Range") || g->st.st_size == 0)
        return false;
    return !if_range || (http_date_parse(if_range, &t) == 0 && t == g->st.st_mtim.tv_sec);
}

/* -- sending ----------------------------------------------------------------------------------- */

static void submit(struct get *g)
{
    g->at_work = true;
    g->waiting = false;
    fs_worker_submit(g->worker, &g->job);
}

static void get_drained(struct http_exchange *x, void *data)
{
    struct get *g = data;

    if (g->waiting)
        submit(g);
}

/* Sends the piece that was read; then ends, waits, or reads the next. */
static void send_piece(struct get *g)
{
    const char *data = g->gzip ? g->out.data : g->piece;
    size_t len = g->gzip ? g->out.len : g->piece_len;
    bool head = strcmp(http_exchange_head(g->x)->method, "HEAD") == 0;
    bool full = len > 0 && http_response_write(g->x, data, len) == 1;

    buf_clear(&g->out);
    if (g->ended || head)
        http_response_end(g->x); /* cut off when the file became shorter than was announced */
    else if (full)
        g->at_work = g->waiting = true;
    else
        submit(g);
}

/* Is a first piece worth compressing? Compressing compressed contents again only costs time. Small
 * files are not asked: there it costs nothing. */
static bool compresses(const struct get *g)
{
    struct get probe = {0};
    struct gzip *z = NULL;
    size_t used;
    bool worth = true;

    if (g->piece_len <= TRIAL_BYTES)
        return true;
    buf_init(&probe.out, OUT_MAX);
    if (gzip_deflate_new(GZIP_LEVEL, to_out, &probe, &z) == 0 &&
        gzip_feed(z, g->piece, TRIAL_BYTES, &used) == 0 && gzip_finish(z) == 0)
        worth = probe.out.len < TRIAL_BYTES / 10 * 9;
    gzip_free(z);
    buf_free(&probe.out);
    return worth;
}

/* Content-Type by the name, else by the first bytes; of compressed contents by the name alone, as
 * with upstream. */
static const char *content_type(const struct get *g)
{
    const char *type = mime_by_name(path_base(g->path));

    if (type)
        return type;
    return g->gzip ? "application/octet-stream" : mime_by_contents(g->piece, g->piece_len);
}

/* The length to announce: of the bytes read when they are all; stat's when it is plausible; else
 * none, and the answer is chunked up to the file's end. */
static int64_t body_length(struct get *g)
{
    if (g->gzip)
        return -1;
    if (g->ended)
        return (int64_t)g->piece_len;
    if (g->left == UINT64_MAX)
        return -1;
    return (int64_t)(g->piece_len + g->left);
}

/* The first piece of the whole file is there: make the head. */
static void begin_whole(struct get *g)
{
    struct answer a;

    if (g->want_gzip && compresses(g) && gzip_deflate_new(GZIP_LEVEL, to_out, g, &g->gzip) == 0)
        g->result = compress_piece(g);
    if (g->result < 0) {
        http_respond_error(g->x, 500, "cannot compress '%s'", g->path);
        return;
    }
    answer_init(&a, g);
    add_header(&a, "Content-Type", content_type(g));
    if (g->gzip)
        add_header(&a, "Content-Encoding", "gzip");
    else
        add_header(&a, "Accept-Ranges", "bytes");
    http_response_begin(g->x, 200, a.headers, a.count, body_length(g));
    http_response_on_drain(g->x, get_drained);
    buf_free(&a.disposition);
    send_piece(g);
}

static void begin_part(struct get *g, const struct range *range)
{
    struct answer a;

    answer_init(&a, g);
    snprintf(a.content_range, sizeof(a.content_range), "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64,
             range->first, range->first + range->len - 1, (uint64_t)g->st.st_size);
    add_header(&a, "Content-Range", a.content_range);
    add_header(&a, "Content-Type", content_type(g));
    add_header(&a, "Accept-Ranges", "bytes");
    http_response_begin(g->x, 206, a.headers, a.count, (int64_t)range->len);
    http_response_on_drain(g->x, get_drained);
    buf_free(&a.disposition);
    send_piece(g);
}

static void get_done(struct fs_job *job)
{
    struct get *g = CONTAINER_OF(job, struct get, job);

    g->at_work = false;
    if (!g->x) {
        get_free(g);
        return;
    }
    if (g->result < 0 && http_response_begun(g->x))
        http_exchange_abort(g->x);
    else if (g->result < 0)
        http_respond_error(g->x, files_status(g->result), "error reading file '%s': %s", g->path,
                           strerror(-g->result));
    else if (http_response_begun(g->x))
        send_piece(g);
    else if (g->part.len > 0)
        begin_part(g, &g->part);
    else
        begin_whole(g);
}

/* -- the request ------------------------------------------------------------------------------- */

static void respond_empty(struct get *g, int status, const char *content_range)
{
    struct answer a;

    answer_init(&a, g);
    if (content_range)
        add_header(&a, "Content-Range", content_range);
    http_respond(g->x, status, a.headers, a.count, "", 0);
    buf_free(&a.disposition);
}

/* Range: true to go on (with g->part set or not), false when the answer is made. */
static bool pick_range(struct get *g, const struct http_head *h)
{
    char whole[64];
    int r;

    if (!range_applies(g, h))
        return true;
    r = range_parse(http_head_get(h, "Range"), (uint64_t)g->st.st_size, &g->part);
    if (r == -ERANGE) {
        snprintf(whole, sizeof(whole), "bytes */%" PRIu64, (uint64_t)g->st.st_size);
        respond_empty(g, 416, whole);
        return false;
    }
    if (r == 0) {
        g->offset = g->part.first;
        g->left = g->part.len;
    }
    return true;
}

/* Small files are read at once: their bytes cost less than the way to the worker. */
static void begin_reading(struct get *g)
{
    if (g->left == UINT64_MAX && g->st.st_size > 0)
        g->left = (uint64_t)g->st.st_size;
    if (g->st.st_size > FILES_SMALL_BYTES) {
        submit(g);
        return;
    }
    get_work(&g->job);
    get_done(&g->job);
}

static void serve(struct get *g)
{
    const struct http_head *h = http_exchange_head(g->x);
    const char *accept = http_head_get(h, "Accept-Encoding");
    bool conditional = http_head_get(h, "Range") || http_head_get(h, "If-Modified-Since") ||
                       http_head_get(h, "If-None-Match") || http_head_get(h, "If-Range");
    int status;

    g->want_gzip = !conditional && gzip_accepted(accept);
    if (!g->want_gzip && gzip_identity_refused(accept)) {
        http_respond_error(g->x, 406,
                           conditional ? "identity encoding not acceptable for Range or "
                                         "conditional request"
                                       : "no acceptable encoding found, supported: gzip");
        return;
    }
    status = check_conditions(g, h);
    if (status)
        respond_empty(g, status, NULL);
    else if (pick_range(g, h))
        begin_reading(g);
}

static void fail_open(struct get *g, int error)
{
    if (error == -ENOENT || error == -ENOTDIR)
        http_respond_error(g->x, 404, "path '%s' does not exist", g->path);
    else if (error == -EISDIR)
        http_respond_error(g->x, 400, "path '%s' is a directory", g->path);
    else if (error == -EINVAL)
        http_respond_error(g->x, 400, "path '%s' is a device, FIFO or socket, not a file", g->path);
    else
        http_respond_error(g->x, files_status(error), "error opening file '%s': %s", g->path,
                           strerror(-error));
}

static struct get *get_new(struct http_exchange *x, struct agent *a)
{
    struct get *g = calloc(1, sizeof(*g));

    if (!g)
        return NULL;
    g->fd = -1;
    g->agent = a;
    a->transfers++;
    g->left = UINT64_MAX;
    g->job = (struct fs_job){.work = get_work, .done = get_done};
    g->worker = fs_worker_of(a);
    g->piece = malloc(FILES_PIECE_BYTES);
    buf_init(&g->out, OUT_MAX);
    if (g->worker && g->piece) {
        g->x = x;
        http_exchange_set(x, g, get_closed);
        return g;
    }
    get_free(g);
    return NULL;
}

/* Opens as the user; /proc files of cay-init and files that could make us wait are refused
 * there. */
static void open_and_serve(struct get *g, const struct user *u)
{
    {
        CLEANUP_FS_CRED struct fs_cred cred UNUSED = fs_as_user(u);

        g->fd = fs_open_file(g->path, &g->st);
    }
    if (g->fd < 0)
        fail_open(g, g->fd);
    else
        serve(g);
}

void files_get_path(struct http_exchange *x, struct agent *a, const char *path,
                    const struct user *u)
{
    struct get *g = get_new(x, a);

    if (!g) {
        http_respond_error(x, 500, "out of memory in the agent");
        return;
    }
    memcpy(g->path, path, strlen(path) + 1);
    open_and_serve(g, u);
}

void files_get(struct http_exchange *x, struct agent *a)
{
    const char *path, *username;
    char resolved[AGENT_PATH_SIZE];
    struct user u;

    if (files_query(x, "path", &path) && files_query(x, "username", &username) &&
        files_user(x, a, username, &u) && files_path(x, a, path ? path : "", &u, resolved))
        files_get_path(x, a, resolved, &u);
}
