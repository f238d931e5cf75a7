/* PUT /templates/ID/files/HASH?upload=TOKEN: the control loop is asked for a file; the body is
 * written to it as it comes; the control loop is told its end, and the client is answered. A client
 * that goes away before has its file removed, at the latest when the time for it is over. Bodies of
 * the object storage (storage.c) and of imported snapshots (snapshot_import.c) take the same way
 * from upload_receive and upload_into on. */

#include "cayd/upload.h"

#include "base/io.h"
#include "core/build_files.h"
#include "http/message.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PREFIX     "/templates/"
#define FILES      "/files/"
#define LOOKUP_MS  15000
#define QUERY_NAME "upload"

struct upload {
    struct connloop *l;
    const struct upload_answers *answers;
    int fd;
    unsigned part; /* of an archive that comes in parts; 0: it does not */
    uint64_t number, bytes, most_bytes, check_at;
    /* of an import, which is its key's: among those of the loop */
    struct upload *next, **prev; /* prev NULL: it is not among them */
    struct http_exchange *x;
    char key_id[CORE_KEY_ID_SIZE];
};

static void answer_good(struct http_exchange *x)
{
    http_respond(x, 200, NULL, 0, NULL, 0);
}

static void answer_bad(struct http_exchange *x, int status, const char *why)
{
    http_respond_error(x, status, "%s", why);
}

static const struct upload_answers plain = {.good = answer_good, .bad = answer_bad};

static void enter(struct upload *u, struct http_exchange *x)
{
    struct connloop *l = u->l;

    u->x = x;
    connloop_api_key_id(x, u->key_id);
    u->next = l->imports;
    u->prev = &l->imports;
    if (u->next)
        u->next->prev = &u->next;
    l->imports = u;
}

static void leave(struct upload *u)
{
    if (!u->prev)
        return;
    *u->prev = u->next;
    if (u->next)
        u->next->prev = u->prev;
}

/* As of other bodies that are waited for: the end of one ends no other. */
void upload_key_revoked(struct connloop *l, const char *key_id)
{
    struct upload *next;

    for (struct upload *u = l->imports; u; u = next) {
        next = u->next;
        if (!key_id || strcmp(u->key_id, key_id) == 0)
            http_exchange_abort(u->x);
    }
}

static void free_upload(struct upload *u)
{
    leave(u);
    util_close(&u->fd);
    free(u);
}

/* -- its end ----------------------------------------------------------------------------------- */

static void end_answered(struct control_request *a, void *reader)
{
    struct connloop *l = reader;
    struct http_exchange *x = a->ticket ? pending_take(l->api_pending, a->ticket, NULL) : NULL;

    const struct upload_answers *answers = a->upload->sender;

    if (x && a->upload->why.code == ERR_OK)
        answers->good(x);
    else if (x)
        answers->bad(x, api_status_of(a->upload->why.code), a->upload->why.text);
    control_request_free(a);
}

/* x NULL: its client has gone, or was answered. */
static void report_end(struct upload *u, struct http_exchange *x, bool whole)
{
    const struct upload_answers *answers = u->answers;
    struct connloop *l = u->l;
    struct control_request *a;

    if (whole && answers->whole) {
        uint64_t number = u->number;

        free_upload(u);
        answers->whole(l, x, number);
        return;
    }
    a = control_request_upload(l->config.control, NULL, NULL, &l->inbox, end_answered);
    if (a) {
        a->upload->is_import = answers->whole != NULL;
        a->upload->sender = answers;
        a->upload->part = u->part;
        a->upload->number = u->number;
        a->upload->bytes = u->bytes;
        a->upload->whole = whole;
    }
    free_upload(u);
    if (!connloop_request(l, x, a, LOOKUP_MS) && x)
        answers->bad(x, 503, "the server is too busy; try again");
}

static void client_gone(struct http_exchange *x, void *data)
{
    report_end(data, NULL, false);
}

/* -- the body ---------------------------------------------------------------------------------- */

static void refuse(struct http_exchange *x, struct upload *u, int status, const char *why)
{
    const struct upload_answers *answers = u->answers;

    http_exchange_set(x, NULL, NULL);
    report_end(u, NULL, false);
    answers->bad(x, status, why);
}

static void on_data(struct http_exchange *x, const char *data, size_t len)
{
    struct upload *u = http_exchange_get(x);
    struct err e;
    int rc;

    if (!u)
        return; /* refused: what still comes is not read */
    if (len > u->most_bytes - u->bytes) {
        refuse(x, u, 413,
               u->answers->too_long ? u->answers->too_long
                                    : "the archive is larger than a build's may be");
        return;
    }
    if (core_build_upload_is_gone(u->fd)) {
        refuse(x, u, 404, "it was given up, or it took too long to send the files");
        return;
    }
    rc = io_write_full(u->fd, data, len);
    if (rc < 0) {
        refuse(x, u, 507, strerror(-rc));
        return;
    }
    u->bytes += len;
    if (u->bytes < u->check_at)
        return;
    u->check_at = u->bytes + CORE_BUILD_UPLOAD_STEP;
    if (core_build_upload_space(u->fd, &e) != ERR_OK)
        refuse(x, u, api_status_of(e.code), e.text);
}

static void on_end(struct http_exchange *x)
{
    struct upload *u = http_exchange_get(x);

    if (!u)
        return;
    http_exchange_set(x, NULL, NULL);
    report_end(u, x, true);
}

/* The account of an archive's place is its own, not that of the tenant's other requests: the token
 * names the tenant by its digits alone. */
static bool take_share(struct connloop *l, struct http_exchange *x, const char *token)
{
    char owner[CORE_BUILD_OWNER_LEN + 1];

    (void)snprintf(owner, sizeof(owner), "%.*s", CORE_BUILD_OWNER_LEN, token);
    return conn_share_take(l->conn_shares, x, owner, NULL, false);
}

void upload_into(struct connloop *l, struct http_exchange *x, const struct core_build_upload *file,
                 unsigned part, const char *token, const struct upload_answers *answers)
{
    struct upload *u = calloc(1, sizeof(*u));

    if (!u) {
        close(file->fd);
        if (x)
            answers->bad(x, 503, "memory is out");
        return; /* its time ends it */
    }
    *u = (struct upload){.l = l,
                         .answers = answers,
                         .fd = file->fd,
                         .part = part,
                         .number = file->number,
                         .most_bytes = file->most_bytes};
    if (!x) {
        report_end(u, NULL, false);
    } else if (!take_share(l, x, token)) {
        report_end(u, NULL, false);
        conn_share_refuse(x);
    } else {
        if (answers->whole)
            enter(u, x);
        http_exchange_set(x, u, client_gone);
        http_body_stream(x, on_data, on_end);
    }
}

void upload_receive(struct connloop *l, struct http_exchange *x, struct control_request *a,
                    const char *token, const struct upload_answers *answers)
{
    if (a->upload->why.code == ERR_OK) {
        int fd = TAKE_FD(a->upload->fd);
        const struct core_build_upload file = {
            .fd = fd, .number = a->upload->number, .most_bytes = a->upload->most_bytes};

        upload_into(l, x, &file, a->upload->part, token, answers);
    } else if (x) {
        answers->bad(x, api_status_of(a->upload->why.code), a->upload->why.text);
    }
}

static void begin_answered(struct control_request *a, void *reader)
{
    struct connloop *l = reader;
    struct http_exchange *x = pending_take(l->api_pending, a->ticket, NULL);

    upload_receive(l, x, a, a->upload->token, &plain);
    control_request_free(a);
}

/* -- the head ---------------------------------------------------------------------------------- */

/* The hash that the path names; NULL: it names none. */
static const char *hash_of(const struct http_head *h)
{
    const char *files;

    if (strcmp(h->method, "PUT") != 0 || strncmp(h->path, PREFIX, strlen(PREFIX)) != 0)
        return NULL;
    files = strchr(h->path + strlen(PREFIX), '/');
    return files && strncmp(files, FILES, strlen(FILES)) == 0 ? files + strlen(FILES) : NULL;
}

bool upload_handle(struct connloop *l, struct http_exchange *x)
{
    const struct http_head *h = http_exchange_head(x);
    const char *hash = hash_of(h);
    char token[CORE_BUILD_UPLOAD_TOKEN];
    struct control_request *a;

    if (!hash || http_query_get(h->query ? h->query : "", QUERY_NAME, token, sizeof(token)) <= 0)
        return false;
    if (h->framing == HTTP_BODY_LENGTH && h->content_length > CORE_BUILD_FILE_MAX) {
        http_respond_error(x, 413, "an archive may have %u bytes", CORE_BUILD_FILE_MAX);
        return true;
    }
    a = control_request_upload(l->config.control, hash, token, &l->inbox, begin_answered);
    if (!connloop_request(l, x, a, LOOKUP_MS))
        http_respond_error(x, 503, "the server is too busy; try again");
    return true;
}
