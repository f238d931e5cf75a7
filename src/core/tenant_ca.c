#include "core/tenant_ca.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/call.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/egress.h"
#include "core/sandbox.h"
#include "core/store_sandbox.h"
#include "core/tenant.h"
#include "core/timers.h"
#include "http/json.h"

#include <stdio.h>
#include <string.h>

#define PEM_MAX    (16u * 1024u)
#define TIMEOUT_MS 2000u
#define GIVING_MAX 16u /* sandboxes at a time that are given what they lack */

struct tenant_ca {
    struct tenant_ca *next;
    struct tenant *tenant; /* a reference */
    char *pem;
    bool asking;
    uint64_t again_ms; /* it has failed: not before that */
    unsigned giving;   /* calls under way */
};

static bool is_certificate(const char *text)
{
    return strncmp(text, "-----BEGIN CERTIFICATE-----", 27) == 0 && !strstr(text, "PRIVATE");
}

static void go_on(struct tenant *t, const struct err *why)
{
    for (struct sandbox_obj *o = t->sandboxes, *next; o; o = next) {
        next = o->tenant_next;
        if (o->on_tenant_ca)
            TAKE_PTR(o->on_tenant_ca)(o, why);
    }
}

/* -- to those who were made without ------------------------------------------------------------ */

static void give(struct core *c, struct tenant_ca *a);

static bool lacks_one(const struct sandbox_obj *o)
{
    return sandbox_life(o)->reachable && !o->s.has_tenant_ca && !o->tenant_ca_installing;
}

static void try_again_later(struct core *c)
{
    if (!timer_armed(&c->tenant_ca_retry))
        timers_set(&c->timers, &c->tenant_ca_retry, clock_mono_ms() + c->config.tenant_ca_retry_ms);
}

/* Written only now: a cayd that dies before gives it again, which changes nothing inside. */
static void given(struct core *c, struct sandbox_obj *o)
{
    struct err e;

    o->s.has_tenant_ca = true;
    if (store_sandbox_update(c->store, &o->s, &e) != ERR_OK)
        log_error("sandbox %s: %s", o->s.id, e.text);
}

static void not_given(struct core *c, struct sandbox_obj *o, const char *why)
{
    if (o->tenant_ca_retry_ms == 0) /* not each time */
        log_warn("sandbox %s: giving it its tenant's certificate: %s; it is tried again", o->s.id,
                 why);
    o->tenant_ca_retry_ms = clock_mono_ms() + c->config.tenant_ca_retry_ms;
    try_again_later(c);
}

static void on_given(struct core *c, const char *id, const struct err *why, int status,
                     const char *body, size_t len, void *arg)
{
    struct sandbox_obj *o = sandbox_get(c, NULL, id);
    struct tenant_ca *a = arg;

    a->giving--;
    if (c->stopping)
        return;
    if (o) {
        o->tenant_ca_installing = false;
        if (!why && status / 100 == 2)
            given(c, o);
        else
            not_given(c, o, why ? why->text : "its agent refused");
    }
    give(c, a);
}

/* Nothing but that: what /init says besides stays as it is. */
static char *make_body(const char *pem)
{
    json_t *body = json_pack("{s:s}", "caBundle", pem);
    char *text = json_text(body, JSON_COMPACT);

    json_decref(body);
    return text;
}

static void give(struct core *c, struct tenant_ca *a)
{
    uint64_t now = clock_mono_ms();

    for (struct sandbox_obj *o = a->tenant->sandboxes;
         c->ready && a->pem && o && a->giving < GIVING_MAX; o = o->tenant_next) {
        struct call_agent_request r = {.method = "POST",
                                       .target = "/init",
                                       .max_response_bytes = PEM_MAX,
                                       .timeout_ms = c->config.agent_timeout_ms};

        if (!lacks_one(o) || o->tenant_ca_retry_ms > now)
            continue;
        r.body = core_admits(c) ? make_body(a->pem) : NULL;
        if (!r.body) {
            try_again_later(c);
            return;
        }
        o->tenant_ca_installing = true;
        a->giving++;
        call_agent(o, &r, on_given, a);
    }
}

void tenant_ca_install(struct core *c)
{
    uint64_t now = clock_mono_ms();

    if (!c->config.egress_dir)
        return; /* no create searches all others for a certificate that is nowhere */
    for (size_t i = 0; i < c->registry.n; i++) {
        struct sandbox_obj *o = c->registry.order[i];

        if (!lacks_one(o))
            continue;
        if (!tenant_ca_wanted(o->tenant) && !tenant_ca_pem(o->tenant))
            try_again_later(c);
        if (o->tenant_ca_retry_ms > now)
            try_again_later(c);
    }
    for (struct tenant_ca *a = c->tenant_cas; a; a = a->next)
        give(c, a);
}

void tenant_ca_on_timer(struct timer *t)
{
    tenant_ca_install(CONTAINER_OF(t, struct core, tenant_ca_retry));
}

/* -- asking ------------------------------------------------------------------------------------ */

static void on_pem(struct core *c, const char *id, const struct err *why, int status,
                   const char *body, size_t len, void *arg)
{
    struct tenant_ca *a = arg;
    CLEANUP_FREE char *pem = !why && status == 200 ? strndup(body, len) : NULL;

    a->asking = false;
    if (pem && is_certificate(pem)) {
        free(a->pem);
        a->pem = TAKE_PTR(pem);
    } else if (!c->stopping) {
        if (a->again_ms == 0) /* not each time */
            log_warn("the certificate of tenant %s's authority: %s", a->tenant->name,
                     why ? why->text : "cay-egress has none");
        a->again_ms = clock_mono_ms() + c->config.tenant_ca_retry_ms;
    }
    go_on(a->tenant, why);
    if (!c->stopping)
        tenant_ca_install(c);
}

static void request_ca(struct core *c, struct tenant_ca *a, const char *path)
{
    char target[sizeof("/v1/ca/") + CORE_TENANT_SIZE];
    const struct call_agent_request r = {
        .method = "GET", .target = target, .max_response_bytes = PEM_MAX, .timeout_ms = TIMEOUT_MS};

    (void)snprintf(target, sizeof(target), "/v1/ca/%s", a->tenant->name);
    a->asking = true;
    call_unix(c, "", path, &r, on_pem, a);
}

bool tenant_ca_wanted(struct tenant *t)
{
    struct core *c = t->core;
    struct tenant_ca *a = t->ca;
    const char *path = egress_any_path(c);

    if (a && (a->asking || a->pem || a->again_ms > clock_mono_ms()))
        return a->asking;
    if (!path)
        return false;
    if (!a) {
        a = calloc(1, sizeof(*a));
        if (!a)
            return false;
        a->tenant = tenant_ref(t);
        t->ca = a;
        a->next = c->tenant_cas;
        c->tenant_cas = a;
    }
    request_ca(c, a, path);
    return true;
}

const char *tenant_ca_pem(const struct tenant *t)
{
    return t->ca ? t->ca->pem : NULL;
}

void tenant_ca_renew(struct core *c)
{
    for (struct tenant_ca *a = c->tenant_cas; a; a = a->next) {
        free(TAKE_PTR(a->pem));
        a->again_ms = 0;
    }
    tenant_ca_install(c);
}

void tenant_ca_free(struct core *c)
{
    for (struct tenant_ca *a = c->tenant_cas, *next; a; a = next) {
        next = a->next;
        free(a->pem);
        a->tenant->ca = NULL;
        tenant_unref(a->tenant);
        free(a);
    }
    c->tenant_cas = NULL;
}
