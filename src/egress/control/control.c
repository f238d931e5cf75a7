/* A request of cayd's: peer checked once for each connection, then the table of routes. A policy is
 * read and put in force by control_policy.c. Answers that need time (audit, renewals, events) keep
 * their exchange and find out when it has gone. */

#include "egress/control/control.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "base/util.h"
#include "egress/control/audit_query.h"
#include "egress/control/control_policy.h"
#include "egress/control/document.h"
#include "egress/control/explain.h"
#include "egress/flow/answers.h"
#include "egress/flow/asks.h"
#include "egress/flow/audit.h"
#include "egress/flow/collector.h"
#include "egress/flow/delivery.h"
#include "egress/flow/deny.h"
#include "egress/flow/egress.h"
#include "egress/flow/event_stream.h"
#include "egress/flow/intercept.h"
#include "egress/flow/registry.h"
#include "egress/flow/renew.h"
#include "egress/flow/reply.h"
#include "egress/flow/sandbox.h"
#include "http/json.h"
#include "http/server.h"
#include "policy/policy.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <sys/socket.h>
#include <uv.h>

#define CONNECTIONS_MAX 64

struct control {
    struct egress *egress;
    struct http_server *server;
    int fd;
    uv_poll_t poll;
};

/* -- answers ----------------------------------------------------------------------------------- */

static void respond_err(struct http_exchange *x, const struct err *e)
{
    bool for_now = e->code == ERR_EXHAUSTED || e->code == ERR_UNAVAILABLE;

    http_respond_error(x, e->code == ERR_CONFLICT ? 409 : for_now ? 503 : 400, "%s", e->text);
}

/* -- routes ------------------------------------------------------------------------------------ */

struct call {
    struct control *control;
    struct http_exchange *x;
    uint32_t slot, gen;
    char name[EGRESS_TENANT_MAX + 1];
};

static struct control *control_of(struct http_exchange *x)
{
    return http_exchange_get(x);
}

static int parse_sandbox(const char *path, const char *tail, uint32_t *slot, uint32_t *gen)
{
    int used = 0;

    if (sscanf(path, "/v1/sandboxes/%9" SCNu32 "/%10" SCNu32 "%n", slot, gen, &used) != 2)
        return -EINVAL;
    return strcmp(path + used, tail) == 0 ? 0 : -ENOENT;
}

static enum err_code read_policy(struct egress *eg, const json_t *o, void **out, struct err *e)
{
    struct sandbox_rules *rules = NULL;
    enum err_code code = control_policy_read(eg, o, &rules, e);

    *out = rules;
    return code;
}

static void drop_policy(void *rules)
{
    control_policy_drop(rules);
}

static void take_policy(struct http_exchange *x, const json_t *o, void *rules, const struct err *e)
{
    struct egress *eg = control_of(x)->egress;
    uint32_t slot = 0, gen = 0;
    struct err why;

    (void)parse_sandbox(http_exchange_head(x)->path, "", &slot, &gen); /* on_put_body did, too */
    if (e)
        respond_err(x, e);
    else if (control_policy_take(eg, slot, gen, rules, x, &why) != ERR_OK)
        respond_err(x, &why);
}

static const struct document_kind policy_document = {
    .read = read_policy, .take = take_policy, .drop = drop_policy, .ordered = true};

static void on_put_body(struct http_exchange *x, char *body, size_t len)
{
    const struct http_head *h = http_exchange_head(x);
    char tenant[EGRESS_TENANT_MAX + 1] = "";
    uint32_t slot, gen;

    if (parse_sandbox(h->path, "", &slot, &gen) < 0) {
        http_respond_error(x, 400, "the path is not /v1/sandboxes/SLOT/GENERATION");
        return;
    }
    if (http_query_get(h->query, "tenant", tenant, sizeof(tenant)) < 0)
        tenant[0] = '\0'; /* an account of its own */
    document_start(control_of(x)->egress->documents, x, &policy_document, slot, tenant, body, len);
}

static void put_sandbox(struct http_exchange *x)
{
    http_body_collect(x, CONTROL_BODY_MAX, on_put_body);
}

/* "/command sandboxes/N" before the tail: that command sandbox of it. */
static struct sandbox *sandbox_of(struct http_exchange *x, const char *tail)
{
    struct egress *eg = control_of(x)->egress;
    const char *path = http_exchange_head(x)->path,
               *command_sandboxes = strstr(path, "/command_sandboxes/");
    uint32_t slot, gen, command = 0;
    struct sandbox *s = NULL;
    int used = 0;

    if (command_sandboxes &&
        (sscanf(command_sandboxes, "/command_sandboxes/%10" SCNu32 "%n", &command, &used) != 1 ||
         command == 0 || strcmp(command_sandboxes + used, tail) != 0))
        used = -1;
    if (used >= 0 &&
        parse_sandbox(path, command_sandboxes ? command_sandboxes : tail, &slot, &gen) == 0)
        s = registry_find(eg, slot, gen, command);
    if (!s)
        http_respond_error(x, 404, "no such sandbox here");
    return s;
}

static void get_denials(struct http_exchange *x)
{
    struct sandbox *s = sandbox_of(x, "/denials");

    if (s)
        reply_json(x, 200, deny_list(s));
}

static void get_asks(struct http_exchange *x)
{
    struct sandbox *s = sandbox_of(x, "/asks");

    if (s)
        reply_json(x, 200, asks_list(s));
}

static void take_answer(struct http_exchange *x, struct sandbox *s, const char *id, const json_t *o)
{
    static const char *const names[] = {
        [ASKS_NO] = "no", [ASKS_YES] = "yes", [ASKS_UNFOLLOWED] = "nobody"};
    const char *said = json_string_value(json_object_get(o, "answer"));
    size_t i = 0;
    int rc;

    while (i < ARRAY_SIZE(names) && (!said || strcmp(said, names[i]) != 0))
        i++;
    if (i == ARRAY_SIZE(names)) {
        http_respond_error(x, 400, "answer: not yes, no or nobody");
        return;
    }
    rc = asks_take(s, id, (enum asks_answer)i, json_is_true(json_object_get(o, "always")));
    if (rc == -ENOENT)
        http_respond_error(x, 404, "no such question: it was answered, or is over");
    else if (rc < 0)
        http_respond_error(x, 409, "%u answers of the sandbox are kept already", ASKS_ANSWERS_MAX);
    else
        http_respond(x, 204, NULL, 0, NULL, 0);
}

/* /v1/sandboxes/SLOT/GENERATION/asks/ID */
static void on_answer_body(struct http_exchange *x, char *body, size_t len)
{
    struct sandbox *s = NULL;
    struct err e = {0};
    uint32_t slot, gen;
    json_t *o = NULL;
    char id[17];

    if (sscanf(http_exchange_head(x)->path, "/v1/sandboxes/%9" SCNu32 "/%10" SCNu32 "/asks/%16s",
               &slot, &gen, id) == 3)
        s = registry_find(control_of(x)->egress, slot, gen, 0);
    if (!s)
        http_respond_error(x, 404, "no such sandbox here");
    else if (json_parse(body, len, false, &o, &e) != ERR_OK)
        respond_err(x, &e);
    else
        take_answer(x, s, id, o);
    json_decref(o);
}

static void post_answer(struct http_exchange *x)
{
    http_body_collect(x, CONTROL_BODY_MAX, on_answer_body);
}

static enum err_code read_question(struct egress *eg, const json_t *o, void **out, struct err *e)
{
    struct policy *instead = NULL;
    enum err_code code = explain_policy(o, &instead, e);

    *out = instead;
    return code;
}

static void drop_question(void *instead)
{
    policy_free(instead);
}

static void take_question(struct http_exchange *x, const json_t *o, void *instead,
                          const struct err *e)
{
    struct sandbox *s = sandbox_of(x, "/explain"); /* it may have ended meanwhile */
    json_t *answer = NULL;
    struct err why;

    if (s && e)
        respond_err(x, e);
    else if (s && (answer = explain(s, o, instead, &why)))
        reply_json(x, 200, answer);
    else if (s)
        respond_err(x, &why);
    policy_free(instead);
}

static const struct document_kind question_document = {
    .read = read_question, .take = take_question, .drop = drop_question};

static void on_explain_body(struct http_exchange *x, char *body, size_t len)
{
    struct sandbox *s = sandbox_of(x, "/explain");

    if (s)
        document_start(control_of(x)->egress->documents, x, &question_document, s->slot, s->tenant,
                       body, len);
}

static void post_explain(struct http_exchange *x)
{
    http_body_collect(x, CONTROL_BODY_MAX, on_explain_body);
}

static void get_usage(struct http_exchange *x)
{
    struct sandbox *s = sandbox_of(x, "/usage");
    uint64_t up, down;

    if (!s)
        return;
    registry_usage(s, &up, &down);
    reply_json(x, 200,
               json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "bytes_up", (json_int_t)up, "bytes_down",
                         (json_int_t)down, "allowed", (json_int_t)s->allowed, "denied",
                         (json_int_t)s->denied, "requests", (json_int_t)s->requests_total,
                         "connections", (json_int_t)s->flow_count));
}

static void on_seal_body(struct http_exchange *x, char *body, size_t len)
{
    struct egress *eg = control_of(x)->egress;

    intercept_answer_seal(eg, x, body, len);
}

static void post_seal(struct http_exchange *x)
{
    if (control_of(x)->egress->intercept)
        http_body_collect(x, CONTROL_BODY_MAX, on_seal_body);
    else
        http_respond_error(x, 501, "this server holds no credentials");
}

static void on_renewal_body(struct http_exchange *x, char *body, size_t len)
{
    renewals_start(control_of(x)->egress->renewals, x, body, len);
}

static void post_renewal(struct http_exchange *x)
{
    if (control_of(x)->egress->renewals)
        http_body_collect(x, CONTROL_BODY_MAX, on_renewal_body);
    else
        http_respond_error(x, 501, "this server holds no credentials");
}

static void on_delivery_body(struct http_exchange *x, char *body, size_t len)
{
    deliveries_start(control_of(x)->egress->deliveries, x, body, len);
}

static void post_delivery(struct http_exchange *x)
{
    if (control_of(x)->egress->intercept)
        http_body_collect(x, CONTROL_BODY_MAX, on_delivery_body);
    else
        http_respond_error(x, 501, "this server holds no credentials");
}

static void on_traces_body(struct http_exchange *x, char *body, size_t len)
{
    collector_post(control_of(x)->egress, x, body, len);
}

static void post_traces(struct http_exchange *x)
{
    http_body_collect(x, COLLECTOR_BODY_MAX, on_traces_body);
}

static void get_ca(struct http_exchange *x)
{
    struct egress *eg = control_of(x)->egress;
    const char *tenant = http_exchange_head(x)->path + strlen("/v1/ca/");

    if (!eg->intercept)
        http_respond_error(x, 501, "this server does not intercept TLS");
    else if (!*tenant || strlen(tenant) > EGRESS_TENANT_MAX || strchr(tenant, '/'))
        http_respond_error(x, 404, "no such tenant");
    else
        intercept_answer_ca(eg, x, tenant);
}

static void get_audit(struct http_exchange *x)
{
    audit_query_start(control_of(x)->egress, x);
}

static void get_verify(struct http_exchange *x)
{
    audit_verify_start(control_of(x)->egress, x);
}

static void get_events(struct http_exchange *x)
{
    event_stream_watch(control_of(x)->egress->event_stream, x);
}

/* -- dispatch ---------------------------------------------------------------------------------- */

static const struct route {
    const char *method, *prefix, *suffix;
    void (*serve)(struct http_exchange *x);
} routes[] = {
    {"PUT", "/v1/sandboxes/", "", put_sandbox},
    {"GET", "/v1/sandboxes/", "/denials", get_denials},
    {"GET", "/v1/sandboxes/", "/asks", get_asks},
    {"POST", "/v1/sandboxes/", "/explain", post_explain},
    {"POST", "/v1/sandboxes/", "", post_answer},
    {"GET", "/v1/sandboxes/", "/usage", get_usage},
    {"POST", "/v1/seal", NULL, post_seal},
    {"POST", "/v1/renewals", NULL, post_renewal},
    {"POST", "/v1/deliveries", NULL, post_delivery},
    {"POST", "/v1/traces", NULL, post_traces},
    {"GET", "/v1/ca/", "", get_ca},
    {"GET", "/v1/audit/verify", NULL, get_verify},
    {"GET", "/v1/audit", NULL, get_audit},
    {"GET", "/v1/events", NULL, get_events},
};

static bool route_fits(const struct route *r, const struct http_head *h)
{
    size_t n = strlen(h->path), prefix = strlen(r->prefix);

    if (strcmp(r->method, h->method) != 0)
        return false;
    if (!r->suffix)
        return strcmp(h->path, r->prefix) == 0;
    return strncmp(h->path, r->prefix, prefix) == 0 && n >= prefix + strlen(r->suffix) &&
           strcmp(h->path + n - strlen(r->suffix), r->suffix) == 0;
}

static void handle(struct http_exchange *x, void *ctx)
{
    http_exchange_set(x, ctx, NULL);
    (void)json_was_cut(); /* of another request */
    for (size_t i = 0; i < ARRAY_SIZE(routes); i++)
        if (route_fits(&routes[i], http_exchange_head(x))) {
            routes[i].serve(x);
            return;
        }
    http_respond_error(x, 404, "no such call");
}

static bool peer_is_right(struct egress *eg, int fd)
{
    struct ucred cred;
    socklen_t n = sizeof(cred);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) == 0 &&
           (cred.uid == eg->config.peer_uid || cred.uid == 0);
}

static void on_connection(uv_poll_t *p, int status, int events)
{
    struct control *c = p->data;
    int fd = accept4(c->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (fd < 0)
        return;
    if (!peer_is_right(c->egress, fd)) {
        log_warn("a connection to the control channel by another user is refused");
        close(fd);
    } else if (http_server_connections(c->server) >= CONNECTIONS_MAX ||
               http_server_adopt(c->server, fd) < 0) {
        close(fd);
    }
}

int control_new(struct egress *eg, int listen_fd, struct control **out)
{
    struct control *c = calloc(1, sizeof(*c));
    struct http_server_config config;
    int rc;

    if (!c)
        return -ENOMEM;
    c->egress = eg;
    c->fd = listen_fd;
    rc = event_stream_new(eg, &eg->event_stream);
    if (rc < 0) {
        free(c);
        return rc;
    }
    http_server_config_default(&config);
    config.max_connections = CONNECTIONS_MAX;
    config.idle_timeout_ms = 0; /* cayd keeps its connection */
    rc = http_server_new(eg->loop, &config, handle, c, &c->server);
    if (rc == 0)
        rc = uv_poll_init(eg->loop, &c->poll, listen_fd);
    if (rc < 0) {
        event_stream_free(TAKE_PTR(eg->event_stream));
        free(c);
        return rc;
    }
    c->poll.data = c;
    uv_poll_start(&c->poll, UV_READABLE, on_connection);
    *out = c;
    return 0;
}

static void on_closed(uv_handle_t *h)
{
    struct control *c = h->data;

    close(c->fd);
    free(c);
}

static void on_stopped(void *ctx)
{
    struct control *c = ctx;

    event_stream_free(TAKE_PTR(c->egress->event_stream));
    uv_close((uv_handle_t *)&c->poll, on_closed);
}

void control_free(struct control *c)
{
    if (!c)
        return;
    c->egress->control = NULL;
    uv_poll_stop(&c->poll);
    http_server_stop(c->server, 0, on_stopped, c);
}
