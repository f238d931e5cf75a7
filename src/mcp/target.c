#include "mcp/target.h"

#include "core/life.h"
#include "mcp/result.h"
#include "mcp/schema.h"

#include <stdio.h>
#include <string.h>

#define NOTE_NEW_AGAIN                                                                        \
    "Note: the sandbox of this session had ended. This is a new one: files and processes of " \
    "before "                                                                                 \
    "are gone."

static void go_on(struct request *r)
{
    if (r->dropped)
        request_done(r);
    else
        r->with_sandbox(r);
}

/* -- a new one --------------------------------------------------------------------------------- */

/* Narrower presets first. */
static const char *const presets[] = {"deny", "public", "allow"};

static size_t width_of(const char *preset)
{
    size_t i = 0;

    while (i + 1 < ARRAY_SIZE(presets) && strcmp(presets[i], preset) != 0)
        i++;
    return i;
}

const char *target_policy(const struct request *r)
{
    return presets[MIN(width_of(schema_text(r->args, "network", r->policy)), width_of(r->policy))];
}

/* Presets alone can be compared: a policy with anything else may open what they do not. */
static size_t width_of_policy(const json_t *policy)
{
    const char *preset = json_string_value(json_object_get(policy, "default"));

    return preset && json_object_size(policy) == 1 ? width_of(preset) : ARRAY_SIZE(presets) - 1;
}

const struct sandbox *target_find(struct request *r, const char *id)
{
    const struct sandbox *s = core_sandbox_find(r->core, r->tenant, id);

    return s && target_may_use(r, s) ? s : NULL;
}

bool target_may_use(struct request *r, const struct sandbox *s)
{
    const struct session *session = request_session(r);

    return !r->policy_said || (session && strcmp(session->sandbox, s->id) == 0) ||
           width_of_policy(s->policy) <= width_of(r->policy);
}

/* Those who wait for the session's sandbox go on with it, or are told why there is none. A request
 * may end meanwhile, so that the search begins anew after each. */
static void wake(struct mcp *m, const char *tenant, const char *session, const char *sandbox,
                 const struct err *why)
{
    struct request *r = m->requests;

    while (r) {
        if (!r->waits || strcmp(r->session, session) != 0 || strcmp(r->tenant, tenant) != 0) {
            r = r->next;
            continue;
        }
        r->waits = false;
        (void)snprintf(r->sandbox, sizeof(r->sandbox), "%s", sandbox);
        if (why)
            result_fail_err(r, why);
        else
            go_on(r);
        r = m->requests;
    }
}

/* By a sandbox that is there its session would be found again. */
static void end_with_session(struct request *r, const struct sandbox *s, struct err *e)
{
    err_set(e, ERR_CANCELED, "the session has ended, and its sandbox with it");
    err_hint(e, "begin anew with \"initialize\"");
    session_kill_sandbox(r->mcp->sessions, r->tenant, s->id);
}

static void on_made(void *arg, const struct sandbox *s, const struct err *why)
{
    struct request *r = arg;
    struct mcp *m = r->mcp;
    struct session *session = session_known(m->sessions, r->tenant, r->session);
    struct err e = why ? *why : (struct err){0};
    char tenant[CORE_TENANT_SIZE], id[SESSION_ID_SIZE], sandbox[IDS_SANDBOX_SIZE] = "";

    if (s && r->session[0] && !session) {
        end_with_session(r, s, &e);
        s = NULL;
        why = &e;
    }
    memcpy(tenant, r->tenant, sizeof(tenant));
    memcpy(id, r->session, sizeof(id));
    if (s) {
        (void)snprintf(sandbox, sizeof(sandbox), "%s", s->id);
        memcpy(r->sandbox, sandbox, sizeof(sandbox));
        session_keep_sandbox(m->sessions, tenant, sandbox, id);
    }
    if (session) {
        session->making = false;
        if (s)
            memcpy(session->sandbox, sandbox, sizeof(sandbox));
    }
    if (why)
        result_fail_err(r, &e);
    else
        go_on(r);
    if (id[0])
        wake(m, tenant, id, sandbox, why ? &e : NULL);
}

static json_t *metadata_of(const struct request *r)
{
    json_t *o = json_pack("{s:s}", MCP_META_MADE, "1");

    if (r->session[0])
        json_object_set_new(o, MCP_META_SESSION, json_string(r->session));
    return o;
}

static void make(struct request *r)
{
    struct session *session = request_session(r);
    const char *policy = target_policy(r);
    struct sandbox_request s = {
        .tenant = r->tenant,
        .template_name = schema_text(r->args, "template", r->template_name),
        .idle_ms = (int64_t)r->mcp->config.pause_ms,
        .on_timeout = SANDBOX_ON_TIMEOUT_PAUSE,
        .auto_resume = true,
        .secure = true,
        .allow_internet = strcmp(policy, "deny") != 0,
        .metadata = metadata_of(r),
        .policy = json_pack("{s:s}", "default", policy),
        .env = r->tool_env,
    };

    if (session)
        session->making = true;
    core_sandbox_create(r->core, &s, on_made, r);
    json_decref(s.metadata);
    json_decref(s.policy);
}

void target_make(struct request *r, void (*then)(struct request *r))
{
    const char *wanted = schema_text(r->args, "template", r->template_name);

    if (r->template_said && strcmp(wanted, r->template_name) != 0) {
        result_fail(r,
                    "sandboxes of this connection start from \"%.64s\", as its owner has set "
                    "(X-Cay-Template): leave \"template\" out",
                    r->template_name);
        return;
    }
    r->with_sandbox = then;
    r->tool_env = json_object_get(r->args, "env");
    make(r);
}

/* -- one that is there ------------------------------------------------------------------------- */

static void on_resumed(void *arg, const struct sandbox *s, const struct err *why)
{
    struct request *r = arg;

    if (why && why->code != ERR_EXISTS)
        result_fail_err(r, why);
    else
        go_on(r);
}

static void no_such(struct request *r, const char *id)
{
    result_fail(r,
                "there is no sandbox \"%.32s\" of this key%s: it may have ended. Make another one "
                "with the tool \"create\"; its files are gone",
                id, r->policy_said ? " that reaches no more than this connection's may" : "");
}

static void use(struct request *r, const struct sandbox *s)
{
    memcpy(r->sandbox, s->id, sizeof(r->sandbox));
    if (life_of(s->state)->reachable)
        go_on(r);
    else
        core_sandbox_resume(r->core, r->tenant, s->id, 0, false, on_resumed, r);
}

static void use_session(struct request *r)
{
    struct session *session = request_session(r);
    const struct sandbox *s = NULL;

    if (!session) {
        result_fail(r, "\"sandbox\" is missing: make one with the tool \"create\" and give its id "
                       "with each call");
        return;
    }
    if (session->making) {
        r->waits = true;
        return;
    }
    if (session->sandbox[0])
        s = core_sandbox_find(r->core, r->tenant, session->sandbox);
    if (s) {
        use(r, s);
        return;
    }
    if (session->sandbox[0])
        r->note = NOTE_NEW_AGAIN;
    make(r);
}

void target_running(struct request *r, void (*then)(struct request *r))
{
    const char *id = schema_text(r->args, "sandbox", NULL);
    const struct sandbox *s = id ? target_find(r, id) : NULL;

    r->with_sandbox = then;
    if (!id)
        use_session(r);
    else if (s)
        use(r, s);
    else
        no_such(r, id);
}

void target_named(struct request *r, const char *id, void (*then)(struct request *r))
{
    const struct sandbox *s = target_find(r, id);

    r->with_sandbox = then;
    if (s)
        use(r, s);
    else
        no_such(r, id);
}

void target_existing(struct request *r, void (*then)(struct request *r))
{
    struct session *session = request_session(r);
    const char *id = schema_text(r->args, "sandbox", session ? session->sandbox : "");
    const struct sandbox *s = *id ? target_find(r, id) : NULL;

    if (s) {
        memcpy(r->sandbox, s->id, sizeof(r->sandbox));
        then(r);
    } else if (*id) {
        no_such(r, id);
    } else if (session) {
        result_fail(r,
                    "this session has no sandbox yet: it is made by the first call that needs one");
    } else {
        result_fail(r, "\"sandbox\" is missing: give the id that the tool \"create\" gave");
    }
}
