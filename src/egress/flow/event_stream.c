#include "egress/flow/event_stream.h"
#include "egress/flow/denial.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "egress/flow/deny.h"
#include "egress/flow/egress.h"
#include "egress/flow/rate.h"
#include "egress/flow/registry.h"
#include "egress/flow/sandbox.h"
#include "http/json.h"
#include "http/server.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <uv.h>

#define TICK_MS  1000u
#define STUCK_MS 10000u /* a watcher that takes nothing for so long is cut: it comes again */

struct watcher {
    struct http_exchange *x; /* NULL: free */
    uint64_t full_ms;        /* since when it has not read; 0: it does */
};

struct event_stream {
    struct egress *egress;
    uv_timer_t tick; /* runs while something was counted; data: the tell */
    struct watcher watchers[EVENT_STREAM_WATCHERS_MAX];
};

/* -- who watches ------------------------------------------------------------------------------- */

static struct watcher *watcher_of(struct event_stream *t, const struct http_exchange *x)
{
    for (size_t i = 0; i < ARRAY_SIZE(t->watchers); i++)
        if (t->watchers[i].x == x)
            return &t->watchers[i];
    return NULL;
}

static void on_watcher_end(struct http_exchange *x, void *data)
{
    struct watcher *w = watcher_of(data, x);

    if (w)
        *w = (struct watcher){NULL, 0};
}

static void on_drain(struct http_exchange *x, void *data)
{
    struct watcher *w = watcher_of(data, x);

    if (w)
        w->full_ms = 0;
}

void event_stream_watch(struct event_stream *t, struct http_exchange *x)
{
    static const struct http_header type = {"Content-Type", "application/x-ndjson"};
    static const char hello[] = "{\"event\":\"hello\"}\n";
    struct watcher *w = watcher_of(t, NULL);

    if (!w) {
        http_respond_error(x, 503, "too many watch already");
        return;
    }
    w->x = x;
    http_exchange_set(x, t, on_watcher_end);
    http_response_on_drain(x, on_drain);
    http_response_begin(x, 200, &type, 1, -1);
    http_response_write(x, hello, sizeof(hello) - 1);
}

/* Is there a watcher? *full: one of them does not read. */
static bool is_watched(const struct event_stream *t, bool *full)
{
    bool watched = false;

    *full = false;
    for (size_t i = 0; i < ARRAY_SIZE(t->watchers); i++) {
        watched |= t->watchers[i].x != NULL;
        *full |= t->watchers[i].full_ms != 0;
    }
    return watched;
}

static void cut_stuck(struct event_stream *t)
{
    for (size_t i = 0; i < ARRAY_SIZE(t->watchers); i++) {
        struct watcher *w = &t->watchers[i];

        if (!w->full_ms || clock_mono_ms() - w->full_ms < STUCK_MS)
            continue;
        log_warn("the control channel: who watched for refusals did not read for %u s: cut",
                 STUCK_MS / 1000);
        http_exchange_abort(w->x);
    }
}

/* -- what is said ------------------------------------------------------------------------------ */

/* A line of o, which is dropped, for all who watch. False: memory is out. */
static bool say(struct event_stream *t, const char *event, const struct sandbox *s, json_t *o)
{
    char *text = NULL;
    bool said;

    if (!json_was_cut() && o && json_object_set_new(o, "event", json_string(event)) == 0 &&
        json_object_set_new(o, "sandbox", json_string(s->id)) == 0 &&
        json_object_set_new(o, "tenant", json_string(s->tenant)) == 0 &&
        json_object_set_new(o, "slot", json_integer(s->slot)) == 0 &&
        json_object_set_new(o, "gen", json_integer(s->gen)) == 0)
        text = json_text(o, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(o);
    said = text != NULL;
    for (size_t i = 0; text && i < ARRAY_SIZE(t->watchers); i++) {
        struct watcher *w = &t->watchers[i];

        if (!w->x)
            continue;
        http_response_write(w->x, text, strlen(text));
        if (http_response_write(w->x, "\n", 1) == 1 && !w->full_ms)
            w->full_ms = clock_mono_ms();
    }
    free(text);
    return said;
}

static void say_dropped(struct event_stream *t, struct sandbox *s)
{
    if (say(t, "dropped", s, json_pack("{s:I}", "count", (json_int_t)s->unannounced)))
        s->unannounced = 0;
}

/* As long as a watcher does not read, a refusal is only counted. */
static void on_tick(uv_timer_t *timer)
{
    struct event_stream *t = timer->data;
    bool full, watched = is_watched(t, &full), left = false;
    struct sandbox *s;

    cut_stuck(t);
    for (uint32_t slot = 0; (s = registry_next(t->egress, &slot));) {
        if (!watched)
            s->unannounced = 0; /* cayd is away: there is no watcher */
        if (s->unannounced && !full) {
            say_dropped(t, s);
            is_watched(t, &full);
        }
        left |= s->unannounced > 0;
    }
    if (!left && !full)
        uv_timer_stop(timer);
}

void event_stream_denial(struct egress *eg, struct sandbox *s, const struct denial *d)
{
    struct sandbox *whole = s->parent ? s->parent : s;
    struct event_stream *t = eg->event_stream;
    bool full;

    if (!t || !is_watched(t, &full))
        return;
    if (!full && whole->unannounced == 0 && rate_take(&whole->announced, EVENT_STREAM_PER_SECOND) &&
        say(t, "denial", whole, denial_json(d)))
        return;
    whole->unannounced++;
    if (!uv_is_active((uv_handle_t *)&t->tick))
        uv_timer_start(&t->tick, on_tick, TICK_MS, TICK_MS);
}

bool event_stream_ask(struct egress *eg, struct sandbox *s, json_t *question)
{
    bool full = false, announced = eg->event_stream && is_watched(eg->event_stream, &full) &&
                                   !full && question &&
                                   rate_take(&s->announced, EVENT_STREAM_PER_SECOND);

    if (announced)
        announced = say(eg->event_stream, "ask", s, json_incref(question));
    json_decref(question);
    return announced;
}

void event_stream_send_renewal(struct egress *eg, struct sandbox *s, json_t *request)
{
    bool full = false;

    if (eg->event_stream && is_watched(eg->event_stream, &full) && !full &&
        !say(eg->event_stream, "renewal", s, json_incref(request)))
        log_error("memory is out: a credential's renewal was not asked for; requests that need it "
                  "are refused until it is asked for again");
    json_decref(request);
}

void event_stream_end(struct egress *eg, struct sandbox *s)
{
    if (eg->event_stream && s->unannounced)
        say_dropped(eg->event_stream, s);
}

/* -- life -------------------------------------------------------------------------------------- */

int event_stream_new(struct egress *eg, struct event_stream **out)
{
    struct event_stream *t = calloc(1, sizeof(*t));

    if (!t)
        return -ENOMEM;
    t->egress = eg;
    uv_timer_init(eg->loop, &t->tick);
    t->tick.data = t;
    *out = t;
    return 0;
}

static void on_closed(uv_handle_t *h)
{
    free(h->data);
}

void event_stream_free(struct event_stream *t)
{
    if (t)
        uv_close((uv_handle_t *)&t->tick, on_closed);
}
