/* A decision becomes one line here: fields are put in a fixed order, text of a peer is cut and
 * made plain, and audit_store.c chains and writes it, before what was decided is done. Refusals
 * beyond a rate are counted for their sandbox and written as a summary on a timer. Followers
 * (event_stream.c) are told each line after it is written. */

#include "egress/flow/audit.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/util.h"
#include "egress/audit/audit_store.h"
#include "egress/flow/egress.h"
#include "egress/flow/flow.h"
#include "egress/flow/rate.h"
#include "egress/flow/registry.h"
#include "egress/flow/sandbox.h"
#include "egress/flow/target.h"
#include "policy/policy.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <uv.h>

#define SUMMARY_MS     1000
#define FOLLOWERS      32
#define TEXT_MAX       1024 /* of one string in a line */
#define TEXTS_MAX      20   /* strings in a line; each byte may be escaped */
#define LINE_MAX_BYTES (TEXTS_MAX * 2 * TEXT_MAX + 2048)

struct follower {
    uint64_t id;
    void (*cb)(void *arg, const char *line, size_t n);
    void *arg;
};

struct audit {
    struct egress *egress;
    struct audit_store *store;
    uv_prepare_t flush;
    uv_timer_t tick; /* summaries of refusals */
    bool unrecorded; /* some sandbox has some */
    struct follower followers[FOLLOWERS];
    uint64_t last_follower;
    unsigned handles;
    char line
        [LINE_MAX_BYTES]; /* that is being made: a decision is recorded also when memory is out */
    size_t line_len;
};

/* -- lines ------------------------------------------------------------------------------------- */

static const char *kind_name(enum flow_kind k)
{
    static const char *const names[] = {"unknown", "tls",    "http", "socks",
                                        "connect", "opaque", "dns"};

    return names[k];
}

static const char *const event_names[] = {"connection", "request",  "end",      "refused",
                                          "renewal",    "delivery", "injection"};
static const char *const via_names[] = {"redirect", "socks", "connect", "proxy"};

static const char *source_name(enum policy_source s)
{
    static const char *const names[] = {"never",   "ceiling", "rule", "preset",
                                        "default", "sandbox", "owner"};

    return s < ARRAY_SIZE(names) ? names[s] : "rule";
}

static void put_bytes(struct audit *a, const char *bytes, size_t n)
{
    assert(a->line_len + n <=
           sizeof(a->line)); /* LINE_MAX_BYTES is of all fields at their longest */
    memcpy(a->line + a->line_len, bytes, n);
    a->line_len += n;
}

static void put_key(struct audit *a, const char *key)
{
    put_bytes(a, a->line_len ? ",\"" : "{\"", 2);
    put_bytes(a, key, strlen(key));
    put_bytes(a, "\":", 2);
}

static void put_number(struct audit *a, const char *key, int64_t value)
{
    char text[24];

    put_key(a, key);
    put_bytes(a, text, (size_t)snprintf(text, sizeof(text), "%lld", (long long)value));
}

static void put_true(struct audit *a, const char *key)
{
    put_key(a, key);
    put_bytes(a, "true", 4);
}

/* Text of a peer: cut, and all but printable ASCII replaced, so that the line is plain text. */
static void put_text(struct audit *a, const char *key, const char *text, bool is_path)
{
    if (!text || !*text)
        return;
    put_key(a, key);
    put_bytes(a, "\"", 1);
    for (size_t n = 0; n < TEXT_MAX - 1 && text[n] && !(is_path && text[n] == '?'); n++) {
        char c = text[n] >= 0x20 && text[n] < 0x7f ? text[n] : '?';

        if (c == '"' || c == '\\')
            put_bytes(a, "\\", 1);
        put_bytes(a, &c, 1);
    }
    put_bytes(a, "\"", 1);
}

static void put_destination(struct audit *a, const struct audit_record *r)
{
    const struct target *t = r->target ? r->target : &r->flow->target;
    static const struct in6_addr none = IN6ADDR_ANY_INIT;
    char address[INET6_ADDRSTRLEN];

    put_text(a, "name", t->name, false);
    if (!t->name)
        put_text(a, "said", t->said, false);
    if (memcmp(&t->address.in6, &none, sizeof(none)) != 0) {
        policy_address_format(&t->address, address);
        put_text(a, "address", address, false);
    }
    put_number(a, "port", t->port);
    if (t->via_port) {
        policy_address_format(&t->via, address);
        put_text(a, "rerouted", address, false);
        put_text(a, "rerouted_name", t->via_name[0] ? t->via_name : NULL, false);
        put_number(a, "rerouted_port", t->via_port);
    }
}

static void put_flow(struct audit *a, const struct audit_record *r)
{
    put_number(a, "flow", (int64_t)r->flow->id);
    put_text(a, "via", via_names[r->flow->via], false);
    put_text(a, "protocol", kind_name(r->flow->kind), false);
    put_destination(a, r);
}

/* Into a->line. */
static void make_line(struct audit *a, const struct audit_log *l, const struct audit_record *r)
{
    char time[CLOCK_RFC3339_SIZE];

    a->line_len = 0;
    clock_format_rfc3339(clock_real_ms(), time);
    put_text(a, "time", time, false);
    put_text(a, "event", event_names[r->event], false);
    put_text(a, "sandbox", r->sandbox->id, false);
    put_text(a, "tenant", r->sandbox->tenant, false);
    if (r->sandbox->command)
        put_number(a, "command", r->sandbox->command);
    if (r->flow)
        put_flow(a, r);
    else if (r->target)
        put_destination(a, r);
    put_text(a, "verdict", r->allowed ? "allow" : "deny", false);
    put_text(a, "rule", r->rule, false);
    if (r->event == AUDIT_CONNECTION || r->event == AUDIT_REQUEST)
        put_text(a, "source", source_name(r->source), false);
    if (r->warned)
        put_true(a, "warned");
    put_text(a, "outcome", r->outcome, false);
    put_text(a, "reason", r->reason, false);
    put_text(a, "method", r->method, false);
    put_text(a, "path", r->path, true);
    put_text(a, "credential", r->credential, false);
    if (r->event == AUDIT_END) {
        put_number(a, "bytes_up", (int64_t)r->up_bytes);
        put_number(a, "bytes_down", (int64_t)r->down_bytes);
        put_number(a, "duration_ms", (int64_t)r->duration_ms);
    }
    if (r->event == AUDIT_REFUSED)
        put_number(a, "count", (int64_t)r->count);
    put_number(a, "seq", (int64_t)l->seq + 1);
    put_text(a, "prev", l->prev, false); /* the last: audit_chain.c */
    put_bytes(a, "}", 1);
}

static void notify_followers(struct audit *a, const char *line, size_t n)
{
    for (size_t i = 0; i < FOLLOWERS; i++)
        if (a->followers[i].id)
            a->followers[i].cb(a->followers[i].arg, line, n);
}

static void on_prepare(uv_prepare_t *p)
{
    audit_flush(p->data);
}

bool audit_prepare(struct audit *a, const char *tenant)
{
    return audit_store_log(a->store, tenant) != NULL;
}

void audit_record(struct audit *a, const struct audit_record *r)
{
    struct audit_log *l = audit_store_log(a->store, r->sandbox->tenant);

    if (!l) { /* of no tenant whose policy is in force: audit_prepare came before that */
        log_error("a decision cannot be recorded: out of memory; nothing passes unrecorded");
        abort();
    }
    make_line(a, l, r);
    audit_store_append(a->store, l, a->line, a->line_len);
    notify_followers(a, a->line, a->line_len);
    if (!uv_is_active((uv_handle_t *)&a->flush))
        uv_prepare_start(&a->flush, on_prepare);
}

void audit_flush(struct audit *a)
{
    audit_store_flush(a->store);
    uv_prepare_stop(&a->flush);
}

struct audit_store *audit_files(const struct audit *a)
{
    return a->store;
}

/* -- refusals ---------------------------------------------------------------------------------- */

void audit_refusal(struct audit *a, const struct audit_record *r)
{
    struct sandbox *s = r->flow->sandbox;
    struct sandbox *whole = s->parent ? s->parent : s;

    if (whole->unrecorded == 0 && rate_take(&whole->recorded, AUDIT_REFUSALS_PER_SECOND)) {
        audit_record(a, r);
        return;
    }
    whole->unrecorded++;
    a->unrecorded = true;
}

void audit_summary(struct audit *a, struct sandbox *s)
{
    const struct audit_record r = {.event = AUDIT_REFUSED,
                                   .sandbox = s,
                                   .rule = "limit",
                                   .reason = "more refusals than are recorded one by one",
                                   .count = s->unrecorded};

    if (!s->unrecorded)
        return;
    s->unrecorded = 0;
    audit_record(a, &r);
}

static void on_tick(uv_timer_t *t)
{
    struct audit *a = t->data;
    struct sandbox *s;

    if (!a->unrecorded)
        return;
    a->unrecorded = false;
    for (uint32_t slot = 0; (s = registry_next(a->egress, &slot));)
        audit_summary(a, s);
}

/* -- life -------------------------------------------------------------------------------------- */

enum err_code audit_open(struct egress *eg, struct audit **out, struct err *e)
{
    const struct audit_store_limits limits = {
        .file_bytes = eg->config.audit_size_bytes,
        .total_bytes = eg->config.audit_size_bytes * ((uint64_t)eg->config.audit_files + 1)};
    struct audit *a = calloc(1, sizeof(*a));

    if (!a)
        return err_set(e, ERR_EXHAUSTED, "out of memory");
    a->egress = eg;
    if (audit_store_open(eg->loop, eg->config.state_dir, eg->config.shard, &limits, &a->store, e) !=
        ERR_OK) {
        free(a);
        return e->code;
    }
    uv_prepare_init(eg->loop, &a->flush);
    uv_timer_init(eg->loop, &a->tick);
    a->flush.data = a->tick.data = a;
    a->handles = 2;
    uv_timer_start(&a->tick, on_tick, SUMMARY_MS, SUMMARY_MS);
    *out = a;
    return ERR_OK;
}

static void on_closed(uv_handle_t *h)
{
    struct audit *a = h->data;

    if (--a->handles == 0)
        free(a);
}

void audit_free(struct audit *a)
{
    if (!a)
        return;
    audit_store_free(TAKE_PTR(a->store));
    uv_close((uv_handle_t *)&a->flush, on_closed);
    uv_close((uv_handle_t *)&a->tick, on_closed);
}

uint64_t audit_follow(struct audit *a, void (*cb)(void *arg, const char *line, size_t n), void *arg)
{
    for (size_t i = 0; i < FOLLOWERS; i++) {
        if (a->followers[i].id)
            continue;
        a->followers[i] = (struct follower){++a->last_follower, cb, arg};
        return a->last_follower;
    }
    return 0;
}

void audit_unfollow(struct audit *a, uint64_t id)
{
    for (size_t i = 0; id && i < FOLLOWERS; i++)
        if (a->followers[i].id == id)
            a->followers[i] = (struct follower){0};
}
