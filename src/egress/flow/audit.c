#include "egress/flow/audit.h"

#include "base/buf.h"
#include "base/log.h"
#include "base/util.h"
#include "egress/audit/audit_store.h"
#include "egress/flow/registry.h"

#include <stdio.h>
#include <string.h>

#define SUMMARY_MS 1000
#define FOLLOWERS  32
#define TEXT_MAX   1024 /* of one string in a line */

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
};

/* -- lines ------------------------------------------------------------------------------------- */

static const char *const event_names[] = {"connection", "request", "end", "refused", "renewal"};
static const char *const via_names[] = {"redirect", "socks", "connect", "proxy"};

static const char *source_name(enum policy_source s)
{
    static const char *const names[] = {"never",   "ceiling", "rule", "preset",
                                        "default", "sandbox", "owner"};

    return s < ARRAY_SIZE(names) ? names[s] : "rule";
}

/* Text of a peer: cut, and what is not printable ASCII replaced, so that the line is plain text. */
static void put_text(json_t *o, const char *key, const char *text, bool is_path)
{
    char out[TEXT_MAX];
    size_t n = 0;

    if (!text || !*text)
        return;
    for (; n < sizeof(out) - 1 && text[n] && !(is_path && text[n] == '?'); n++)
        out[n] = text[n] >= 0x20 && text[n] < 0x7f ? text[n] : '?';
    out[n] = '\0';
    json_object_set_new(o, key, json_string(out));
}

static void put_destination(json_t *o, const struct audit_record *r)
{
    const struct target *t = r->target ? r->target : &r->flow->target;
    static const struct in6_addr none = IN6ADDR_ANY_INIT;
    char address[INET6_ADDRSTRLEN];

    put_text(o, "name", t->name, false);
    if (!t->name)
        put_text(o, "said", t->said, false);
    if (memcmp(&t->address.in6, &none, sizeof(none)) != 0) {
        policy_address_format(&t->address, address);
        put_text(o, "address", address, false);
    }
    json_object_set_new(o, "port", json_integer(t->port));
    if (t->via_port) {
        policy_address_format(&t->via, address);
        put_text(o, "rerouted", address, false);
        put_text(o, "rerouted_name", t->via_name[0] ? t->via_name : NULL, false);
        json_object_set_new(o, "rerouted_port", json_integer(t->via_port));
    }
}

static void put_flow(json_t *o, const struct audit_record *r)
{
    json_object_set_new(o, "flow", json_integer((json_int_t)r->flow->id));
    put_text(o, "via", via_names[r->flow->via], false);
    put_text(o, "protocol", flow_kind_name(r->flow->kind), false);
    put_destination(o, r);
}

static json_t *line_of(const struct audit_log *l, const struct audit_record *r)
{
    char time[CLOCK_RFC3339_SIZE];
    json_t *o = json_object();

    clock_format_rfc3339(clock_real_ms(), time);
    put_text(o, "time", time, false);
    put_text(o, "event", event_names[r->event], false);
    put_text(o, "sandbox", r->sandbox->id, false);
    put_text(o, "tenant", r->sandbox->tenant, false);
    if (r->sandbox->command)
        json_object_set_new(o, "command", json_integer(r->sandbox->command));
    if (r->flow)
        put_flow(o, r);
    else if (r->target)
        put_destination(o, r);
    put_text(o, "verdict", r->allowed ? "allow" : "deny", false);
    put_text(o, "rule", r->rule, false);
    if (r->event == AUDIT_CONNECTION || r->event == AUDIT_REQUEST)
        put_text(o, "source", source_name(r->source), false);
    if (r->warned)
        json_object_set_new(o, "warned", json_true());
    put_text(o, "outcome", r->outcome, false);
    put_text(o, "reason", r->reason, false);
    put_text(o, "method", r->method, false);
    put_text(o, "path", r->path, true);
    put_text(o, "credential", r->credential, false);
    if (r->event == AUDIT_END) {
        json_object_set_new(o, "bytes_up", json_integer((json_int_t)r->up_bytes));
        json_object_set_new(o, "bytes_down", json_integer((json_int_t)r->down_bytes));
        json_object_set_new(o, "duration_ms", json_integer((json_int_t)r->duration_ms));
    }
    if (r->event == AUDIT_REFUSED)
        json_object_set_new(o, "count", json_integer((json_int_t)r->count));
    json_object_set_new(o, "seq", json_integer((json_int_t)l->seq + 1));
    put_text(o, "prev", l->prev, false); /* the last: audit_chain.c */
    return o;
}

static void tell_followers(struct audit *a, const char *line, size_t n)
{
    for (size_t i = 0; i < FOLLOWERS; i++)
        if (a->followers[i].id)
            a->followers[i].cb(a->followers[i].arg, line, n);
}

static void on_prepare(uv_prepare_t *p)
{
    audit_flush(p->data);
}

void audit_record(struct audit *a, const struct audit_record *r)
{
    struct audit_log *l = audit_store_log(a->store, r->sandbox->tenant);
    json_t *o = l ? line_of(l, r) : NULL;
    char *text = o ? json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    size_t n = text ? strlen(text) : 0;

    json_decref(o);
    if (!text || audit_store_append(a->store, l, text, n) < 0) {
        log_error("a decision cannot be recorded: out of memory");
        abort();
    }
    tell_followers(a, text, n);
    free(text);
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
