#include "egress/flow/collector.h"

#include "base/err.h"
#include "base/otlp_url.h"
#include "base/util.h"
#include "egress/flow/egress.h"
#include "egress/flow/reply.h"
#include "http/client.h"
#include "http/message.h"
#include "http/server.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* A request of cayd's; its exchange may go before the collector answers. */
struct post {
    struct egress *egress;
    struct http_exchange *x; /* or NULL */
    int status;              /* of the collector's head; 0: there was none */
};

static void on_exchange_end(struct http_exchange *x, void *data)
{
    ((struct post *)data)->x = NULL;
}

static void finish(struct post *p, const char *why)
{
    if (p->x) {
        http_exchange_set(p->x, NULL, NULL);
        reply_json(p->x, 200,
                   p->status ? json_pack("{s:i}", "status", p->status)
                             : json_pack("{s:s}", "failed", why));
    }
    p->egress->collector_posts--;
    free(p);
}

static void on_head(void *arg, const struct http_head *head)
{
    ((struct post *)arg)->status = head->status;
}

/* An answer that is too long, or does not end, has said what counts: its status. */
static void on_done(void *arg, const struct http_head *head, const char *body, size_t len,
                    const struct err *why, int *fd)
{
    finish(arg, why ? why->text : "no answer");
}

/* Connected or connecting; or -errno. */
static int connect_to(const struct otlp_url *url, bool *connecting)
{
    CLEANUP_CLOSE int fd = socket(url->to.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
                                  0);

    if (fd < 0)
        return -errno;
    *connecting = connect(fd, &url->to.any, url->to_len) < 0;
    if (*connecting && errno != EINPROGRESS)
        return -errno;
    return TAKE_FD(fd);
}

static int send_it(struct post *p, const char *body, size_t len)
{
    static const struct http_header headers[] = {{"Content-Type", "application/json"},
                                                 {"User-Agent", "cay/" CAY_VERSION},
                                                 {"Connection", "close"}};
    const struct otlp_url *url = p->egress->config.collector;
    struct http_client_request q = {.method = "POST",
                                    .target = url->path,
                                    .host = url->authority,
                                    .headers = headers,
                                    .header_count = ARRAY_SIZE(headers),
                                    .body = body,
                                    .body_len = len,
                                    .max_response_bytes = COLLECTOR_ANSWER,
                                    .timeout_ms = COLLECTOR_TIME_MS,
                                    .on_head = on_head,
                                    .done = on_done,
                                    .arg = p};

    q.fd = connect_to(url, &q.connecting);
    return q.fd < 0 ? q.fd : http_client_send(p->egress->loop, &q);
}

void collector_post(struct egress *eg, struct http_exchange *x, const char *body, size_t len)
{
    struct post *p = NULL;
    struct err e;
    int rc;

    if (!eg->config.collector) {
        http_respond_error(x, 501, "[traces] otlp_url is not set");
        return;
    }
    if (eg->collector_posts < COLLECTOR_AT_ONCE)
        p = calloc(1, sizeof(*p));
    if (!p) {
        http_respond_error(x, 503, "too many requests of the collector are under way");
        return;
    }
    *p = (struct post){.egress = eg, .x = x};
    eg->collector_posts++;
    http_exchange_set(x, p, on_exchange_end);
    rc = send_it(p, body, len);
    if (rc == 0)
        return;
    err_set_sys(&e, ERR_UNAVAILABLE, rc, "cannot connect");
    finish(p, e.text);
}
