/* An HTTP request to an agent, through a socket in its sandbox, or to a server on a unix socket:
 * see call.h. The socket comes first (sockets.c, or the caller's), then the connect, then the HTTP
 * client has the descriptor until it is done. Body and headers are the client's until then, so that
 * a call whose owner was told already (core_free, call_cancel) is freed only when the client has
 * ended. */

#include "core/call_internal.h"

#include "base/base64.h"
#include "base/loopback.h"
#include "contract/agent_boot.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/deferred.h"
#include "core/reserve.h"
#include "core/sandbox.h"
#include "http/client.h"
#include "http/json.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define USER_MAX 64 /* the most that an agent takes */

struct agent_call {
    struct call call;
    struct call_agent_request request;
    char key_hex[2 * PRIVSEP_KEY_SIZE + 1];
    char target[CALL_TARGET_MAX + 1]; /* of call_unix */
    char *target_copy;                /* of a request with copy_target */
    char authorization[USER_MAX * 2], agent_timeout[24], agent_beat[24], range[CALL_RANGE_SIZE];
    struct http_header headers[7];
    size_t n_headers;
    uint16_t port;
    int fd; /* of call_agent_at; then the HTTP client's, while in_http */
    bool in_http;
    int connect_error; /* -errno, until its answer in the next turn */
    call_agent_cb cb;
    void *arg;
    struct deferred later;
};

/* -- the agent --------------------------------------------------------------------------------- */

static void free_agent_call(struct agent_call *a)
{
    if (a->request.body) /* of /init and of what is sealed: secrets */
        explicit_bzero(a->request.body, a->request.body_len);
    free(a->request.body);
    free(a->target_copy);
    free(a);
}

static void cancel_agent(struct call *call)
{
    struct agent_call *a = CONTAINER_OF(call, struct agent_call, call);
    struct core *c = call->core;
    struct err why;

    call_unlink(call);
    err_set(&why, ERR_CANCELED, "the server is stopping");
    if (a->in_http) /* a program's output may not end for long: on_http_done comes now */
        shutdown(a->fd, SHUT_RDWR);
    a->cb(c, call->id, &why, 0, NULL, 0, a->arg);
}

/* a is not freed here: its body and headers are the HTTP client's until it is done with them. */
static void agent_answer(struct agent_call *a, const struct err *why, int status, const char *body,
                         size_t len)
{
    struct core *c = a->call.core;

    if (c) {
        call_unlink(&a->call);
        a->cb(c, a->call.id, why, status, body, len, a->arg);
    }
    free_agent_call(a);
}

static void on_http_done(void *arg, const struct http_head *head, const char *body, size_t len,
                         const struct err *why, int *fd)
{
    struct agent_call *a = arg;

    a->in_http = false;
    if (head)
        agent_answer(a, NULL, head->status, body, len);
    else
        agent_answer(a, why, 0, NULL, 0);
}

/* After a cancel the owner is told nothing more: the call ends at its next bytes. */
static bool on_http_data(void *arg, const char *data, size_t len)
{
    struct agent_call *a = arg;

    return a->call.core && a->request.on_data(a->arg, data, len);
}

/* Said in the next turn, never from inside the call. */
static void answer_unreachable(void *arg)
{
    struct agent_call *a = arg;
    struct err e;

    err_set_sys(&e, ERR_UNAVAILABLE, a->connect_error, "its socket cannot be reached");
    agent_answer(a, &e, 0, NULL, 0);
}

static void send_http(struct agent_call *a, int fd, bool connecting, const char *host)
{
    struct http_client_request h = {.fd = fd,
                                    .connecting = connecting,
                                    .method = a->request.method,
                                    .target = a->request.target,
                                    .host = host,
                                    .headers = a->headers,
                                    .header_count = a->n_headers,
                                    .body = a->request.body,
                                    .body_len = a->request.body_len,
                                    .on_data = a->request.on_data ? on_http_data : NULL,
                                    .max_response_bytes = a->request.max_response_bytes,
                                    .timeout_ms = a->request.timeout_ms,
                                    .done = on_http_done,
                                    .arg = a};

    a->fd = fd;
    a->in_http = true;
    if (http_client_send(a->call.core->loop, &h) == 0)
        return;
    a->in_http = false;
    a->connect_error = -ENOMEM;
    core_defer(a->call.core, &a->later, answer_unreachable, a);
}

static void on_socket(void *arg, int *fds, size_t n, const struct err *why)
{
    struct agent_call *a = arg;
    struct err e;
    int connecting;

    if (!why && !a->request.target) {
        err_set(&e, ERR_UNAVAILABLE, "memory is out");
        why = &e;
    }
    if (why || !a->call.core) {
        if (n)
            util_close(&fds[0]);
        agent_answer(a, why, 0, NULL, 0);
        return;
    }
    connecting = loopback_connect(fds[0], a->port);
    if (connecting < 0) {
        util_close(&fds[0]);
        err_set_sys(&e, ERR_UNAVAILABLE, connecting, "connecting to the sandbox's agent");
        agent_answer(a, &e, 0, NULL, 0);
        return;
    }
    send_http(a, fds[0], connecting == 1, "127.0.0.1");
}

static void add_header(struct agent_call *a, const char *name, const char *value)
{
    a->headers[a->n_headers++] = (struct http_header){name, value};
}

static struct agent_call *new_call(struct core *c, const char *id,
                                   const struct call_agent_request *r, call_agent_cb cb, void *arg)
{
    struct agent_call *a = RESERVE_NEW(&c->reserve, struct agent_call);

    a->request = *r;
    a->cb = cb;
    a->arg = arg;
    a->call.cancel = cancel_agent;
    if (r->body) {
        a->request.body_len = r->body_len ? r->body_len : strlen(r->body);
        add_header(a, "Content-Type", r->type ? r->type : "application/json");
    }
    if (r->copy_target)
        a->request.target = a->target_copy = strdup(r->target);
    call_link(c, &a->call, id);
    return a;
}

/* Basic authorization names the user; the right to ask was checked before. */
static void add_user(struct agent_call *a, const char *user)
{
    static const char scheme[] = "Basic ";
    char text[USER_MAX + 2];
    int n = snprintf(text, sizeof(text), "%.*s:", USER_MAX, user);

    memcpy(a->authorization, scheme, sizeof(scheme));
    base64_encode(text, (size_t)n, a->authorization + strlen(scheme));
    add_header(a, "Authorization", a->authorization);
}

static void prepare_agent(struct agent_call *a, const uint8_t key[static PRIVSEP_KEY_SIZE])
{
    const struct core_config *config = &a->call.core->config;

    a->port = config->agent_port ? config->agent_port : AGENT_PORT;
    ids_hex(key, PRIVSEP_KEY_SIZE, a->key_hex);
    add_header(a, AGENT_KEY_HEADER, a->key_hex);
    if (a->request.user)
        add_user(a, a->request.user);
    if (a->request.own_rights)
        add_header(a, AGENT_ACCESS_HEADER, "user");
    if (a->request.range) {
        (void)snprintf(a->range, sizeof(a->range), "%s", a->request.range);
        add_header(a, "Range", a->range);
    }
    a->request.user = a->request.range = NULL; /* the caller's */
    (void)snprintf(a->agent_timeout, sizeof(a->agent_timeout), "%llu",
                   (unsigned long long)a->request.agent_timeout_ms);
    (void)snprintf(a->agent_beat, sizeof(a->agent_beat), "%llu",
                   (unsigned long long)a->request.agent_beat_ms / 1000);
    if (a->request.agent_timeout_ms > 0)
        add_header(a, "Connect-Timeout-Ms", a->agent_timeout);
    if (a->request.agent_beat_ms > 0)
        add_header(a, "Keepalive-Ping-Interval", a->agent_beat);
}

static void use_socket(void *arg)
{
    struct agent_call *a = arg;

    on_socket(a, &a->fd, 1, NULL);
}

void call_agent_at(struct core *c, const char *id, int fd,
                   const uint8_t key[static PRIVSEP_KEY_SIZE], const struct call_agent_request *r,
                   call_agent_cb cb, void *arg)
{
    struct agent_call *a = new_call(c, id, r, cb, arg);

    a->fd = fd;
    prepare_agent(a, key);
    core_defer(c, &a->later, use_socket, a);
}

void call_agent(struct sandbox_obj *o, const struct call_agent_request *r, call_agent_cb cb,
                void *arg)
{
    struct agent_call *a = new_call(o->core, o->s.id, r, cb, arg);

    prepare_agent(a, o->s.agent_key);
    sockets_get(o, 1, on_socket, a);
}

/* -- a unix socket ----------------------------------------------------------------------------- */

int call_connect_unix(const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    CLEANUP_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -errno;
    if (strlen(path) >= sizeof(to.sun_path))
        return -ENAMETOOLONG;
    memcpy(to.sun_path, path, strlen(path) + 1);
    if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) < 0)
        return -errno;
    return TAKE_FD(fd);
}

struct call *call_unix(struct core *c, const char *id, const char *path,
                       const struct call_agent_request *r, call_agent_cb cb, void *arg)
{
    struct agent_call *a = new_call(c, id, r, cb, arg);
    int fd = call_connect_unix(path);

    (void)snprintf(a->target, sizeof(a->target), "%s", r->target);
    a->request.target = a->target;
    if (fd >= 0) {
        send_http(a, fd, false, "localhost");
        return &a->call;
    }
    a->connect_error = fd;
    core_defer(c, &a->later, answer_unreachable, a);
    return &a->call;
}

json_t *call_agent_env(const struct err *why, int http_status, const char *body, size_t len)
{
    json_t *env = NULL;
    struct err e;

    if (why || http_status != 200 || !body ||
        json_parse_request(body, len, false, &env, &e) != ERR_OK || json_is_object(env))
        return env;
    json_decref(env);
    return NULL;
}
