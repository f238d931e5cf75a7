/* A refusal as it is remembered and told of: in the sandbox's ring, the log and the events
 * (deny_note), and as text and JSON for those who ask and for the client's answer. Says nothing to
 * a client: that is deny.c's. */

#include "egress/flow/denial.h"
#include "egress/flow/deny.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/util.h"
#include "egress/flow/audit.h"
#include "egress/flow/egress.h"
#include "egress/flow/event_stream.h"
#include "egress/flow/flow.h"
#include "egress/flow/sandbox.h"
#include "egress/flow/target.h"
#include "http/json.h"
#include "http/message.h"
#include "policy/policy.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define HELP                                                                                    \
    "This computer reaches the network only through cay's proxy, which allows what its policy " \
    "lists. Recent refusals: the command cay-denials, or http://cay.internal/denials"

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

/* Removes a denial equal to d, and moves up those behind it. Returns its count, or 0. */
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

void deny_note_sandbox(struct sandbox *s, const char *rule, const char *reason)
{
    struct denial d = {
        .at_ms = clock_real_ms(), .count = 1, .command = s->command, .name = DENY_ANY_NAME};

    snprintf(d.rule, sizeof(d.rule), "%s", rule);
    snprintf(d.reason, sizeof(d.reason), "%s", reason);
    keep(s, &d);
    if (s->parent)
        keep(s->parent, &d);
    event_stream_denial(s->egress, s, &d);
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
        json_array_append_new(list, denial_json(denial_at(s, i)));
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

/* -- in an answer ------------------------------------------------------------------------------ */

/* NULL: memory is out. */
static json_t *load_allows(const struct sandbox *s)
{
    return s->allows ? json_load(s->allows, strlen(s->allows)) : json_array();
}

/* Agents read it as text: no control characters, and no more than a reason may have. */
static void plain_message(const char *message, char out[static POLICY_REASON_SIZE])
{
    size_t n = strnlen(message, POLICY_REASON_SIZE - 1);

    for (size_t i = 0; i < n; i++)
        out[i] = message[i] >= 0x20 && message[i] < 0x7f ? message[i] : '?';
    out[n] = '\0';
}

void deny_phrase(int status, const char *message, char out[static DENY_PHRASE_SIZE])
{
    char said[POLICY_REASON_SIZE];

    plain_message(message, said);
    snprintf(out, DENY_PHRASE_SIZE, "%.28s%s%s", http_status_text(status), said[0] ? ": " : "",
             said);
}

static bool shows_texts_alone(const char *user_agent)
{
    return user_agent && strncasecmp(user_agent, "npm/", 4) == 0;
}

int deny_body(const struct sandbox *s, const char *error, const char *rule, const char *message,
              struct buf *out)
{
    return deny_body_for(s, NULL, error, rule, message, out);
}

int deny_body_for(const struct sandbox *s, const char *user_agent, const char *error,
                  const char *rule, const char *message, struct buf *out)
{
    char said[POLICY_REASON_SIZE];
    json_t *allows = load_allows(s), *o;
    char *text = NULL;
    int rc = 0;

    plain_message(message, said);
    o = json_pack("{s:s, s:{s:s, s:s, s:s, s:n}, s:s, s:s, s:s}", "type", "error", "error", "type",
                  error, "code", error, "message", said, "param", "message", said, "rule", rule,
                  "help", HELP);

    if (!o) {
        json_decref(allows);
        return -ENOMEM;
    }
    if (shows_texts_alone(user_agent))
        rc |= json_object_set_new(o, "error", json_string(said));
    rc |= json_object_set_new(o, s->parent ? "command_allows" : "sandbox_allows", allows);
    if (s->parent) /* hosts that both allow */
        rc |= json_object_set_new(o, "sandbox_allows", load_allows(s->parent));
    if (rc == 0)
        text = json_text(o, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(o);
    if (!text)
        return -ENOMEM;
    rc = buf_append_str(out, text);
    if (rc == 0)
        rc = buf_append_str(out, "\n");
    free(text);
    return rc;
}

int deny_status(const struct flow *f)
{
    return f->unreachable ? f->unreachable : f->busy ? 429 : 403;
}
