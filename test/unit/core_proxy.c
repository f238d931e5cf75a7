#include "core_proxy.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void events_closed(struct http_exchange *x, void *data)
{
    ((struct proxy *)data)->events = NULL;
}

static void on_body(struct http_exchange *x, char *body, size_t len)
{
    struct proxy *p = http_exchange_get(x);

    p->puts++;
    snprintf(p->target, sizeof(p->target), "%s", http_exchange_head(x)->target);
    snprintf(p->body, sizeof(p->body), "%s", body);
    if (!p->silent)
        http_respond(x, p->status, NULL, 0, "no", p->status == 204 ? 0 : 2);
}

/* "Seals" by saying which value it was, in capitals. */
static void on_seal(struct http_exchange *x, char *body, size_t len)
{
    struct proxy *p = http_exchange_get(x);
    json_t *o = json_loadb(body, len, 0, NULL);
    const char *value = json_string_value(json_object_get(o, "value"));
    char text[PROXY_TEXT_MAX];

    p->seals++;
    if (value && strcmp(value, "bad") == 0) {
        http_respond_error(x, 400, "value: is bad");
    } else {
        snprintf(text, sizeof(text), "{\"sealed\":\"SEALED-%s-%s\"}",
                 json_string_value(json_object_get(o, "tenant")), value ? value : "object");
        http_respond(x, 200, NULL, 0, text, strlen(text));
    }
    json_decref(o);
}

static void on_delivery(struct http_exchange *x, char *body, size_t len)
{
    struct proxy *p = http_exchange_get(x);

    p->deliveries++;
    snprintf(p->body, sizeof(p->body), "%s", body);
    if (p->delivered)
        http_respond(x, 200, NULL, 0, p->delivered, strlen(p->delivered));
}

static void on_traces(struct http_exchange *x, char *body, size_t len)
{
    struct proxy *p = http_exchange_get(x);

    p->traces++;
    free(p->trace_body);
    p->trace_body = strdup(body);
    if (p->traced && *p->traced)
        http_respond(x, 200, NULL, 0, p->traced, strlen(p->traced));
    else if (p->traced)
        http_respond_error(x, 503, "too many");
}

static void audit_left(struct http_exchange *x, void *data)
{
    ((struct proxy *)data)->audits_left++;
}

static void handle(struct http_exchange *x, void *ctx)
{
    static const char pem[] = "-----BEGIN CERTIFICATE-----\nfor default\n";
    struct proxy *p = ctx;

    http_exchange_set(x, p, NULL);
    if (strcmp(http_exchange_head(x)->target, "/v1/ca/default") == 0) {
        p->tenant_cas++;
        if (p->no_tenant_ca)
            http_respond_error(x, 501, "none here");
        else
            http_respond(x, 200, NULL, 0, pem, strlen(pem));
        return;
    }
    if (strcmp(http_exchange_head(x)->target, "/v1/seal") == 0) {
        http_body_collect(x, PROXY_TEXT_MAX - 1, on_seal);
        return;
    }
    if (strcmp(http_exchange_head(x)->target, "/v1/deliveries") == 0) {
        http_body_collect(x, PROXY_TEXT_MAX - 1, on_delivery);
        return;
    }
    if (strcmp(http_exchange_head(x)->target, "/v1/traces") == 0) {
        http_body_collect(x, 512u * 1024, on_traces);
        return;
    }
    if (strcmp(http_exchange_head(x)->target, "/v1/events") == 0) {
        p->events = x;
        p->lives++;
        http_exchange_set(x, p, events_closed);
        http_response_begin(x, 200, NULL, 0, -1);
        http_response_write(x, "{}\n", 3);
        return;
    }
    if (strncmp(http_exchange_head(x)->target, "/v1/audit", strlen("/v1/audit")) == 0) {
        p->audits++;
        http_exchange_set(x, p, audit_left);
        return;
    }
    if (strcmp(http_exchange_head(x)->target, "/v1/renewals") == 0) {
        p->renewals++;
        return;
    }
    assert_string_equal(http_exchange_head(x)->method, "PUT");
    http_body_collect(x, 64u * 1024, on_body);
}

void proxy_start(struct proxy *p, struct world *w)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct http_server_config config;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    p->w = w;
    snprintf(at.sun_path, sizeof(at.sun_path), "%s/egress-0.ctl", w->dir);
    unlink(at.sun_path);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(fd, 64), 0);
    http_server_config_default(&config);
    assert_int_equal(http_server_new(&w->loop, &config, handle, p, &p->server), 0);
    assert_int_equal(http_server_listen(p->server, fd), 0);
}

static void on_stopped(void *ctx)
{
    ((struct proxy *)ctx)->stopped++;
}

void proxy_stop(struct proxy *p)
{
    unsigned before = p->stopped;

    http_server_stop(p->server, 0, on_stopped, p);
    p->server = NULL;
    free(p->trace_body);
    p->trace_body = NULL;
    world_run_until(p->w, &p->stopped, before + 1);
}

void proxy_known_to(struct world *w, const char *ceiling)
{
    world_stop_core(w);
    w->config.egress_dir = w->dir;
    w->config.egress_processes = 1;
    w->config.egress_ceiling = ceiling;
    world_start_core(w);
}
