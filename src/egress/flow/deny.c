/* A refusal has two halves, in this order: it is noted (deny_note: the log, the sandbox's list
 * of denials, events) and then said to the client in what it speaks (deny_say: HTTP, CONNECT,
 * SOCKS, TLS, or a reset), by the protocol that was detected so far. What cannot be reached is
 * said likewise (deny_unreachable) and is no denial. */

#include "egress/flow/deny.h"

#include "base/log.h"
#include "base/util.h"
#include "egress/flow/audit.h"
#include "egress/flow/connect.h"
#include "egress/flow/event_stream.h"
#include "egress/flow/forward.h"
#include "egress/flow/registry.h"
#include "egress/flow/socks.h"
#include "egress/flow/tls_intercept.h"

#include <errno.h>
#include <string.h>

#define HELP                                                                                    \
    "This computer reaches the network only through cay's proxy, which allows what its policy " \
    "lists. Recent refusals: the command cay-denials, or http://cay.internal/denials"

/* TLS 1.2's form, which every version understands: fatal, access_denied (RFC 8446 6.2). For clients that offer
 * no version of HTTP, and where no handshake is to be had. */
static const unsigned char access_denied[] = {0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x31};

/* -- notes ------------------------------------------------------------------------------------- */

/* Into out what of text is printable ASCII, '?' for the rest. */
static void plain(const char *text, char *out, size_t size)
{
    size_t n = 0;

    for (; text && text[n] && text[n] != '?' && n < size - 1; n++)
        out[n] = text[n] >= 0x20 && text[n] < 0x7f ? text[n] : '?';
    out[n] = '\0';
}

static void fill(struct denial *d, const struct flow *f, const char *method, const char *path)
{
    *d = (struct denial){.at_ms = clock_real_ms(),
                         .count = 1,
                         .command = f->sandbox->command,
                         .port = f->target.port};
    if (f->target.name)
        snprintf(d->name, sizeof(d->name), "%s", f->target.name);
    else
        policy_address_format(&f->target.address, d->name);
    plain(method, d->method, sizeof(d->method));
    plain(path, d->path, sizeof(d->path));
    snprintf(d->rule, sizeof(d->rule), "%s", f->rule);
    snprintf(d->reason, sizeof(d->reason), "%s", f->reason ? f->reason : "");
}

static size_t first_of(const struct sandbox *s)
{
    return (s->denials_next + DENIALS_MAX - s->denials_count) % DENIALS_MAX;
}

static bool is_like(const struct denial *a, const struct denial *b)
{
    return a->command == b->command && a->port == b->port && strcmp(a->name, b->name) == 0 &&
           strcmp(a->method, b->method) == 0 && strcmp(a->path, b->path) == 0 &&
           strcmp(a->rule, b->rule) == 0 && strcmp(a->reason, b->reason) == 0;
}

/* One like d is taken out, that those behind it move up: how often it was refused, or 0. */
static uint32_t take_like(struct sandbox *s, const struct denial *d)
{
    for (size_t i = 0; i < s->denials_count; i++) {
        struct denial *at = &s->denials[(first_of(s) + i) % DENIALS_MAX];
        uint32_t count = at->count;

        if (!is_like(at, d))
            continue;
        for (; i + 1 < s->denials_count; i++)
            s->denials[(first_of(s) + i) % DENIALS_MAX] =
                s->denials[(first_of(s) + i + 1) % DENIALS_MAX];
        s->denials_next = (s->denials_next + DENIALS_MAX - 1) % DENIALS_MAX;
        s->denials_count--;
        return count;
    }
    return 0;
}

/* A program that tries again and again would push out all others: those that are alike are one. */
static void keep(struct sandbox *s, const struct denial *like)
{
    struct denial with_count = *like, *d = &with_count;

    if (!s->denials)
        s->denials = calloc(DENIALS_MAX, sizeof(*s->denials));
    if (!s->denials)
        return;
    d->count += take_like(s, d);
    s->denials[s->denials_next] = *d;
    s->denials_next = (s->denials_next + 1) % DENIALS_MAX;
    s->denials_count = MIN(s->denials_count + 1, (size_t)DENIALS_MAX);
}

void deny_note(struct flow *f, const struct policy_verdict *v, const char *method, const char *path)
{
    struct sandbox *s = f->sandbox;
    const struct audit_record r = {
        .event = method ? AUDIT_REQUEST : AUDIT_CONNECTION,
        .sandbox = s,
        .flow = f,
        .rule = f->rule,
        .source = v ? v->source : POLICY_BY_RULE,
        .reason = f->reason,
        .method = method,
        .path = path,
    };
    struct denial d;

    s->denied++;
    fill(&d, f, method, path);
    keep(s, &d);
    if (s->parent)
        keep(s->parent, &d);
    audit_refusal(f->egress->audit, &r);
    event_stream_denial(f->egress, s, &d);
}

json_t *deny_json(const struct denial *d)
{
    char at[CLOCK_RFC3339_SIZE];
    json_t *o;

    clock_format_rfc3339(d->at_ms, at);
    o = json_pack("{s:s, s:s, s:i, s:s, s:s}", "time", at, "name", d->name, "port", (int)d->port,
                  "rule", d->rule, "reason", d->reason);
    if (o && d->count > 1)
        json_object_set_new(o, "count", json_integer(d->count));
    if (o && d->command)
        json_object_set_new(o, "command", json_integer(d->command));
    if (o && d->method[0]) {
        json_object_set_new(o, "method", json_string(d->method));
        json_object_set_new(o, "path", json_string(d->path));
    }
    return o;
}

/* The i-th oldest that is remembered. */
static const struct denial *denial_at(const struct sandbox *s, size_t i)
{
    return &s->denials[(first_of(s) + i) % DENIALS_MAX];
}

json_t *deny_list(const struct sandbox *s)
{
    json_t *list = json_array();

    for (size_t i = 0; i < s->denials_count; i++)
        json_array_append_new(list, deny_json(denial_at(s, i)));
    return json_pack("{s:o}", "denials", list);
}

int deny_lines(const struct sandbox *s, struct buf *out)
{
    int rc = s->denials_count ? 0 : buf_append_str(out, "Nothing was refused.\n");

    for (size_t i = 0; rc == 0 && i < s->denials_count; i++) {
        const struct denial *d = denial_at(s, i);
        char at[CLOCK_RFC3339_SIZE], times[24] = "";

        clock_format_rfc3339(d->at_ms, at);
        if (d->count > 1)
            snprintf(times, sizeof(times), " (%u times)", d->count);
        rc = buf_printf(out, "%s %.80s:%u%s%.16s%s%.60s [%s]%s %s\n", at, d->name, d->port,
                        d->method[0] ? " " : "", d->method, d->path[0] ? " " : "", d->path, d->rule,
                        times, d->reason);
    }
    return rc;
}

void deny_explain(const struct policy *p, const struct policy_verdict *v, const struct target *t,
                  const char *method, const char *path, char out[static POLICY_REASON_SIZE])
{
    const struct policy_address *a = !t->name || target_is_resolved(t) ? &t->address : NULL;

    policy_explain(p, v, t->name ? t->name : t->said, a, t->port, method, path, out);
}

/* -- said -------------------------------------------------------------------------------------- */

static json_t *load_allows(const struct sandbox *s)
{
    json_t *list = s->allows ? json_loads(s->allows, 0, NULL) : NULL;

    return list ? list : json_array();
}

/* Agents read it as text: no control characters, and no more than a reason may have. */
static void plain_message(const char *message, char out[static POLICY_REASON_SIZE])
{
    size_t n = strnlen(message, POLICY_REASON_SIZE - 1);

    for (size_t i = 0; i < n; i++)
        out[i] = message[i] >= 0x20 && message[i] < 0x7f ? message[i] : '?';
    out[n] = '\0';
}

int deny_body(const struct sandbox *s, const char *error, const char *rule, const char *message,
              struct buf *out)
{
    char said[POLICY_REASON_SIZE];
    json_t *allows = load_allows(s), *o;
    char *text;
    int rc;

    plain_message(message, said);
    o = json_pack("{s:s, s:{s:s, s:s, s:s, s:n}, s:s, s:s, s:s}", "type", "error", "error", "type",
                  error, "code", error, "message", said, "param", "message", said, "rule", rule,
                  "help", HELP);

    if (!o) {
        json_decref(allows);
        return -ENOMEM;
    }
    json_object_set_new(o, s->parent ? "command_allows" : "sandbox_allows", allows);
    if (s->parent) /* what both allow */
        json_object_set_new(o, "sandbox_allows", load_allows(s->parent));
    text = json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(o);
    if (!text)
        return -ENOMEM;
    rc = buf_append_str(out, text);
    if (rc == 0)
        rc = buf_append_str(out, "\n");
    free(text);
    return rc;
}

static void say_connect(struct flow *f, int status, const char *error, const char *rule,
                        const char *message)
{
    CLEANUP_BUF struct buf b;

    buf_init(&b, DENY_BODY_MAX);
    if (deny_body(f->sandbox, error, rule, message, &b) < 0)
        buf_clear(&b);
    connect_refuse(f, status, rule, b.data, b.len);
}

/* The client waits in its handshake: as a rule it trusts the tenant's authority, and many programs
 * retry an alert or a reset for minutes without a word, while they show what a 403 says. The
 * certificate is made for the name that the client asked for; it is signed by the tenant's own
 * authority, which only the tenant's sandboxes trust, and nothing is dialled. A policy may ask for
 * the alert ("refusal": "close"). */
static bool say_in_tls(struct flow *f)
{
    struct err e = {.code = ERR_OK};

    if (f->sandbox->has_policy && policy_closes(f->sandbox->policy) && !f->unreachable && !f->busy)
        return false;
    if (f->fd < 0 || (!f->offers_http1 && !f->offers_h2) || !f->egress->intercept ||
        !rate_take(&f->sandbox->handshakes, DENY_HANDSHAKES_PER_SECOND))
        return false;
    protocol_detect_done(f);
    f->state = FLOW_INTERCEPTED;
    return tls_intercept_start(f->egress, f, &e) == 0;
}

int deny_status(const struct flow *f)
{
    return f->unreachable ? f->unreachable : f->busy ? 429 : 403;
}

void deny_say(struct flow *f)
{
    if (f->state == FLOW_NEGOTIATING || f->state == FLOW_DIALING) {
        if (f->via == FLOW_BY_SOCKS) {
            socks_refuse(f, SOCKS_NOT_ALLOWED);
            return;
        }
        if (f->via == FLOW_BY_CONNECT) {
            say_connect(f, deny_status(f), "egress_denied", f->rule, f->reason ? f->reason : "");
            return;
        }
    }
    switch (f->kind) {
    case FLOW_TLS:
        if (say_in_tls(f))
            return;
        if (f->fd >= 0)
            flow_answer(f, access_denied, sizeof(access_denied));
        else
            flow_end(f);
        return;
    case FLOW_HTTP:
        flow_unwatch(f);
        if (forward_adopt(f->egress, f, f->fd, false) < 0)
            flow_reset(f);
        return;
    case FLOW_UNKNOWN: protocol_detect_start(f); return;
    default: flow_reset(f);
    }
}

void deny_unreachable(struct flow *f, const struct err *why)
{
    bool timeout = why->code == ERR_TIMEOUT;

    free(f->reason);
    f->reason = strdup(why->text);
    if (f->via == FLOW_BY_SOCKS && f->state == FLOW_DIALING) {
        socks_refuse(f, timeout ? SOCKS_UNREACHABLE : SOCKS_REFUSED);
        return;
    }
    if (f->via == FLOW_BY_CONNECT && f->state == FLOW_DIALING) {
        say_connect(f, timeout ? 504 : 502, "egress_unreachable", "none", why->text);
        return;
    }
    /* To an opaque client a reset says it best; HTTP is told in words. */
    f->unreachable = timeout ? 504 : 502;
    protocol_detect_start(f);
}
