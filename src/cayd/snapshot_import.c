#include "cayd/snapshot_import.h"

#include "cayd/upload.h"
#include "contract/exchange.h"

#include <string.h>

#define PATH "/cay/v1/snapshots/import"

static bool send_call(struct connloop *l, struct http_exchange *x, uint64_t number,
                      void (*answered)(struct control_request *a, void *reader))
{
    struct api_request *r = connloop_api_request(http_exchange_head(x), "", 0);

    if (r) {
        r->upload = number ? API_UPLOAD_ENDS : API_UPLOAD_BEGINS;
        r->upload_number = number;
    }
    return connloop_api_send(l, x, r, answered);
}

static void answer_bad(struct http_exchange *x, int status, const char *why)
{
    http_respond_error(x, status, "the snapshot was not imported: %s", why);
}

/* Where the core was never asked, as its key was revoked or memory was out, it has to end: else its
 * tenant has no other until its time is over. */
static void drop(struct connloop *l, uint64_t number)
{
    struct control_request *a = control_request_upload(l->config.control, NULL, NULL, &l->inbox,
                                                       connloop_nothing_answered);

    if (a) {
        a->upload->number = number;
        a->upload->is_import = true;
    }
    (void)connloop_request(l, NULL, a, 0); /* or its time ends it */
}

static void ended(struct control_request *a, void *reader)
{
    if (a->response.status != 201)
        drop(reader, a->upload_number);
    connloop_api_answered(a, reader);
}

static void on_whole(struct connloop *l, struct http_exchange *x, uint64_t number)
{
    if (!send_call(l, x, number, ended))
        drop(l, number);
}

static const struct upload_answers answers = {
    .bad = answer_bad, .whole = on_whole, .too_long = "the file is longer than one may be"};

static void begun(struct control_request *a, void *reader)
{
    struct connloop *l = reader;
    struct http_exchange *x = pending_take(l->api_pending, a->ticket, NULL);
    const struct api_response *r = &a->response;

    if (r->upload_fd > 0) {
        const struct core_build_upload file = {
            .fd = r->upload_fd, .number = r->upload_number, .most_bytes = r->upload_most_bytes};

        a->response.upload_fd = 0;
        upload_into(l, x, &file, 0, r->tenant, &answers);
    } else if (x) {
        connloop_api_respond(l, x, &a->response);
    }
    control_request_free(a);
}

bool snapshot_import_handle(struct connloop *l, struct http_exchange *x)
{
    const struct http_head *h = http_exchange_head(x);

    if (strcmp(h->method, "POST") != 0 || strcmp(h->path, PATH) != 0)
        return false;
    if (h->framing == HTTP_BODY_LENGTH && h->content_length > EXCHANGE_FILE_MAX)
        http_respond_error(x, 413, "an exported snapshot has %llu bytes at most",
                           (unsigned long long)EXCHANGE_FILE_MAX);
    else
        (void)send_call(l, x, 0, begun);
    return true;
}
