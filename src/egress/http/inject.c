/* A plan for one request is made from its head, in a fixed order: names of credentials are
 * taken from the policy's verdict; overrides are left out; the client's own keys go; the
 * credential is put; placeholders are replaced in head and target; steps that need the body are
 * prepared (inject_late.c); the secrets that answers are searched for are settled last. The first
 * error refuses the request. Nothing of the request is changed before the plan is whole. */

#include "egress/http/inject_internal.h"

#include "base/base64.h"
#include "egress/credential/client_keys.h"
#include "egress/credential/override.h"
#include "egress/credential/placeholder.h"
#include "egress/credential/response_secrets.h"
#include "egress/http/inject_late.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

/* -- the credential that the policy names ------------------------------------------------------ */

static enum err_code set_basic(struct plan *p, const struct credential *c)
{
    size_t n = strlen(c->value);
    char *text = malloc(base64_encoded_len(n) + 1);
    enum err_code code;

    if (!text)
        return inject_no_memory(p);
    base64_encode(c->value, n, text);
    code = inject_set_header(p, "Authorization", "Basic %s", text);
    credential_wipe(text);
    return code;
}

/* Is this parameter of that name, however it is encoded? */
static bool is_parameter(const char *s, size_t n, const char *name)
{
    char decoded[CREDENTIAL_PARAMETER_SIZE];
    const char *eq = memchr(s, '=', n);

    return http_percent_decode(s, eq ? (size_t)(eq - s) : n, true, decoded, sizeof(decoded)) >= 0 &&
           strcmp(decoded, name) == 0;
}

/* The query without what it has of that parameter, and with it. There are servers to which ';'
 * divides, too: the other parameters stay divided as they were. */
static enum err_code set_parameter(struct plan *p, const struct credential *c)
{
    CLEANUP_BUF struct buf b;
    const char *q = p->head->query;
    char mark = '?';
    int rc;

    buf_init(&b, HTTP_MAX_HEAD_BYTES);
    rc = buf_printf(&b, "%s", p->head->path);
    while (rc == 0 && *q) {
        size_t n = strcspn(q, "&;");
        char next = q[n];

        if (n > 0 && !is_parameter(q, n, c->parameter)) {
            rc = buf_printf(&b, "%c%.*s", mark, (int)n, q);
            mark = next;
        }
        q += n + (next != '\0');
    }
    if (rc == 0)
        rc = buf_printf(&b, "%c%s=", mark == '?' ? '?' : '&', c->parameter);
    if (rc == 0)
        rc = placeholder_put(&b, c->value, PLACEHOLDER_FORM);
    if (rc < 0)
        return inject_take_rc(p, rc);
    credential_wipe(p->job->target);
    p->job->target = buf_take(&b);
    return p->job->target ? ERR_OK : inject_no_memory(p);
}

/* Values may have placeholders themselves: E2B's rules set headers that name secrets. */
static enum err_code set_headers(struct plan *p, const struct credential *c)
{
    for (size_t i = 0; i < c->header_count; i++) {
        const struct credential_header *h = &c->headers[i];
        CLEANUP_BUF struct buf b;
        enum err_code code;

        buf_init(&b, INJECT_TEXT_MAX);
        code = inject_substitute(p,
                                 &(struct inject_text){h->value, strlen(h->value),
                                                       PLACEHOLDER_PLAIN, INJECT_OWN, NULL, false},
                                 &b);
        if (code == ERR_OK)
            code = inject_set_header(p, h->name, "%s", b.data ? b.data : "");
        if (b.base)
            explicit_bzero(b.base, b.cap);
        if (code != ERR_OK)
            return code;
    }
    return ERR_OK;
}

/* Servers that find two keys take the one they like. SDKs send a key of their own beside the one
 * that is replaced (`Authorization` beside `x-api-key`); a key that an attacker gave the program
 * would make the host work for the attacker. */
static enum err_code leave_out_other_keys(struct plan *p)
{
    struct placeholder at;

    for (size_t i = 0; i < p->head->header_count; i++) {
        const struct http_header *h = &p->head->headers[i];

        if (credential_is_key_header(h->name) &&
            !placeholder_find(h->value, strlen(h->value), &at) && !inject_is_removed(p, h->name) &&
            inject_leave_out(p, h->name) != ERR_OK)
            return p->e->code;
    }
    return ERR_OK;
}

static bool is_required(const struct plan *p)
{
    return p->named && p->named->require;
}

/* The client's own keys in the query, before placeholders in it are replaced: those stay. */
static enum err_code leave_out_parameters(struct plan *p)
{
    const char *q = p->head->query;
    CLEANUP_BUF struct buf b;
    char mark = '?';
    int rc;

    buf_init(&b, HTTP_MAX_HEAD_BYTES);
    rc = buf_printf(&b, "%s", p->head->path);
    while (rc == 0 && *q) {
        size_t n = strcspn(q, "&;"); /* there are servers to which both divide */
        struct placeholder at;
        char next = q[n];

        if (!client_keys_parameter(q, n) || placeholder_find(q, n, &at)) {
            rc = buf_printf(&b, "%c%.*s", mark, (int)n, q);
            mark = next;
        }
        q += n + (next != '\0');
    }
    if (rc < 0)
        return inject_take_rc(p, rc);
    p->job->target = buf_take(&b);
    return p->job->target ? ERR_OK : inject_no_memory(p);
}

static enum err_code leave_out_client_keys(struct plan *p)
{
    struct placeholder at;

    for (size_t i = 0; i < p->head->header_count; i++) {
        const struct http_header *h = &p->head->headers[i];
        bool here = placeholder_find(h->value, strlen(h->value), &at);

        if (!client_keys_header(h->name, h->value))
            continue;
        if (here && !client_keys_alone(h->name, h->value))
            return err_set(p->e, ERR_DENIED,
                           "the header %.64s must have the key cay-secret:%s alone, without a key "
                           "beside it",
                           h->name, p->named->name);
        if (!here && !inject_is_removed(p, h->name) && inject_leave_out(p, h->name) != ERR_OK)
            return p->e->code;
    }
    return ERR_OK;
}

/* A request that has to carry the placeholder, and its key only. */
static enum err_code check_required(struct plan *p)
{
    const struct credential *c = p->named;

    if (!is_required(p))
        return ERR_OK;
    if (!inject_is_put(p, c))
        return err_set(p->e, ERR_DENIED,
                       "a request to this host must carry the key cay-secret:%s in place of any "
                       "other",
                       c->name);
    return leave_out_client_keys(p);
}

/* The use is counted, so that a 401 renews the token once. */
static enum err_code set_access_token(struct plan *p, const struct credential *c)
{
    if (!c->value)
        return err_set(p->e, ERR_DENIED, "the credential %s has no access token now", c->name);
    p->job->use = credential_use_new(p->r->credentials, c);
    return p->job->use ? inject_set_header(p, "Authorization", "Bearer %s", c->value)
                       : inject_no_memory(p);
}

static enum err_code put_credential(struct plan *p)
{
    const char *name = p->r->credential;
    const struct credential *c = name ? credentials_find(p->r->credentials, name, strlen(name))
                                      : NULL;

    if (!name)
        return ERR_OK;
    if (!c)
        return err_set(p->e, ERR_DENIED,
                       "the rule names the credential %.64s, which this sandbox was not given",
                       name);
    p->named = c->kind == CREDENTIAL_PLACEHOLDER ? c : NULL;
    if (p->named)
        return ERR_OK;
    if (inject_check_bound(p, c) != ERR_OK || leave_out_other_keys(p) != ERR_OK)
        return p->e->code;
    inject_note_put(p, c);
    switch (c->kind) {
    case CREDENTIAL_OAUTH2: return set_access_token(p, c);
    case CREDENTIAL_BEARER: return inject_set_header(p, "Authorization", "Bearer %s", c->value);
    case CREDENTIAL_BASIC: return set_basic(p, c);
    case CREDENTIAL_HEADER:
        return inject_set_header(p, c->header, "%s%s", c->prefix ? c->prefix : "", c->value);
    case CREDENTIAL_HEADERS: return set_headers(p, c);
    case CREDENTIAL_QUERY: return set_parameter(p, c);
    default: p->sign = c; return ERR_OK;
    }
}

/* -- bodies, signatures ------------------------------------------------------------------------ */

/* application/vnd.api+json and its like (RFC 6839). */
static bool is_json(const char *value)
{
    size_t n = strcspn(value, "; ");

    return n > 5 && strncasecmp(value + n - 5, "+json", 5) == 0 &&
           strncasecmp(value, "application/", 12) == 0;
}

static bool has_type(const char *value, const char *type)
{
    size_t n = strlen(type);

    return strncasecmp(value, type, n) == 0 &&
           (type[n - 1] == '/' || value[n] == '\0' || value[n] == ';' || value[n] == ' ');
}

/* Is the body one whose placeholders are replaced, and how? */
static bool body_is_text(const struct plan *p, enum placeholder_escape *how)
{
    const char *type = http_head_get(p->head, "content-type");
    const char *coding = http_head_get(p->head, "content-encoding");

    if (!type || (coding && strcasecmp(coding, "identity") != 0) ||
        p->head->framing == HTTP_BODY_NONE ||
        (p->head->framing == HTTP_BODY_LENGTH &&
         (p->head->content_length == 0 || p->head->content_length > REWRITE_BODY_MAX)))
        return false;
    if (has_type(type, "application/json") || is_json(type))
        *how = PLACEHOLDER_JSON;
    else if (has_type(type, "application/x-www-form-urlencoded"))
        *how = PLACEHOLDER_FORM;
    else
        *how = PLACEHOLDER_PLAIN;
    return *how != PLACEHOLDER_PLAIN || has_type(type, "text/");
}

static bool has_placeholders_here(const struct plan *p)
{
    const struct credentials *all = p->r->credentials;

    for (size_t i = 0; all && i < all->count; i++)
        if (all->list[i].in_bodies && inject_is_named(p, &all->list[i]) &&
            inject_fit_of(p, &all->list[i]) == POLICY_FITS)
            return true;
    return false;
}

static enum err_code prepare_late(struct plan *p)
{
    struct late_request l = {.credentials = p->r->credentials,
                             .head = p->head,
                             .host = p->r->host,
                             .port = p->r->port,
                             .named = p->r->named,
                             .transport = p->r->transport,
                             .watch = p->r->watch,
                             .bodies = &p->r->bodies,
                             .sign = p->sign,
                             .target = p->job->target ? p->job->target : p->head->target,
                             .is_removed = inject_is_removed,
                             .arg = p};
    const char *const *without = NULL;

    l.replace = body_is_text(p, &l.how) && has_placeholders_here(p);
    if (!l.replace && !l.sign)
        return ERR_OK;
    if (late_prepare(p->job, &l, &without, p->e) != ERR_OK)
        return p->e->code;
    for (size_t i = 0; without && without[i]; i++)
        if (inject_leave_out(p, without[i]) != ERR_OK)
            return p->e->code;
    return p->job->collect ? inject_leave_out(p, "content-length") : ERR_OK;
}

/* -- what answers are searched for ------------------------------------------------------------- */

/* An answer that is compressed could not be searched, nor a conversation, nor one in ranges. */
static enum err_code prepare_redact(struct plan *p)
{
    int rc = response_secrets_for(p->r->searched ? p->r->searched : p->r->credentials,
                                  p->r->host ? p->r->host : p->r->said, p->r->port, &p->redact);

    if (rc < 0 || !p->redact)
        return inject_take_rc(p, rc);
    if (inject_leave_out(p, "sec-websocket-extensions") != ERR_OK)
        return p->e->code;
    for (size_t i = 0; response_secrets_leaves_out[i]; i++)
        if (inject_leave_out(p, response_secrets_leaves_out[i]) != ERR_OK)
            return p->e->code;
    return inject_set_header(p, "Accept-Encoding", "identity");
}

/* -- start ------------------------------------------------------------------------------------- */

static enum err_code leave_out_overrides(struct plan *p)
{
    enum err_code code = ERR_OK;

    for (size_t i = 0; p->r->ruled && i < p->head->header_count && code == ERR_OK; i++)
        if (override_is(p->head->headers[i].name))
            code = inject_leave_out(p, p->head->headers[i].name);
    return code;
}

static enum err_code decide(struct plan *p)
{
    enum err_code code = leave_out_overrides(p);

    if (code == ERR_OK)
        code = put_credential(p);
    if (code == ERR_OK && is_required(p) && p->head->query[0])
        code = leave_out_parameters(p);
    if (code == ERR_OK)
        code = inject_replace_in_target(p);
    if (code == ERR_OK)
        code = inject_replace_in_headers(p);
    if (code == ERR_OK)
        code = check_required(p);
    if (code == ERR_OK && p->r->host)
        code = prepare_late(p);
    return code == ERR_OK ? prepare_redact(p) : code;
}

void inject_plan_free(struct inject_plan *plan)
{
    rewrite_job_free(plan->job);
    redact_free(plan->redact);
    *plan = (struct inject_plan){.job = NULL};
}

static enum err_code take_names(struct plan *p, struct inject_plan *out)
{
    const char **names = arena_alloc(p->arena, (p->removed + 1) * sizeof(names[0]));

    for (size_t i = 0; names && i < p->removed; i++)
        names[i] = p->remove[i];
    out->remove = names;
    return names ? ERR_OK : inject_no_memory(p);
}

/* Their names; NULL: none. */
static enum err_code take_put(struct plan *p, const char **out)
{
    CLEANUP_FREE char *names = NULL;

    if (!p->put)
        return ERR_OK;
    names = credentials_names(p->r->credentials, p->put);
    *out = names ? arena_strdup(p->arena, names) : NULL;
    return *out ? ERR_OK : inject_no_memory(p);
}

enum err_code inject_decide(const struct inject_request *r, const struct http_head *head,
                            struct arena *arena, struct inject_plan *out, struct err *e)
{
    struct plan p = {.r = r, .head = head, .arena = arena, .job = rewrite_job_new(), .e = e};
    enum err_code code = p.job ? decide(&p) : inject_no_memory(&p);

    if (code == ERR_OK)
        code = take_names(&p, out);
    if (code == ERR_OK)
        code = take_put(&p, &out->put);
    out->job = p.job;
    out->redact = p.redact;
    if (code != ERR_OK)
        inject_plan_free(out);
    return code;
}

/* -- HTTP/1.1 ---------------------------------------------------------------------------------- */

static bool changes(const struct inject_plan *plan)
{
    return plan->redact || plan->remove[0] || plan->job->lines.len > 0 || plan->job->target;
}

enum err_code inject_prepare(struct turns *turns, uint64_t owner, const struct inject_request *r,
                             struct http_exchange *x, struct http_relay_options *o,
                             const char **put, struct err *e)
{
    const struct rewrite_share share = {turns, owner, r->answers, r->bodies.like};
    struct inject_plan plan = {.job = NULL};
    enum err_code code = inject_decide(r, http_exchange_head(x), http_exchange_arena(x), &plan, e);

    if (code == ERR_OK && changes(&plan) &&
        rewrite_relay(&share, http_exchange_loop(x), TAKE_PTR(plan.job), TAKE_PTR(plan.redact), o) <
            0)
        code = err_set(e, ERR_EXHAUSTED, "out of memory");
    if (code == ERR_OK) {
        o->remove = plan.remove;
        *put = plan.put;
    }
    inject_plan_free(&plan);
    return code;
}
