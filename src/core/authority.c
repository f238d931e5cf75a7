#include "core/authority.h"

#include "core/call.h"
#include "core/egress.h"

#include <stdio.h>

#define PEM_MAX    (16u * 1024u)
#define TIMEOUT_MS 2000u
#define AGAIN_MS   10000u /* after a failure: creates do not wait for it each time */
#define GIVING_MAX 16u    /* sandboxes at a time that are given what they lack */

struct authority {
    struct authority *next;
    char tenant[CORE_TENANT_SIZE];
    char *pem;
    bool asking;
    uint64_t again_ms; /* not before that */
    unsigned giving;   /* calls under way */
};

static struct authority *find(struct core *c, const char *tenant)
{
    struct authority *a = c->authorities;

    while (a && strcmp(a->tenant, tenant) != 0)
        a = a->next;
    return a;
}

static bool is_certificate(const char *text)
{
    return strncmp(text, "-----BEGIN CERTIFICATE-----", 27) == 0 && !strstr(text, "PRIVATE");
}

static void go_on(struct core *c, const char *tenant, const struct err *why)
{
    for (size_t i = c->registry.n; i-- > 0;) {
        struct sandbox_obj *o = c->registry.order[i];

        if (!o->init_waits || strcmp(o->s.tenant, tenant) != 0)
            continue;
        o->init_waits = false;
        create_go_on(o, why);
    }
}

/* -- to those who were made without ------------------------------------------------------------ */

static void give(struct core *c, struct authority *a);

static void on_given(struct core *c, const char *id, const struct err *why, int status,
                     const char *body, size_t len, void *arg)
{
    struct authority *a = arg;

    a->giving--;
    if (c->stopping)
        return;
    if (why || status / 100 != 2)
        log_warn("sandbox %s: giving it its tenant's certificate: %s", id,
                 why ? why->text : "its agent refused");
    give(c, a);
}

/* Nothing but that: what /init says besides stays as it is. */
static char *make_body(const char *pem)
{
    json_t *body = json_pack("{s:s}", "caBundle", pem);
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;

    json_decref(body);
    return text;
}

static void give(struct core *c, struct authority *a)
{
    for (size_t i = 0; a->pem && i < c->registry.n && a->giving < GIVING_MAX; i++) {
        struct sandbox_obj *o = c->registry.order[i];
        struct call_agent_request r = {.method = "POST",
                                       .target = "/init",
                                       .max_response_bytes = PEM_MAX,
                                       .timeout_ms = c->config.agent_timeout_ms};

        if (!o->init_lacks || o->s.state != SANDBOX_RUNNING || strcmp(o->s.tenant, a->tenant) != 0)
            continue;
        r.body = make_body(a->pem);
        if (!r.body)
            return; /* with the next that is asked for */
        o->init_lacks = false;
        a->giving++;
        call_agent(o, &r, on_given, a);
    }
}

/* -- asking ------------------------------------------------------------------------------------ */

static void on_pem(struct core *c, const char *id, const struct err *why, int status,
                   const char *body, size_t len, void *arg)
{
    struct authority *a = arg;
    CLEANUP_FREE char *pem = !why && status == 200 ? strndup(body, len) : NULL;

    a->asking = false;
    if (pem && is_certificate(pem)) {
        free(a->pem);
        a->pem = TAKE_PTR(pem);
    } else if (!c->stopping) {
        log_warn("the certificate of tenant %s's authority: %s", a->tenant,
                 why ? why->text : "cay-egress has none");
        a->again_ms = clock_mono_ms() + AGAIN_MS;
    }
    go_on(c, a->tenant, why);
    if (!c->stopping)
        give(c, a);
}

static void ask(struct core *c, struct authority *a, const char *path)
{
    char target[sizeof("/v1/ca/") + CORE_TENANT_SIZE];
    const struct call_agent_request r = {
        .method = "GET", .target = target, .max_response_bytes = PEM_MAX, .timeout_ms = TIMEOUT_MS};

    (void)snprintf(target, sizeof(target), "/v1/ca/%s", a->tenant);
    a->asking = true;
    call_unix(c, "", path, &r, on_pem, a);
}

bool authority_wanted(struct core *c, const char *tenant)
{
    struct authority *a = find(c, tenant);
    const char *path = egress_any_path(c);

    if (a && (a->asking || a->pem || a->again_ms > clock_mono_ms()))
        return a->asking;
    if (!path)
        return false;
    if (!a) {
        a = calloc(1, sizeof(*a));
        if (!a)
            return false;
        (void)snprintf(a->tenant, sizeof(a->tenant), "%s", tenant);
        a->next = c->authorities;
        c->authorities = a;
    }
    ask(c, a, path);
    return true;
}

const char *authority_pem(struct core *c, const char *tenant)
{
    const struct authority *a = find(c, tenant);

    return a ? a->pem : NULL;
}

void authority_renew(struct core *c)
{
    for (struct authority *a = c->authorities; a; a = a->next) {
        free(TAKE_PTR(a->pem));
        a->again_ms = 0;
    }
    for (size_t i = 0; i < c->registry.n; i++)
        if (c->registry.order[i]->init_lacks)
            (void)authority_wanted(c, c->registry.order[i]->s.tenant);
}

void authority_free(struct core *c)
{
    for (struct authority *a = c->authorities, *next; a; a = next) {
        next = a->next;
        free(a->pem);
        free(a);
    }
    c->authorities = NULL;
}
