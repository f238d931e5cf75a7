/* The stream of events that newer clients open at their start, by Socket.IO over WebSocket: the
 * handshake, the key, and signs of life. What changes is asked for by the clients beside it, which
 * they do in any case.
 *
 * Source: Engine.IO protocol 4 and Socket.IO protocol 5 (socket.io/docs), websocket transport
 * alone. */
#include "toolbox/events.h"

#include "base/clock.h"
#include "http/websocket.h"

#include <stdio.h>
#include <string.h>

#define MESSAGE_MAX 16384u
#define PING_MS     25000
#define CONNECT_MS  10000u /* for the key to come */

struct events {
    struct events *next, **prev;
    struct toolbox_call *call;
    struct websocket *socket;
    uint64_t ping_ms, due_ms; /* of clock_mono_ms; due: 0 when the key was good */
    bool asking;
};

static void unlink_events(struct events *e)
{
    *e->prev = e->next;
    if (e->next)
        e->next->prev = e->prev;
}

static void on_gone(struct toolbox_call *c)
{
    unlink_events(c->state);
}

static void say(struct events *e, const char *text)
{
    websocket_send(e->socket, true, text, strlen(text));
}

/* -- the key ----------------------------------------------------------------------------------- */

/* The question is about a sandbox that has no name: the answer is that there is none, or that the
 * key is not known. */
static void on_asked(void *arg, struct gateway_answer *a)
{
    struct events *e = arg;
    struct toolbox_call *c = e->call;
    char sid[TOOLBOX_TOKEN_SIZE], text[TOOLBOX_TOKEN_SIZE + 16];

    e->asking = false;
    if (c->x && a && a->status != 401) {
        e->due_ms = 0;
        toolbox_token(sid);
        snprintf(text, sizeof(text), "40{\"sid\":\"%.20s\"}", sid);
        say(e, text);
    } else if (c->x) {
        say(e, a ? "44{\"message\":\"Invalid credentials\"}" : "44{\"message\":\"try again\"}");
        websocket_close(e->socket, WEBSOCKET_POLICY, "");
    }
    toolbox_call_unref(c);
}

static void on_connect(struct events *e, const char *text, size_t len)
{
    json_t *o = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
    const char *token = json_string_value(json_object_get(o, "token"));
    char *key = strdup(token ? token : "");

    json_decref(o);
    if (e->asking || !e->due_ms || !key) {
        free(key);
        return;
    }
    explicit_bzero(e->call->key, strlen(e->call->key));
    free(e->call->key);
    e->call->key = key;
    e->asking = true;
    toolbox_call_ref(e->call);
    toolbox_lookup(e->call, on_asked, e);
}

static void on_message(void *arg, bool text, const char *data, size_t len)
{
    struct events *e = arg;

    if (text && len >= 2 && memcmp(data, "40", 2) == 0)
        on_connect(e, data + 2, len - 2);
    else if (text && len >= 1 && data[0] == '2') /* a ping of an older protocol */
        say(e, "3");
    else if (text && len >= 2 && memcmp(data, "41", 2) == 0)
        websocket_close(e->socket, WEBSOCKET_NORMAL, "");
}

/* -- time -------------------------------------------------------------------------------------- */

/* One that takes nothing is not waited for: until it took the close, what it was answered would be
 * held. */
static void end_without_key(struct events *e)
{
    if (http_response_queued(e->call->x) > 0)
        http_exchange_abort(e->call->x);
    else
        websocket_close(e->socket, WEBSOCKET_POLICY, "no key came");
}

void toolbox_events_sweep(struct toolbox *t, uint64_t now_ms)
{
    for (struct events *e = t->events; e; e = e->next) {
        if (e->due_ms && e->due_ms <= now_ms && !e->asking)
            end_without_key(e);
        if (e->ping_ms > now_ms)
            continue;
        e->ping_ms = now_ms + PING_MS;
        say(e, "2");
    }
}

void toolbox_events_end(struct toolbox *t)
{
    for (struct events *e = t->events; e; e = e->next)
        websocket_close(e->socket, WEBSOCKET_NORMAL, "the server is stopping");
}

/* -- the request ------------------------------------------------------------------------------- */

void toolbox_events(struct toolbox_call *c)
{
    static const struct websocket_callbacks callbacks = {on_message, NULL};
    struct events *e = calloc(1, sizeof(*e));
    char sid[TOOLBOX_TOKEN_SIZE], text[200];

    if (!e) {
        toolbox_fail(c, 503, NULL, "memory is out");
        return;
    }
    c->state = e;
    c->state_free = free;
    c->answered = true;
    e->call = c;
    e->socket = websocket_accept(c->x, NULL, MESSAGE_MAX, &callbacks, e);
    if (!e->socket)
        return;
    e->ping_ms = clock_mono_ms() + PING_MS;
    e->due_ms = clock_mono_ms() + CONNECT_MS;
    e->next = c->toolbox->events;
    e->prev = &c->toolbox->events;
    if (e->next)
        e->next->prev = &e->next;
    c->toolbox->events = e;
    c->on_gone = on_gone;
    toolbox_need_sweep(c->toolbox);
    toolbox_token(sid);
    snprintf(text, sizeof(text),
             "0{\"sid\":\"%.20s\",\"upgrades\":[],\"pingInterval\":%d,\"pingTimeout\":20000,"
             "\"maxPayload\":%u}",
             sid, PING_MS, MESSAGE_MAX);
    say(e, text);
}
