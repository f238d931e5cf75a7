/* The events that newer clients of Daytona's wait for: a sandbox of theirs is there, or went from
 * state to state. Lines of text, each one packet of Socket.IO (42["name",{...}]), as
 * src/toolbox/events.c passes them on: that file speaks WebSocket with the client, and asks this
 * route with the key that the client gave. */
#include "api/daytona.h"

#include "core/life.h"
#include "core/state_follow.h"
#include "http/json.h"

#include <errno.h>
#include <string.h>

struct view {
    struct core *core;
    const struct api *api;
    char *host; /* as the client has named this server */
};

static void view_free(void *arg)
{
    struct view *v = arg;

    free(v->host);
    free(v);
}

/* Takes data over. 0 or -errno. */
static int put_event(struct buf *out, const char *name, json_t *data)
{
    json_t *event = json_pack("[s, o]", name, data);
    char *text = json_text(event, JSON_COMPACT);
    char *line = NULL;
    int n = text ? asprintf(&line, "42%s\n", text) : -1;
    int rc = n < 0 ? -ENOMEM : buf_append(out, line, (size_t)n);

    if (n >= 0)
        free(line);
    free(text);
    json_decref(event);
    return rc;
}

/* Of a sandbox whose labels are so long that they do not fit, what clients look at. */
static json_t *short_form(const struct sandbox *s)
{
    return json_pack("{s:s, s:s}", "id", s->id, "state", daytona_state(s));
}

static int put_step(struct buf *out, json_t *dto, const struct sandbox *s, enum sandbox_state from)
{
    return put_event(out, "sandbox.state.updated",
                     json_pack("{s:o, s:s, s:s}", "sandbox", dto, "oldState",
                               daytona_state_name(from), "newState", daytona_state(s)));
}

/* A sandbox that is being made is not known to clients yet; its end is told in any case. */
static int put(void *arg, const struct sandbox *s, enum sandbox_state from, struct buf *out)
{
    const struct view *v = arg;
    bool was_known = life_of(from)->visible, is_known = life_of(s->state)->visible;
    json_t *dto;
    int rc = 0;

    if (!was_known && !is_known && life_of(s->state)->next)
        return 0;
    dto = daytona_sandbox_json_of(v->core, v->api, v->host, s, false);
    if (!dto)
        return -ENOMEM;
    if (!was_known && is_known)
        rc = put_event(out, "sandbox.created", json_incref(dto));
    if (rc == 0 || rc == -EMSGSIZE)
        rc = put_step(out, json_incref(dto), s, from);
    if (rc == -EMSGSIZE)
        rc = put_step(out, short_form(s), s, from);
    json_decref(dto);
    return rc;
}

static struct view *view_new(const struct api_call *call)
{
    struct view *v = calloc(1, sizeof(*v));

    if (!v)
        return NULL;
    v->core = call->core;
    v->api = call->api;
    v->host = strdup(call->request->host);
    if (v->host)
        return v;
    free(v);
    return NULL;
}

void daytona_events(struct api_call *call)
{
    struct state_format format = {put, view_free, NULL};
    struct err e;
    int fd;

    if (!call->request->is_socket) {
        api_fail(call, 426, "this is for WebSocket, version 13");
        return;
    }
    format.arg = view_new(call);
    if (!format.arg)
        api_fail(call, 503, "memory is out");
    else if (core_states_follow(call->core, call->who.tenant, call->request->key, &format, &fd,
                                &e) != ERR_OK)
        api_fail_err(call, &e);
    else
        api_reply_stream(call, "text/plain", fd);
}
