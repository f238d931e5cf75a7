/* A server's memory: what it is configured with where its program says nothing else, and what it
 * has from its start on, so that a head or an error can be answered when there is no more. server.c
 * opens and closes the handles that stand in it. */
#include "http/server_internal.h"

#include "http/exchange.h"

#include <errno.h>
#include <time.h>

#define READ_BUF_BYTES (64u * 1024u)
#define READ_BUF_MAX   (1024u * 1024u)
#define ERROR_BODY_MAX 8192u /* a text of 1 KiB as JSON */
#define SCRATCH_MAX    (256u * 1024u)
#define WRITE_HIGH     (256u * 1024u)
#define HELD_TOTAL     (512u * 1024u * 1024u) /* see held.c */

void http_server_config_default(struct http_server_config *c)
{
    *c = (struct http_server_config){
        .max_connections = 1024,
        .max_head_bytes = HTTP_MAX_HEAD_BYTES,
        .write_high_bytes = WRITE_HIGH,
        .read_buffer_bytes = READ_BUF_BYTES,
        .head_timeout_ms = 15000,
        .idle_timeout_ms = 75000,
        .body_timeout_ms = 60000,
        .write_timeout_ms = 60000,
        .half_timeout_ms = 5000,
        .half_stream_timeout_ms = 1000,
        .arena_max_bytes = 1024u * 1024u,
        .collect_total_bytes = 256u * 1024u * 1024u,
        .held_total_bytes = HELD_TOTAL,
    };
}

int http_server_new(uv_loop_t *loop, const struct http_server_config *config, http_handler handler,
                    void *ctx, struct http_server **out)
{
    struct http_server *s = calloc(1, sizeof(*s));

    if (!s)
        return -ENOMEM;
    s->loop = loop;
    s->config = *config;
    s->config.max_head_bytes = MIN(config->max_head_bytes, HTTP_MAX_HEAD_BYTES);
    s->handler = handler;
    s->ctx = ctx;
    s->dirty_tail = &s->dirty;
    s->read_bytes = config->read_buffer_bytes ? config->read_buffer_bytes : READ_BUF_BYTES;
    s->read_bytes = MIN(s->read_bytes, READ_BUF_MAX);
    if (config->layer.ops || config->adopts_layers)
        s->read_bytes = MAX(s->read_bytes, (size_t)HTTP_LAYER_READ_BYTES);
    s->read_buf = malloc(s->read_bytes);
    buf_init(&s->scratch, SCRATCH_MAX);
    buf_init(&s->error_body, ERROR_BODY_MAX);
    if (!s->read_buf || buf_reserve(&s->scratch, SCRATCH_MAX) < 0 ||
        buf_reserve(&s->error_body, ERROR_BODY_MAX) < 0) {
        buf_free(&s->scratch);
        free(s->read_buf);
        free(s);
        return -ENOMEM;
    }
    pass_init(&s->pass, config->relays);
    s->piece = SIZE_MAX;
    for (int kind = 0; kind < WAIT_KINDS; kind++)
        s->waits[kind].prev = s->waits[kind].next = &s->waits[kind];
    uv_timer_init(loop, &s->timer);
    uv_prepare_init(loop, &s->prepare);
    s->timer.data = s->prepare.data = s;
    s->handles = 2;
    *out = s;
    return 0;
}

const char *server_date(struct http_server *s)
{
    time_t now = time(NULL);
    struct tm tm;

    if (now != s->date_second) {
        gmtime_r(&now, &tm);
        strftime(s->date, sizeof(s->date), "%a, %d %b %Y %H:%M:%S GMT", &tm);
        s->date_second = now;
    }
    return s->date;
}

size_t http_server_connections(const struct http_server *s)
{
    return s->conn_count;
}

void server_free(struct http_server *s)
{
    void (*done)(void *) = s->on_stopped;
    void *ctx = s->stopped_ctx;
    struct http_exchange *next;

    for (struct http_exchange *x = s->free_exchanges; x; x = next) {
        next = x->next_free;
        free(x->storage);
        free(x);
    }
    buf_free(&s->error_body);
    buf_free(&s->scratch);
    pass_free(&s->pass);
    free(s->read_buf);
    free(s);
    if (done)
        done(ctx);
}
