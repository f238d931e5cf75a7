/* A verdict as one sentence. It is shown to agents, which may act on what it says: nothing in it
 * comes unescaped from the other side, and it is short. */
#include "policy/internal.h"
#include "policy/near.h"
#include "policy/preset.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SHOWN_NAME_MAX 80
#define SHOWN_PATH_MAX 60
#define SHOWN_ALLOWED  4

/* A sentence in the making. A part that does not fit is left out whole, never cut. */
struct sentence {
    char *out;
    size_t used;
};

PRINTF(2, 3) static void add(struct sentence *s, const char *fmt, ...)
{
    char part[POLICY_REASON_SIZE];
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(part, sizeof(part), fmt, ap);
    va_end(ap);
    if (n < 0 || s->used + (size_t)n >= POLICY_REASON_SIZE)
        return;
    memcpy(s->out + s->used, part, (size_t)n + 1);
    s->used += (size_t)n;
}

/* Printable ASCII but quotes and backslashes; the rest is '?'. Cut with "...". */
static void plain(const char *in, size_t max, char *out)
{
    size_t n = strnlen(in, max + 1);
    bool cut = n > max;

    n = MIN(n, max);
    for (size_t i = 0; i < n; i++)
        out[i] = isgraph((unsigned char)in[i]) && !strchr("\"\\<>&'`", in[i]) ? in[i] : '?';
    memcpy(out + n, cut ? "..." : "", cut ? 4 : 1);
}

static void add_source(const struct policy_verdict *v, struct sentence *s)
{
    char label[NEAR_LABEL_SIZE];

    switch (v->source) {
    case POLICY_BY_NEVER:
        add(s, "no policy opens this address (metadata, loopback, link-local, "
               "multicast or the host's own)");
        break;
    case POLICY_BY_CEILING: add(s, "by the operator's limit \"%s\"", v->name); break;
    case POLICY_BY_RULE: add(s, "by %s", near_label(v->rule, v->name, label)); break;
    case POLICY_BY_PRESET: add(s, "by preset \"%s\"", v->name); break;
    case POLICY_BY_SANDBOX: add(s, "by the sandbox's own policy: \"%s\"", v->name); break;
    case POLICY_BY_OWNER: add(s, "by its owner, who was asked"); break;
    case POLICY_BY_DEFAULT: add(s, "by default \"%s\"", v->name); break;
    }
}

/* Names that rules allow: the first few that are not too long, each once. */
struct allowed {
    const char *names[SHOWN_ALLOWED];
    size_t n;
    bool has_others;
};

static void take_allowed(struct allowed *a, const char *name)
{
    for (size_t i = 0; i < a->n; i++)
        if (strcmp(a->names[i], name) == 0)
            return;
    if (a->n < SHOWN_ALLOWED && strlen(name) <= SHOWN_NAME_MAX / 2)
        a->names[a->n++] = name;
    else
        a->has_others = true;
}

static void take_allowed_of_rules(const struct policy *p, struct allowed *a)
{
    for (size_t i = 0; i < p->n_rules; i++) {
        const struct list *l = &p->rules[i].lists[CONDITION_DOMAINS];

        for (size_t d = 0; p->rules[i].action == POLICY_ALLOW && d < l->n; d++)
            take_allowed(a, l->entries[d].text);
    }
}

/* Adds the destinations that an agent may try instead: names, and presets. */
static void add_allowed(const struct policy *p, struct sentence *s)
{
    struct allowed a = {.n = 0};
    size_t shown = 0;

    if (p->fallback != FALLBACK_DENY) {
        add(s, "; allowed is \"%s\" but for what rules deny", preset_fallback_name(p->fallback));
        return;
    }
    take_allowed_of_rules(p, &a);
    for (size_t i = 0; i < a.n; i++)
        add(s, "%s%s", shown++ == 0 ? "; allowed: " : ", ", a.names[i]);
    for (size_t i = 0; i < p->n_presets; i++)
        add(s, "%s%s", shown++ == 0 ? "; allowed: " : ", ", p->presets[i]->name);
    if (a.has_others)
        add(s, "%s", shown == 0 ? "; other names are allowed" : " and others");
    else if (shown == 0)
        add(s, "; nothing is allowed to leave by name");
}

static void add_near(const struct policy *p, const struct subject *q, struct sentence *s)
{
    char near[POLICY_REASON_SIZE / 2];

    if (near_miss(p, q, near, sizeof(near)))
        add(s, "%s", near);
}

/* Which rule, and which ceiling, would have to open an address that is not public. */
static void add_private(const struct policy *p, const struct policy_verdict *v, const char *address,
                        struct sentence *s)
{
    const bool is_default = v->source == POLICY_BY_DEFAULT;

    if (v->source == POLICY_BY_CEILING && v->name && strcmp(v->name, "public") == 0)
        add(s, ": %s is no public address, which takes a ceiling that has it ([egress] ceiling)",
            address);
    else if (is_default && p && p->fallback == FALLBACK_PUBLIC)
        add(s, ": %s is no public address, which takes a rule with it in addresses", address);
    if (is_default && v->capped)
        add(s, "; the operator's ceiling has to open it, too ([egress] ceiling)");
}

static void add_subject(const struct subject *q, struct sentence *s)
{
    char host[SHOWN_NAME_MAX + 4], shown_path[SHOWN_PATH_MAX + 4], verb[20],
        address[INET6_ADDRSTRLEN];

    if (q->a)
        policy_address_format(q->a, address);
    plain(q->name ? q->name : q->a ? address : "?", SHOWN_NAME_MAX, host);
    if (q->method && q->path) {
        plain(q->method, sizeof(verb) - 4, verb);
        plain(q->path, SHOWN_PATH_MAX, shown_path);
        add(s, "%s %s on ", verb, shown_path);
    }
    add(s, "%s port %u", host, q->port);
}

void policy_explain_subject(const char *name, const struct policy_address *a, uint16_t port,
                            const char *method, const char *path,
                            char out[static POLICY_REASON_SIZE])
{
    const struct subject q = subject_of(name, a, port, method, path);
    struct sentence s = {.out = out};

    out[0] = '\0';
    add_subject(&q, &s);
}

void policy_explain(const struct policy *p, const struct policy_verdict *v, const char *name,
                    const struct policy_address *a, uint16_t port, const char *method,
                    const char *path, char out[static POLICY_REASON_SIZE])
{
    static const char *const verbs[] = {[POLICY_DENY] = "denied",
                                        [POLICY_ALLOW] = "allowed",
                                        [POLICY_INSPECT] = "decided by request"};
    const struct subject q = subject_of(name, a, port, method, path);
    char address[INET6_ADDRSTRLEN];
    struct sentence s = {.out = out};

    out[0] = '\0';
    add_subject(&q, &s);
    add(&s, ": %s, ", verbs[v->action]);
    add_source(v, &s);
    if (v->action == POLICY_DENY && a && !policy_address_is_public(a)) {
        policy_address_format(a, address);
        add_private(p, v, address, &s);
    }
    if (v->warned)
        add(&s, "; this would deny it, but the policy only warns");
    /* Other parts of an operator's limit are not shown to a tenant. */
    if (v->action == POLICY_DENY && v->source != POLICY_BY_NEVER &&
        v->source != POLICY_BY_CEILING) {
        if (v->rule < 0 && p)
            add_near(p, &q, &s);
        if (p)
            add_allowed(p, &s);
    }
}
