#include "mcp/request.h"

#include "base/log.h"
#include "core/exec.h"
#include "http/json.h"

#include <errno.h>
#include <string.h>

struct request *request_new(struct mcp *m, struct api_call *http, struct rpc_message *message)
{
    struct request *r = calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    r->mcp = m;
    r->core = m->core;
    r->http = http;
    r->message = *message;
    *message = (struct rpc_message){0};
    memcpy(r->tenant, http->who.tenant, sizeof(r->tenant));
    r->next = m->requests;
    r->prev = &m->requests;
    if (r->next)
        r->next->prev = &r->next;
    m->requests = r;
    return r;
}

static void discard(struct request *r)
{
    *r->prev = r->next;
    if (r->next)
        r->next->prev = r->prev;
    if (r->state_free)
        r->state_free(r->state);
    rpc_message_free(&r->message);
    free(r);
}

struct session *request_session(struct request *r)
{
    return r->session[0] ? session_find(r->mcp->sessions, r->tenant, r->session) : NULL;
}

/* -- streams ----------------------------------------------------------------------------------- */

static void on_gone(void *arg)
{
    struct request *r = arg;

    pipe_writer_cut(TAKE_PTR(r->out));
    request_drop(r);
}

bool request_stream(struct request *r)
{
    const struct pipe_writer_owner owner = {.on_gone = on_gone, .arg = r};
    struct share *share;
    int fd, rc;

    if (!r->takes_stream || r->out || !r->http)
        return true;
    share = pipe_writer_share(r->core, r->tenant, r->sandbox);
    if (!share) {
        request_error(r, 429, 429,
                      "as many streams as this tenant or sandbox may have are not read by their "
                      "clients yet",
                      NULL);
        return false;
    }
    r->out = pipe_writer_new(r->core, REQUEST_NOTES_MAX + REQUEST_ANSWER_MAX, &owner, share, &fd,
                             &rc);
    if (!r->out) {
        request_error(r, 503, RPC_INTERNAL_ERROR, "a stream for the answer cannot be made", NULL);
        return false;
    }
    api_header_add(r->http, "Cache-Control", "no-store");
    api_header_add(r->http, "X-Accel-Buffering", "no");
    api_reply_stream(TAKE_PTR(r->http), "text/event-stream", fd);
    return true;
}

/* A note beyond REQUEST_NOTES_MAX unread bytes is left out, so that the answer has room. */
static void put_note(struct request *r, const char *bytes, size_t n)
{
    size_t held = pipe_writer_held(r->out);

    if (n > REQUEST_NOTES_MAX || held > REQUEST_NOTES_MAX - n)
        return;
    if (pipe_writer_put(r->out, bytes, n) == -EPIPE)
        request_drop(r);
}

void request_notify(struct request *r, const char *method, json_t *params)
{
    json_t *message = rpc_notification(method, params);
    CLEANUP_BUF struct buf b;

    buf_init(&b, REQUEST_NOTES_MAX);
    if (!json_was_cut() && r->out && message && !r->dropped && rpc_put_event(&b, message) == 0)
        put_note(r, b.data, b.len);
    json_decref(message);
}

void request_beat(struct request *r)
{
    static const char comment[] = ":\n\n";

    if (r->out)
        put_note(r, comment, strlen(comment));
}

bool request_is_left(const struct request *r)
{
    if (r->dropped)
        return true;
    return r->http && r->http->request->gone && atomic_load(r->http->request->gone);
}

/* -- answers ----------------------------------------------------------------------------------- */

/* 0, -EPIPE, -EMSGSIZE, -ENOMEM. */
static int put_answer(struct request *r, const json_t *message)
{
    CLEANUP_BUF struct buf b;
    int rc;

    buf_init(&b, REQUEST_ANSWER_MAX);
    rc = message ? rpc_put_event(&b, message) : -ENOMEM;
    return rc == 0 ? pipe_writer_put(r->out, b.data, b.len) : rc;
}

/* A stream never ends without an answer while its client reads: one that cannot be told is replaced
 * by an error that says so. */
static void answer_stream(struct request *r, const json_t *message)
{
    int rc = put_answer(r, message);
    json_t *why;

    if (rc == 0 || rc == -EPIPE)
        return;
    why = rpc_error(r->message.id, RPC_INTERNAL_ERROR,
                    rc == -EMSGSIZE ? "the answer is longer than 4 MiB; ask for less at a time"
                                    : "the server's memory is out; try again in a moment",
                    NULL);
    rc = put_answer(r, why);
    json_decref(why);
    if (rc < 0 && rc != -EPIPE)
        log_warn("mcp: memory is out: a stream ends without its answer");
}

/* Takes the reference to message. */
static void answer(struct request *r, int status, json_t *message)
{
    CLEANUP_FREE char *text = NULL;

    if (json_was_cut())
        json_decref(TAKE_PTR(message));
    text = r->http ? json_text(message, JSON_COMPACT) : NULL;
    if (r->dropped) {
        json_decref(message);
        request_done(r);
        return;
    }
    if (r->out) {
        answer_stream(r, message);
        pipe_writer_end(TAKE_PTR(r->out));
    } else if (r->http && text) {
        api_reply_text(TAKE_PTR(r->http), status, text, strlen(text));
    } else if (r->http) {
        api_fail(TAKE_PTR(r->http), 503, "memory is out");
    }
    json_decref(message);
    discard(r);
}

static void sign(json_t *result)
{
    json_t *meta = json_object_get(result, "_meta");

    if (!meta && (meta = json_object()))
        json_object_set_new(result, "_meta", meta);
    json_object_set_new(meta, REVISION_META_SERVER,
                        json_pack("{s:s, s:s}", "name", "cay", "version", CAY_VERSION));
}

void request_result(struct request *r, json_t *result)
{
    if (!result) {
        request_error(r, 503, RPC_INTERNAL_ERROR, "memory is out", NULL);
        return;
    }
    if (r->revision && r->revision->stateless) {
        json_object_set_new(result, "resultType", json_string("complete"));
        sign(result);
    }
    answer(r, 200, rpc_result(r->message.id, result));
}

void request_result_cached(struct request *r, json_t *result, int64_t ttl_ms, bool is_private)
{
    if (result && r->revision->stateless) {
        json_object_set_new(result, "ttlMs", json_integer(ttl_ms));
        json_object_set_new(result, "cacheScope", json_string(is_private ? "private" : "public"));
    }
    request_result(r, result);
}

void request_error(struct request *r, int status, int code, const char *message, json_t *data)
{
    if (json_was_cut())
        json_decref(TAKE_PTR(data));
    answer(r, status, rpc_error(r->message.id, code, message, data));
}

void request_done(struct request *r)
{
    if (r->out)
        pipe_writer_end(TAKE_PTR(r->out));
    if (r->http)
        api_reply_empty(TAKE_PTR(r->http), 202);
    discard(r);
}

/* -- given up ---------------------------------------------------------------------------------- */

void request_drop(struct request *r)
{
    if (!r->dropped && r->exec)
        core_exec_stop(r->core, r->exec);
    r->dropped = true;
}

void request_cancel(struct mcp *m, const char *tenant, const char *session, const json_t *id)
{
    for (struct request *r = m->requests; r; r = r->next)
        if (strcmp(r->tenant, tenant) == 0 && strcmp(r->session, session) == 0 &&
            rpc_same_id(r->message.id, id))
            request_drop(r);
}
