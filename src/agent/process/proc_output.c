/* Bytes go from a pipe or terminal to each subscriber's stream, encoded once. Reading stops
 * while a subscriber's queue is full and goes on when it has drained (or was cut after
 * PROC_STALL_MS), and while all outputs together are faster than output_rate.h allows. A
 * subscriber lives from proc_subscribe until both its exchange is closed and its timer is; the
 * process forgets it earlier. */

#include "agent/process/proc_output.h"

#include "agent/process/proc.h"
#include "agent/process/proc_oom.h"
#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A process waits for the slowest of its subscribers, as it would for a pipe's reader, but never
 * for ever: one whose queue has not shrunk for PROC_STALL_MS is cut. Without a subscriber output is
 * read and dropped, so a process never waits without a reader. */

#define OUTPUT_DRAIN_MAX (1024u * 1024u) /* the most that a pipe can hold */
#define OUTPUT_JSON_MAX  64u             /* around the base64 text */

/* -- subscribers ------------------------------------------------------------------------------- */

static void read_again(struct proc *p);

static void subscriber_free_if_done(struct proc_subscriber *s)
{
    if (!s->x && s->timer_closed)
        free(s);
}

static void on_timer_closed(uv_handle_t *h)
{
    struct proc_subscriber *s = h->data;

    s->timer_closed = true;
    subscriber_free_if_done(s);
}

/* The process forgets the subscriber; its stream may still be on its way out. */
static void detach(struct proc_subscriber *s)
{
    struct proc *p = s->proc;
    struct proc_subscriber **at;

    if (!p)
        return;
    for (at = &p->subscribers; *at != s; at = &(*at)->next)
        ;
    *at = s->next;
    s->proc = NULL;
    p->subscriber_count--;
    s->agent->processes->subscriber_count--;
    uv_close((uv_handle_t *)&s->timer, on_timer_closed);
    read_again(p);
}

static void on_exchange_closed(struct http_exchange *x UNUSED, void *data)
{
    struct proc_subscriber *s = data;

    s->x = NULL;
    detach(s);
    subscriber_free_if_done(s);
}

static void on_time(uv_timer_t *timer);

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}

static void arm(struct proc_subscriber *s)
{
    uint64_t now = clock_mono_ms(),
             at = earlier(s->keepalive_at, earlier(s->stall_at, s->deadline_at));

    uv_timer_start(&s->timer, on_time, at > now ? at - now : 0, 0);
}

static void cut(struct proc_subscriber *s, enum connect_code code, const char *why)
{
    struct http_exchange *x = s->x;

    detach(s);
    connect_stream_end(x, code, "%s", why);
}

/* True when the stream has taken something since the last look. */
static bool made_progress(struct proc_subscriber *s)
{
    size_t queued = http_response_queued(s->x), before = s->queued;

    s->queued = queued;
    return queued < before;
}

static void send_keepalive(struct proc_subscriber *s, uint64_t now)
{
    static const char text[] = "{\"event\":{\"keepalive\":{}}}";

    s->keepalive_at = now + s->keepalive_ms;
    if (!s->full)
        (void)connect_stream_send_text(s->x, text, sizeof(text) - 1);
}

static void on_time(uv_timer_t *timer)
{
    struct proc_subscriber *s = timer->data;
    uint64_t now = clock_mono_ms();

    if (s->deadline_at != 0 && s->deadline_at <= now) {
        cut(s, CONNECT_DEADLINE_EXCEEDED, "the stream's time (Connect-Timeout-Ms) is over");
        return;
    }
    if (s->stall_at != 0 && s->stall_at <= now) {
        if (!made_progress(s)) {
            cut(s, CONNECT_RESOURCE_EXHAUSTED, "too slow: the process waited 30 s for this stream");
            return;
        }
        s->stall_at = now + PROC_STALL_MS;
    }
    if (s->keepalive_at <= now)
        send_keepalive(s, now);
    if (s->proc)
        arm(s);
}

static void on_drained(struct http_exchange *x UNUSED, void *data)
{
    struct proc_subscriber *s = data;

    s->full = false;
    s->stall_at = 0;
    if (s->proc)
        read_again(s->proc);
}

static void send_to(struct proc_subscriber *s, const char *json, size_t len, uint64_t now)
{
    if (s->keepalive_ms > 0)
        s->keepalive_at = now + s->keepalive_ms;
    if (connect_stream_send_text(s->x, json, len) == 0 || !s->proc || s->full)
        return;
    s->full = true;
    s->queued = http_response_queued(s->x);
    s->stall_at = now + PROC_STALL_MS;
    http_response_on_drain(s->x, on_drained);
    arm(s);
}

static void send_to_all(struct proc *p, const char *json, size_t len)
{
    uint64_t now = clock_mono_ms();

    for (struct proc_subscriber *s = p->subscribers, *next; s; s = next) {
        next = s->next; /* a send that fails may close s */
        send_to(s, json, len, now);
    }
}

/* Keepalive-Ping-Interval: seconds; any but a sensible number means the default. */
static uint64_t keepalive_interval_ms(const struct http_exchange *x)
{
    const char *text = http_head_get(http_exchange_head(x), "Keepalive-Ping-Interval");
    char *end;
    long s;

    if (!text)
        return PROC_KEEPALIVE_MS;
    s = strtol(text, &end, 10);
    if (end == text || *end != '\0' || s < 1 || s > 86400)
        return PROC_KEEPALIVE_MS;
    return (uint64_t)s * 1000;
}

static void send_start(struct http_exchange *x, pid_t pid)
{
    char text[64];
    int n = snprintf(text, sizeof(text), "{\"event\":{\"start\":{\"pid\":%d}}}", (int)pid);

    (void)connect_stream_send_text(x, text, (size_t)n);
}

int proc_subscribe(struct proc *p, struct http_exchange *x, bool starter, uint64_t stream_ms)
{
    struct process_table *t = p->agent->processes;
    struct proc_subscriber *s;
    uint64_t now = clock_mono_ms();

    if (p->subscriber_count >= PROC_SUBSCRIBERS_EACH || t->subscriber_count >= PROC_SUBSCRIBERS_MAX)
        return -ENOSPC;
    s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    *s = (struct proc_subscriber){.agent = p->agent,
                                  .x = x,
                                  .proc = p,
                                  .starter = starter,
                                  .keepalive_ms = keepalive_interval_ms(x),
                                  .deadline_at = stream_ms ? now + stream_ms : 0,
                                  .next = p->subscribers};
    s->keepalive_at = now + s->keepalive_ms;
    uv_timer_init(p->agent->loop, &s->timer);
    s->timer.data = s;
    p->subscribers = s;
    p->subscriber_count++;
    t->subscriber_count++;
    http_exchange_set(x, s, on_exchange_closed);
    connect_stream_begin(x);
    send_start(x, p->pid);
    if (s->proc)
        arm(s);
    return 0;
}

void proc_report_end(struct proc *p)
{
    const struct proc_end end = {p->pid, p->wait_status, p->oom, p->name};
    json_t *event = proc_end_event(p->agent, &end);

    while (p->subscribers) {
        struct http_exchange *x = p->subscribers->x;

        detach(p->subscribers);
        (void)connect_stream_send(x, event);
        connect_stream_end(x, CONNECT_OK, "%s", "");
    }
    json_decref(event);
}

void proc_report_deadline(struct proc *p)
{
    for (struct proc_subscriber *s = p->subscribers, *next; s; s = next) {
        next = s->next;
        if (s->starter)
            cut(s, CONNECT_DEADLINE_EXCEEDED, PROC_DEADLINE_TEXT);
    }
}

/* -- outputs ----------------------------------------------------------------------------------- */

static const char *const kind_names[] = {
    [PROC_STDOUT] = "stdout",
    [PROC_STDERR] = "stderr",
    [PROC_PTY] = "pty",
};

static char *get_scratch(struct process_table *t)
{
    if (!t->scratch)
        t->scratch = malloc(PROC_PIPE_CHUNK + base64_encoded_len(PROC_PIPE_CHUNK) +
                            OUTPUT_JSON_MAX);
    return t->scratch;
}

static void publish(struct proc_output *o, const char *bytes, size_t n, char *json)
{
    size_t len;

    if (!o->proc->subscribers)
        return;
    output_rate_charge(&o->proc->agent->processes->output_rate, n * o->proc->subscriber_count);
    len = (size_t)snprintf(json, OUTPUT_JSON_MAX / 2, "{\"event\":{\"data\":{\"%s\":\"",
                           kind_names[o->kind]);
    base64_encode(bytes, n, json + len);
    len += base64_encoded_len(n);
    len += (size_t)snprintf(json + len, OUTPUT_JSON_MAX / 2, "\"}}}");
    send_to_all(o->proc, json, len);
}

/* A shell's "Killed" does not say why: at a terminal the reason is a line after it. */
static void publish_terminal(struct proc_output *o, const char *bytes, size_t n, char *json)
{
    size_t line = proc_oom_line(o->proc, bytes, n);
    char why[512], text[sizeof(why) + 8];

    if (line > 0) {
        publish(o, bytes, line, json);
        proc_oom_text(o->proc->agent, NULL, why, sizeof(why));
        publish(o, text, (size_t)snprintf(text, sizeof(text), "[%s]\r\n", why), json);
    }
    if (line < n)
        publish(o, bytes + line, n - line, json);
}

/* Reads once and sends. Bytes read; 0 at the end; -EAGAIN when there is nothing now. */
static ssize_t pump(struct proc_output *o)
{
    char *scratch = get_scratch(o->proc->agent->processes);
    size_t chunk = o->kind == PROC_PTY ? PROC_PTY_CHUNK : PROC_PIPE_CHUNK;
    ssize_t n;

    if (!scratch)
        return -EAGAIN;
    n = read(o->fd, scratch, chunk);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? -EAGAIN : 0; /* EIO: no program holds the tty */
    o->bytes += (uint64_t)n;
    if (n > 0 && o->proc->watcher)
        o->proc->watcher->output(o->proc->watcher, scratch, (size_t)n);
    if (n > 0 && o->kind == PROC_PTY)
        publish_terminal(o, scratch, (size_t)n, scratch + PROC_PIPE_CHUNK);
    else if (n > 0)
        publish(o, scratch, (size_t)n, scratch + PROC_PIPE_CHUNK);
    return n;
}

static bool anyone_full(const struct proc *p)
{
    for (const struct proc_subscriber *s = p->subscribers; s; s = s->next)
        if (s->full)
            return true;
    return false;
}

static void on_readable(uv_poll_t *poll, int status, int events);

static void watch(struct proc *p, bool on)
{
    p->paused = !on;
    for (size_t i = 0; i < ARRAY_SIZE(p->out); i++) {
        if (p->out[i].fd < 0 || p->out[i].waits)
            continue;
        if (on)
            uv_poll_start(&p->out[i].poll, UV_READABLE, on_readable);
        else
            uv_poll_stop(&p->out[i].poll);
    }
}

static void read_again(struct proc *p)
{
    if (p->paused && !p->ended && !anyone_full(p))
        watch(p, true);
}

/* o, and its process, may be gone after it. */
static void carry(struct proc_output *o, bool broken)
{
    struct proc *p = o->proc;
    ssize_t n = broken ? 0 : pump(o);

    if (n == 0) {
        proc_output_close(o);
        proc_check_end(p);
    } else if (anyone_full(p)) {
        watch(p, false);
    }
}

/* -- turns, where there is more output than the rate allows ------------------------------------ */

static void on_turn(uv_timer_t *timer);

static void await_turn(struct process_table *t)
{
    if (t->waiting && !uv_is_active((uv_handle_t *)&t->turn))
        uv_timer_start(&t->turn, on_turn, output_rate_wait_ms(&t->output_rate), 0);
}

/* Outputs go on in the order in which they came to wait: none waits for another for ever. */
static void wait_for_turn(struct process_table *t, struct proc_output *o)
{
    uv_poll_stop(&o->poll);
    o->waits = true;
    o->next_waiting = NULL;
    *t->waiting_last = o;
    t->waiting_last = &o->next_waiting;
    await_turn(t);
}

static void wait_no_more(struct process_table *t, struct proc_output *o)
{
    struct proc_output **at = &t->waiting;

    while (*at != o)
        at = &(*at)->next_waiting;
    *at = o->next_waiting;
    if (!*at)
        t->waiting_last = at;
    o->waits = false;
}

static void on_turn(uv_timer_t *timer)
{
    struct process_table *t = timer->data;
    struct proc_output *o;

    uv_timer_stop(&t->turn);
    while ((o = t->waiting) && output_rate_allows(&t->output_rate, clock_mono_ms())) {
        wait_no_more(t, o);
        if (o->proc->paused) /* read_again starts it */
            continue;
        uv_poll_start(&o->poll, UV_READABLE, on_readable);
        carry(o, false);
    }
    await_turn(t);
}

static void on_readable(uv_poll_t *poll, int status, int events UNUSED)
{
    struct proc_output *o = poll->data;
    struct process_table *t = o->proc->agent->processes;

    if (status >= 0 && o->proc->subscribers &&
        !output_rate_allows(&t->output_rate, clock_mono_ms()))
        wait_for_turn(t, o);
    else
        carry(o, status < 0);
}

/* Told anew with each /init: the same again is no new burst. */
void process_limit_output(struct agent *a, uint64_t bytes_per_second)
{
    struct output_rate *r = &a->processes->output_rate;

    if (r->bytes_per_second != bytes_per_second)
        output_rate_set(r, bytes_per_second, clock_mono_ms());
}

void proc_output_init(struct process_table *t)
{
    t->waiting_last = &t->waiting;
    uv_timer_init(t->agent->loop, &t->turn);
    t->turn.data = t;
}

void proc_output_drain(struct proc_output *o)
{
    size_t total = 0;
    ssize_t n;

    while (o->fd >= 0 && total < OUTPUT_DRAIN_MAX && (n = pump(o)) > 0)
        total += (size_t)n;
}

static void on_poll_closed(uv_handle_t *h)
{
    struct proc_output *o = h->data;

    proc_handle_closed(o->proc);
}

void proc_output_close(struct proc_output *o)
{
    if (o->fd < 0)
        return;
    if (o->waits)
        wait_no_more(o->proc->agent->processes, o);
    uv_poll_stop(&o->poll); /* before the descriptor is closed */
    uv_close((uv_handle_t *)&o->poll, on_poll_closed);
    util_close(&o->fd);
}

int proc_output_open(struct proc *p, struct proc_output *o, enum proc_output_kind kind, int fd)
{
    int ret = uv_poll_init(p->agent->loop, &o->poll, fd);

    if (ret < 0) {
        close(fd);
        return ret;
    }
    o->proc = p;
    o->kind = kind;
    o->fd = fd;
    o->poll.data = o;
    p->handles++;
    p->paused = true;
    return 0;
}

void proc_output_start(struct proc *p)
{
    read_again(p);
}
