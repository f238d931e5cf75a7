/* A question about one sandbox goes to the process that serves its slot, and its answer is the
 * caller's. Queries for all processes (the log and its verification) are sent to each at the same
 * time; the answers are merged by time when the last has come, in a gathering that holds one of the
 * tenant's places until then and is given up when the client has gone. */

#include "core/egress_query.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/share.h"
#include "base/util.h"
#include "contract/proto.h"
#include "core/call.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/credential_internal.h"
#include "core/deferred.h"
#include "core/egress.h"
#include "core/reserve.h"
#include "core/sandbox.h"
#include "core/tenant.h"
#include "http/json.h"

#include <stdio.h>
#include <string.h>

#define TIMEOUT_MS    20000u
#define ANSWER_MAX    (256u * 1024u)
#define AUDIT_MAX     (8u * 1024u * 1024u) /* of one process */
#define VERIFY_MAX    4096u
#define TIME_KEY      "\"time\":\""
#define GONE_CHECK_MS 200u
#define ASK_ID_LEN    16u
#define ANSWER_SIZE   64u

/* -- of one sandbox ---------------------------------------------------------------------------- */

/* A status of cay-egress that is no failure of the channel, and what it says: "sandbox ID ...". */
struct query_error {
    int status;
    enum err_code code;
    const char *text;
};

/* The questions about a sandbox. */
struct query_kind {
    const char *method, *path; /* below the sandbox's own */
    const char *what;          /* "... of ID", where it is refused */
    int done;                  /* the status of an answer, which is handed on */
    const char *none; /* the meaning of 404: cay-egress has not seen the sandbox yet; or NULL */
    struct query_error errors[2];
};

static const struct query_kind denials = {"GET", "denials", "denials", 200,
                                          .none = "{\"denials\":[]}"};
static const struct query_kind asks = {"GET", "asks", "questions", 200, .none = "{\"asks\":[]}"};
static const struct query_kind answer_of_owner = {
    "POST", "asks", "an answer to a question", 204,
    .errors = {{404, ERR_NOT_FOUND, "waits for no such answer: it was given, or is too late"},
               {409, ERR_CONFLICT,
                "keeps as many answers as it may: answer once, or give its policy a rule"}}};
static const struct query_kind explanation = {
    "POST", "explain", "an explanation", 200,
    .errors = {{404, ERR_UNAVAILABLE, "is not known to cay-egress yet: try again"}}};

struct query {
    const struct query_kind *kind;
    core_text_cb done;
    void *arg;
    struct err why;
    struct deferred later;
};

static void answer_error(void *arg)
{
    CLEANUP_FREE struct query *a = arg;

    a->done(a->arg, NULL, 0, &a->why);
}

static struct query *query_new(struct core *c, const struct query_kind *kind, core_text_cb done,
                               void *arg)
{
    struct query *a = RESERVE_NEW(&c->reserve, struct query);

    a->kind = kind;
    a->done = done;
    a->arg = arg;
    return a;
}

/* False: done is told why. */
static bool may_query(struct core *c, const char *tenant, const char *id, struct sandbox_obj **o,
                      struct query *a)
{
    if (sandbox_visible(c, tenant, id, o, &a->why) == ERR_OK && egress_count(c) == 0)
        err_set(&a->why, ERR_UNAVAILABLE, "this server has no cay-egress");
    if (a->why.code == ERR_OK)
        return true;
    core_defer(c, &a->later, answer_error, a);
    return false;
}

static void set_error(struct err *e, const struct query_kind *kind, const char *id, int status,
                      const char *body, size_t len)
{
    for (size_t i = 0; i < ARRAY_SIZE(kind->errors); i++)
        if (kind->errors[i].status == status) {
            err_set(e, kind->errors[i].code, "sandbox %s %s", id, kind->errors[i].text);
            return;
        }
    egress_refusal(e, status, body, len, "%s of %s", kind->what, id);
}

static void on_answer(struct core *c, const char *id, const struct err *why, int status,
                      const char *body, size_t len, void *arg)
{
    CLEANUP_FREE struct query *a = arg;
    struct err e;

    if (!why && status == a->kind->done) {
        a->done(a->arg, len > 0 ? body : "", len, NULL);
        return;
    }
    if (!why && status == 404 && a->kind->none) {
        a->done(a->arg, a->kind->none, strlen(a->kind->none), NULL);
        return;
    }
    if (why)
        err_set(&e, why->code, "cay-egress: %s", why->text);
    else
        set_error(&e, a->kind, id, status, body, len);
    a->done(a->arg, NULL, 0, &e);
}

/* body is taken over; NULL: there is none. under: below the kind's path, or "". */
static void send_question(struct core *c, const struct sandbox *s, const struct query_kind *kind,
                          const char *under, char *body, call_agent_cb cb, void *arg)
{
    struct call_agent_request r = {.method = kind->method,
                                   .body = body,
                                   .max_response_bytes = ANSWER_MAX,
                                   .timeout_ms = TIMEOUT_MS};
    char target[96];

    (void)snprintf(target, sizeof(target), "/v1/sandboxes/%u/%u/%s%s%s", s->slot, s->gen,
                   kind->path, *under ? "/" : "", under);
    r.target = target;
    call_unix(c, s->id, egress_path(c, s->slot % egress_count(c)), &r, cb, arg);
}

/* Questions that name the sandbox alone. */
static void query_plainly(struct core *c, const struct query_kind *kind, const char *tenant,
                          const char *id, core_text_cb done, void *arg)
{
    struct query *a = query_new(c, kind, done, arg);
    struct sandbox_obj *o = NULL;

    if (may_query(c, tenant, id, &o, a))
        send_question(c, &o->s, kind, "", NULL, on_answer, a);
}

void core_denials(struct core *c, const char *tenant, const char *id, core_text_cb done, void *arg)
{
    query_plainly(c, &denials, tenant, id, done, arg);
}

void core_asks(struct core *c, const char *tenant, const char *id, core_text_cb done, void *arg)
{
    query_plainly(c, &asks, tenant, id, done, arg);
}

/* -- the owner's answers ----------------------------------------------------------------------- */

static bool is_ask(const char *text)
{
    return strlen(text) == ASK_ID_LEN &&
           strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789") == ASK_ID_LEN;
}

static void send_answer(struct core *c, const struct sandbox *s, const char *ask, const char *said,
                        bool always, call_agent_cb cb, void *arg)
{
    char *body = reserve_take(&c->reserve, ANSWER_SIZE);

    (void)snprintf(body, ANSWER_SIZE, "{\"answer\":\"%s\",\"always\":%s}", said,
                   always ? "true" : "false");
    send_question(c, s, &answer_of_owner, ask, body, cb, arg);
}

void core_ask_answer(struct core *c, const char *tenant, const char *id,
                     const struct core_ask_answer *answer, core_text_cb done, void *arg)
{
    struct query *a = query_new(c, &answer_of_owner, done, arg);
    struct sandbox_obj *o = NULL;

    if (!is_ask(answer->ask)) {
        err_set(&a->why, ERR_NOT_FOUND, "there is no such question");
        core_defer(c, &a->later, answer_error, a);
    } else if (may_query(c, tenant, id, &o, a)) {
        send_answer(c, &o->s, answer->ask, answer->yes ? "yes" : "no", answer->always, on_answer,
                    a);
    }
}

static void on_unfollowed(struct core *c, const char *id, const struct err *why, int status,
                          const char *body, size_t len, void *arg)
{
    if (why) /* it is refused at its deadline, then */
        log_warn("sandbox %s: cay-egress was not told that a question reaches no one: %s", id,
                 why->text);
}

void egress_ask_unfollowed(struct core *c, const struct sandbox *s, const char *ask)
{
    if (is_ask(ask) && egress_count(c) > 0)
        send_answer(c, s, ask, "nobody", false, on_unfollowed, NULL);
}

/* -- what would happen ------------------------------------------------------------------------- */

/* With what its credentials are bound to; their values stay sealed where they are. NULL: memory is
 * out. */
static char *explain_body(struct core *c, const struct sandbox *s, const json_t *question)
{
    json_t *sealed = credentials_for(sandbox_tenant(s), s), *credentials = json_array(), *item;
    json_t *o = json_copy((json_t *)question);
    char *text = NULL;
    int rc = sealed ? 0 : -1;
    size_t i;

    json_array_foreach (sealed, i, item)
        rc |= json_array_append_new(credentials,
                                    json_pack("{s:O, s:O}", "name", json_object_get(item, "name"),
                                              "bind", json_object_get(item, "bind")));
    rc |= json_object_set_new(o, "credentials", credentials);
    if (rc == 0)
        text = json_text(o, JSON_COMPACT);
    json_decref(sealed);
    json_decref(o);
    return text;
}

void core_explain(struct core *c, const char *tenant, const char *id, const json_t *question,
                  core_text_cb done, void *arg)
{
    struct query *a = query_new(c, &explanation, done, arg);
    struct sandbox_obj *o = NULL;
    char *body;

    if (!may_query(c, tenant, id, &o, a))
        return;
    if (!sandbox_life(o)->policy) { /* cay-egress does not have it before it is resumed */
        sandbox_not_running(o, &a->why);
        core_defer(c, &a->later, answer_error, a);
        return;
    }
    body = explain_body(c, &o->s, question);
    if (body) {
        send_question(c, &o->s, &explanation, "", body, on_answer, a);
    } else {
        err_set(&a->why, ERR_EXHAUSTED, "memory is out");
        core_defer(c, &a->later, answer_error, a);
    }
}

/* -- what all processes are asked -------------------------------------------------------------- */

struct gathering {
    struct core *core;
    core_text_cb done;
    void *arg;
    unsigned n, waiting, limit;
    bool lines; /* JSON lines, merged by time; else one value from each */
    char *texts[EGRESS_PROCESSES_MAX];
    struct call *calls[EGRESS_PROCESSES_MAX]; /* that have not been answered */
    struct share *share;
    struct tenant_charge charge;
    const atomic_bool *gone; /* or NULL */
    uv_timer_t gone_check;   /* whether the requester has gone */
    struct err why;          /* the first that failed */
};

/* The start of text's first line of JSON; NULL at the end. */
static const char *line_time(const char *line)
{
    const char *end = strchr(line, '\n'), *at = strstr(line, TIME_KEY);

    return at && end && at < end ? at + strlen(TIME_KEY) : "";
}

/* Times are all of one form, so that text order is time order. */
static char **oldest(char **at, unsigned n)
{
    char **best = NULL;

    for (unsigned i = 0; i < n; i++)
        if (at[i] && strchr(at[i], '\n') &&
            (!best || strncmp(line_time(at[i]), line_time(*best), 24) < 0))
            best = &at[i];
    return best;
}

static size_t count_lines(char **texts, unsigned n)
{
    size_t lines = 0;

    for (unsigned i = 0; i < n; i++)
        for (const char *at = texts[i]; at && (at = strchr(at, '\n')); at++)
            lines++;
    return lines;
}

static int put(struct buf *b, const char *text, size_t n)
{
    return (b->len > 1 && buf_append(b, ",", 1) < 0) || buf_append(b, text, n) < 0 ? -ENOSPC : 0;
}

static int merge(struct gathering *g, struct buf *b)
{
    size_t skip = g->lines ? count_lines(g->texts, g->n) : 0;
    char *at[EGRESS_PROCESSES_MAX], **next;

    skip -= MIN(skip, (size_t)g->limit);
    memcpy(at, g->texts, sizeof(at));
    if (buf_append(b, "[", 1) < 0)
        return -ENOSPC;
    for (unsigned i = 0; i < g->n && !g->lines; i++)
        if (put(b, g->texts[i], strlen(g->texts[i])) < 0)
            return -ENOSPC;
    while (g->lines && (next = oldest(at, g->n))) {
        size_t n = strcspn(*next, "\n");

        if (skip > 0)
            skip--;
        else if (put(b, *next, n) < 0)
            return -ENOSPC;
        *next += n + 1;
    }
    return buf_append(b, "]", 1);
}

static void on_gone_check_closed(uv_handle_t *h)
{
    struct gathering *g = h->data;
    struct core *c = g->core;

    free(g);
    c->audit_handles--;
    if (c->stopping)
        core_handle_closed(c);
}

static void gathered(struct gathering *g)
{
    struct buf b CLEANUP_BUF;

    buf_init(&b, EGRESS_PROCESSES_MAX * (size_t)AUDIT_MAX);
    if (g->why.code == ERR_OK && merge(g, &b) < 0)
        err_set(&g->why, ERR_EXHAUSTED, "memory is out");
    if (g->why.code == ERR_OK)
        g->done(g->arg, b.data, b.len, NULL);
    else
        g->done(g->arg, NULL, 0, &g->why);
    for (unsigned i = 0; i < g->n; i++)
        free(g->texts[i]);
    share_return(g->share);
    tenant_refund(&g->charge);
    uv_close((uv_handle_t *)&g->gone_check, on_gone_check_closed);
}

/* The last of them calls gathered(), which closes the timer. */
static void on_gone_check(uv_timer_t *t)
{
    struct gathering *g = t->data;

    if (!atomic_load(g->gone))
        return;
    uv_timer_stop(t);
    for (unsigned i = 0, n = g->n; i < n; i++)
        if (g->calls[i])
            call_cancel(g->calls[i]);
}

struct part {
    struct gathering *g;
    unsigned i;
};

static void on_part(struct core *c, const char *id, const struct err *why, int status,
                    const char *body, size_t len, void *arg)
{
    CLEANUP_FREE struct part *p = arg;
    struct gathering *g = p->g;

    g->calls[p->i] = NULL;
    if (!why && status == 200)
        g->texts[p->i] = strndup(body, len);
    if (why)
        err_set(&g->why, why->code, "cay-egress %u: %s", p->i, why->text);
    else if (status != 200)
        egress_refusal(&g->why, status, body, len, "cay-egress %u", p->i);
    else if (!g->texts[p->i])
        err_set(&g->why, ERR_EXHAUSTED, "memory is out");
    if (--g->waiting == 0)
        gathered(g);
}

/* Takes over g. */
static void query_all(struct core *c, struct gathering *g, const char *target, size_t max)
{
    const struct call_agent_request r = {
        .method = "GET", .target = target, .max_response_bytes = max, .timeout_ms = TIMEOUT_MS};

    g->n = g->waiting = egress_count(c);
    for (unsigned i = 0; i < g->n; i++) {
        struct part *p = RESERVE_NEW(&c->reserve, struct part);

        *p = (struct part){g, i};
        g->calls[i] = call_unix(c, "", egress_path(c, i), &r, on_part, p);
    }
    if (g->gone)
        uv_timer_start(&g->gone_check, on_gone_check, GONE_CHECK_MS, GONE_CHECK_MS);
}

/* NULL: none is left for it, or memory is out. */
static struct share *take_share(struct core *c, const struct tenant *t)
{
    return t && t->charged[TENANT_AUDITS] < CORE_AUDITS_EACH ? share_take(c->audits, t->name, NULL)
                                                             : NULL;
}

static struct gathering *gathering_new(struct core *c, const char *tenant, const atomic_bool *gone,
                                       core_text_cb done, void *arg)
{
    struct tenant *t = tenant_get(c, tenant);
    struct share *share = egress_count(c) > 0 ? take_share(c, t) : NULL;
    struct gathering *g;
    struct query *a;

    if (share) {
        g = RESERVE_NEW(&c->reserve, struct gathering);
        *g = (struct gathering){.core = c, .done = done, .arg = arg, .share = share, .gone = gone};
        tenant_charge(t, TENANT_AUDITS, 1, &g->charge);
        tenant_unref(t);
        uv_timer_init(c->loop, &g->gone_check);
        g->gone_check.data = g;
        c->audit_handles++;
        return g;
    }
    a = query_new(c, NULL, done, arg);
    if (egress_count(c) > 0)
        err_set(&a->why, ERR_EXHAUSTED,
                "%zu questions of this tenant about the log are being answered, which is its "
                "share: wait "
                "for them",
                t ? (size_t)t->charged[TENANT_AUDITS] : 0);
    else
        err_set(&a->why, ERR_UNAVAILABLE,
                "this server has no cay-egress, and so no log of decisions");
    tenant_unref(t);
    core_defer(c, &a->later, answer_error, a);
    return NULL;
}

void core_audit(struct core *c, const char *tenant, const struct core_audit_filter *f,
                const atomic_bool *gone, core_text_cb done, void *arg)
{
    struct gathering *g = gathering_new(c, tenant, gone, done, arg);
    char target[CALL_TARGET_MAX + 1], since[CLOCK_RFC3339_SIZE];

    if (!g)
        return;
    g->lines = true;
    g->limit = MIN(MAX(f->limit, 1u), CORE_AUDIT_MAX);
    clock_format_rfc3339(f->since_ms, since);
    (void)snprintf(target, sizeof(target), "/v1/audit?tenant=%s&limit=%u%s%s%s%s%s%s", tenant,
                   g->limit, f->sandbox ? "&sandbox=" : "", f->sandbox ? f->sandbox : "",
                   f->verdict ? "&verdict=" : "", f->verdict ? f->verdict : "",
                   f->since_ms ? "&since=" : "", f->since_ms ? since : "");
    query_all(c, g, target, AUDIT_MAX);
}

void core_audit_verify(struct core *c, const atomic_bool *gone, core_text_cb done, void *arg)
{
    struct gathering *g = gathering_new(c, "", gone, done,
                                        arg); /* the operator's: no tenant's share */

    if (g)
        query_all(c, g, "/v1/audit/verify", VERIFY_MAX);
}
