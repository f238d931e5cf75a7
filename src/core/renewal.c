/* A renewal goes from known (the credential was sealed or read) to under way (cay-egress was
 * asked to renew it, for one of the sandboxes that want it) to renewed: the new record is on
 * the disk before any sandbox is given it. A failure is kept for a while, so that what cannot
 * be renewed is not tried with each request; a final one (the provider refused) until the
 * credential is set again. A caller names the serial number of the last outcome that it has seen,
 * and is told the next. */

#include "core/renewal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/share.h"
#include "contract/proto.h"
#include "core/call.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/credential.h"
#include "core/credential_internal.h"
#include "core/egress.h"
#include "core/egress_query.h"
#include "core/sandbox.h"
#include "core/tenant.h"
#include "http/json.h"

#include <errno.h>
#include <string.h>

#define ANSWER_MAX 131072u
#define TIMEOUT_MS 25000u /* cay-egress answers sooner (RENEW_WAIT_MS), or is not there */
#define WHY_SIZE   256

struct renewal {
    struct renewal *next;
    struct core *core;
    struct tenant *tenant;
    char name[CORE_CREDENTIAL_NAME_MAX + 1];
    struct share *share;   /* its place among RENEWALS_MAX */
    struct share *at_once; /* while one is under way */
    char *sent;            /* the record that it is done with */
    char *token;           /* sealed; NULL: none */
    uint64_t serial;       /* of it */
    int64_t end_real_ms;   /* of it */
    bool forgotten;        /* while one is under way: of no use any more */
    bool after_401;
    char why[WHY_SIZE]; /* the last failure, "": none since */
    bool final;
    unsigned failures;
    uint64_t done_ms, again_ms; /* by the monotonic clock */
};

struct renewals {
    struct renewal *first;
    struct share_pool *shares, *at_once;
    uint64_t last_serial;
    /* by process of cay-egress, when it was last said that it renews nothing; 0: never */
    uint64_t away_said_ms[EGRESS_PROCESSES_MAX];
};

/* -- those that are known ---------------------------------------------------------------------- */

static struct renewal *find(const struct core *c, const char *tenant, const char *name)
{
    struct renewal *r = c->renewals->first;

    while (r &&
           (r->forgotten || strcmp(r->tenant->name, tenant) != 0 || strcmp(r->name, name) != 0))
        r = r->next;
    return r;
}

static void drop(struct renewal *r)
{
    struct renewal **p = &r->core->renewals->first;

    while (*p != r)
        p = &(*p)->next;
    *p = r->next;
    share_return(r->share);
    share_return(r->at_once);
    free(r->sent);
    free(r->token);
    tenant_unref(r->tenant);
    free(r);
}

void renewals_forget(struct core *c, const char *tenant, const char *name)
{
    struct renewal *r = find(c, tenant, name);

    if (r && r->at_once)
        r->forgotten = true; /* its answer is awaited */
    else if (r)
        drop(r);
}

static void drop_old(struct core *c)
{
    uint64_t now = clock_mono_ms();

    for (struct renewal *r = c->renewals->first, *next; r; r = next) {
        next = r->next;
        if (!r->at_once && now - r->done_ms > RENEWALS_KEPT_MS &&
            clock_real_ms() - r->end_real_ms > RENEWALS_KEPT_MS)
            drop(r);
    }
}

static struct renewal *add(struct core *c, struct tenant *t, const char *name)
{
    struct renewal *r;

    drop_old(c);
    r = calloc(1, sizeof(*r));
    if (!r)
        return NULL;
    r->share = share_take(c->renewals->shares, t->name, name);
    if (!r->share) {
        log_error("tenant %s: the credential %s is not renewed: too many are", t->name, name);
        free(r);
        return NULL;
    }
    r->core = c;
    r->tenant = tenant_ref(t);
    (void)snprintf(r->name, sizeof(r->name), "%s", name);
    r->next = c->renewals->first;
    c->renewals->first = r;
    return r;
}

int renewals_add(struct core *c, const char *tenant, json_t *item)
{
    const struct renewal *r = find(c, tenant, json_string_value(json_object_get(item, "name")));
    uint64_t now = clock_mono_ms();

    int rc = 0;

    if (!r)
        return 0;
    if (r->token)
        rc |= json_object_set_new(item, "token", json_string(r->token));
    if (r->why[0] && (r->final || now < r->again_ms))
        rc |= json_object_set_new(item, "refused",
                                  json_pack("{s:s, s:b, s:I}", "why", r->why, "final", r->final,
                                            "retry_ms",
                                            (json_int_t)(r->final ? 0 : r->again_ms - now)));
    return rc;
}

/* -- what came of one -------------------------------------------------------------------------- */

static void fail(struct renewal *r, bool final, const char *why)
{
    uint64_t wait = RENEWALS_AGAIN_MS;

    for (unsigned i = 0; i < r->failures && wait < RENEWALS_AGAIN_MAX_MS; i++)
        wait *= 2;
    r->failures++;
    r->final = final;
    (void)snprintf(r->why, sizeof(r->why), "%s", why);
    r->again_ms = r->done_ms + MIN(wait, (uint64_t)RENEWALS_AGAIN_MAX_MS);
    log_warn("tenant %s: the credential %s was not renewed: %s%s", r->tenant->name, r->name, why,
             final ? "; it has to be set anew" : "");
}

/* The new record first: the old refresh token may be of no use any more. True: it is on the
 * disk. */
static bool write_record(struct renewal *r, const char *sealed)
{
    struct err e;
    enum err_code code = tenant_renew_credential(r->tenant, r->name, r->sent, sealed, &e);

    if (code == ERR_OK)
        return true;
    if (code == ERR_NOT_FOUND) /* the owner has set another meanwhile */
        return false;
    fail(r, false, e.text);
    return false;
}

static void succeed(struct renewal *r, const json_t *o)
{
    const char *token = json_string_value(json_object_get(o, "token")),
               *sealed = json_string_value(json_object_get(o, "sealed"));
    char *copy = token ? strdup(token) : NULL;

    if (!copy || (sealed && !write_record(r, sealed))) {
        if (!copy)
            fail(r, false, "cay-egress has answered nothing that is known");
        free(
            copy); /* it is asked again, with the old record: cay-egress has kept what came of it */
        return;
    }
    free(r->token);
    r->token = copy;
    r->serial = (uint64_t)json_integer_value(json_object_get(o, "serial"));
    r->end_real_ms = json_integer_value(json_object_get(o, "end_ms"));
    r->why[0] = '\0';
    r->final = false;
    r->failures = 0;
    r->again_ms = r->done_ms + RENEWALS_EVERY_MS;
    log_info("tenant %s: the credential %s was renewed%s", r->tenant->name, r->name,
             sealed ? ", with a new refresh token" : "");
}

static void take_answer(struct renewal *r, int status, const char *body, size_t len)
{
    json_t *o = status == 200 ? json_load(body, len) : NULL;
    const char *refused = json_string_value(json_object_get(o, "refused"));
    struct err e;

    if (refused) {
        fail(r, json_is_true(json_object_get(o, "final")), refused);
    } else if (o) {
        succeed(r, o);
    } else if (status == 200 && json_memory_was_out()) {
        fail(r, false, "memory is out");
    } else {
        egress_refusal(&e, status, body, len, "cay-egress");
        fail(r, false, e.text);
    }
    json_decref(o);
}

static void on_answer(struct core *c, const char *id, const struct err *why, int status,
                      const char *body, size_t len, void *arg)
{
    struct renewal *r = arg;
    struct err e;

    share_return(TAKE_PTR(r->at_once));
    if (r->forgotten || c->stopping) {
        drop(r);
        return;
    }
    r->done_ms = clock_mono_ms();
    if (why) {
        err_set(&e, why->code, "cay-egress: %s", why->text);
        fail(r, false, e.text);
    } else {
        take_answer(r, status, body, len);
    }
    free(TAKE_PTR(r->sent));
    credentials_touch(r->tenant, r->name);
}

/* -- asked ------------------------------------------------------------------------------------- */

static uint64_t next_serial(struct renewals *all)
{
    all->last_serial = MAX(all->last_serial + 1, (uint64_t)clock_real_ms());
    return all->last_serial;
}

/* NULL: it is out of memory, or there is no such tenant. */
static char *make_body(struct renewal *r, const struct sandbox *s, json_t *item, struct err *e)
{
    json_t *ceilings = egress_ceilings(r->tenant, e), *o;
    char *text;

    if (!ceilings)
        return NULL;
    o = json_make("{s:s, s:s, s:O, s:o, s:I, s:b, s:s*}", "tenant", r->tenant->name, "sandbox",
                  s->id, "credential", item, "ceilings", ceilings, "serial",
                  (json_int_t)next_serial(r->core->renewals), "after_401", r->after_401, "previous",
                  r->token);
    text = json_text(o, JSON_COMPACT);
    json_decref(o);
    if (!text)
        err_set(e, ERR_EXHAUSTED, "memory is out");
    return text;
}

/* Its process of cay-egress is not up, as in a loop of crashes: its whole share of the credentials
 * stands still, and tenants see no more than 503. A line for each process and AWAY_LOG_MS, however
 * often sandboxes ask, for whichever credential of it. */
static void log_away(const struct renewal *r)
{
    const struct core *c = r->core;
    unsigned number = egress_count(c) ? egress_number_of(c, r->tenant->name, r->name) : 0;
    uint64_t now = clock_mono_ms(), *said = &c->renewals->away_said_ms[number];

    if (egress_count(c) == 0 || (*said != 0 && now - *said < RENEWALS_AWAY_LOG_MS))
        return;
    *said = now;
    log_warn("cay-egress (%s) is not up: OAuth credentials of its share are not renewed, %s of "
             "tenant %s among them; requests that need a new token wait for it, and get 503",
             egress_path(c, number), r->name, r->tenant->name);
}

/* 0, or -errno: nothing is under way. By the credential's own process alone, and later while that
 * is not up, as after a restart of this program: another one does not know what came of a renewal
 * that was not written, and would use up a refresh token for the second time. It is no failure:
 * the callers ask again. */
static int start(struct renewal *r, const struct sandbox *s, json_t *item)
{
    struct core *c = r->core;
    const char *path = egress_path_of(c, r->tenant->name, r->name);
    const char *sealed = json_string_value(json_object_get(item, "sealed"));
    struct call_agent_request q = {.method = "POST",
                                   .target = "/v1/renewals",
                                   .max_response_bytes = ANSWER_MAX,
                                   .timeout_ms = TIMEOUT_MS};
    struct err e;

    if (!path) {
        log_away(r);
        return -EAGAIN;
    }
    r->done_ms = clock_mono_ms();
    err_set(&e, ERR_EXHAUSTED, "too many credentials are renewed at a time");
    r->at_once = share_take(c->renewals->at_once, r->tenant->name, r->name);
    r->sent = sealed ? strdup(sealed) : NULL;
    q.body = r->at_once && r->sent ? make_body(r, s, item, &e) : NULL;
    if (q.body) {
        call_unix(c, "", path, &q, on_answer, r);
        return 0;
    }
    share_return(TAKE_PTR(r->at_once));
    free(TAKE_PTR(r->sent));
    fail(r, false, e.text);
    return -EAGAIN;
}

/* The tenant's credential of that name, if it is one that is renewed. */
static json_t *find_item(struct tenant *t, const char *name)
{
    json_t *item = NULL;
    const char *kind;
    struct err e;

    if (strlen(name) > CORE_CREDENTIAL_NAME_MAX || tenant_credential(t, name, &item, &e) != ERR_OK)
        return NULL;
    kind = json_string_value(json_object_get(json_object_get(item, "bind"), "kind"));
    if (kind && strcmp(kind, "oauth2") == 0)
        return item;
    json_decref(item);
    return NULL;
}

/* Has the requester something to be told? */
static bool is_unseen(const struct renewal *r, uint64_t serial)
{
    return (r->token && r->serial > serial) || r->why[0];
}

/* Is there nothing to be done about it now? */
static bool is_settled(const struct renewal *r, uint64_t serial)
{
    return (r->token && r->serial > serial && !r->why[0]) || r->final ||
           clock_mono_ms() < r->again_ms;
}

void renewals_wanted(struct core *c, const struct sandbox *s, const char *name, uint64_t serial,
                     bool rejected)
{
    json_t *item = find_item(sandbox_tenant(s), name);
    struct renewal *r = item ? find(c, s->tenant, name) : NULL;
    struct sandbox_obj *o = sandbox_get(c, NULL, s->id);

    if (item && !r)
        r = add(c, sandbox_tenant(s), name);
    if (r && !r->at_once) {
        r->after_401 = rejected;
        if ((is_settled(r, serial) || start(r, s, item) < 0) && o && is_unseen(r, serial))
            egress_touch(o);
    }
    json_decref(item);
}

/* -- life -------------------------------------------------------------------------------------- */

int renewals_init(struct core *c)
{
    c->renewals = calloc(1, sizeof(*c->renewals));
    if (!c->renewals)
        return -ENOMEM;
    c->renewals->shares = share_pool_new(RENEWALS_MAX);
    c->renewals->at_once = share_pool_new(RENEWALS_AT_ONCE);
    return c->renewals->shares && c->renewals->at_once ? 0 : -ENOMEM;
}

void renewals_free(struct core *c)
{
    if (!c->renewals)
        return;
    while (c->renewals->first)
        drop(c->renewals->first);
    share_pool_free(c->renewals->shares);
    share_pool_free(c->renewals->at_once);
    free(c->renewals);
    c->renewals = NULL;
}
