/* Finding, resuming, pausing and ending sandboxes, and E2B's table of routes. Creates
 * (e2b_create.c), lists, metrics and logs are in files of their own. Each call asks core once and
 * replies in E2B's form. */
#include "api/e2b.h"

#include "core/life.h"
#include "http/json.h"

#include <string.h>

#define TIER_NAME_MAX 32

/* True when the sandbox is the caller's; else the call was answered. */
static const struct sandbox *find(struct api_call *call)
{
    const struct sandbox *s = core_sandbox_find(call->core, call->who.tenant, call->params[0]);

    if (!s)
        e2b_no_sandbox(call, call->params[0]);
    return s;
}

static void get(struct api_call *call)
{
    const struct sandbox *s = find(call);

    if (s)
        api_reply_json(call, 200, e2b_detail_json(call, s));
}

static void kill_one(struct api_call *call)
{
    core_sandbox_kill(call->core, call->who.tenant, call->params[0], e2b_sandbox_done, call);
}

/* Sets the end and answers errors. NULL: answered. */
static const struct sandbox *set_ttl(struct api_call *call, int64_t ttl_ms, bool extend_only)
{
    const struct sandbox *s = NULL;
    struct err e;

    if (e2b_check_max(call, ttl_ms, &e) != ERR_OK) {
        api_fail_err(call, &e);
        return NULL;
    }
    if (core_sandbox_set_ttl(call->core, call->who.tenant, call->params[0], ttl_ms, extend_only, &s,
                             &e) == ERR_OK)
        return s;
    e2b_fail(call, &e);
    return NULL;
}

/* Of resume and connect: 201 where it had to be resumed. */
static void resumed(void *arg, const struct sandbox *s, const struct err *why)
{
    struct api_call *call = arg;

    if (s)
        api_reply_json(call, 201, e2b_sandbox_json(call, s));
    else
        e2b_fail(call, why);
}

struct connection {
    int64_t ttl_ms;
    bool memory;   /* false: the SDKs' on_resume="reboot" */
    bool or_files; /* cay's own: its files alone will do where its memory does not come back */
};

/* False: answered. */
static bool read_connect(struct api_call *call, struct connection *out, struct err *e)
{
    *out = (struct connection){.memory = true};
    if (e2b_read_timeout(call->body, E2B_TIMEOUT_V2_MS, &out->ttl_ms, e) == ERR_OK &&
        json_get_bool(call->body, "memory", NULL, JSON_OPTIONAL, &out->memory, e) == ERR_OK &&
        json_get_bool(call->body, "orFiles", NULL, JSON_OPTIONAL, &out->or_files, e) == ERR_OK &&
        e2b_check_max(call, out->ttl_ms, e) == ERR_OK) {
        if (out->memory || !out->or_files)
            return true;
        err_set(e, ERR_INVALID,
                "\"orFiles\" contradicts \"memory\" false, which boots on the files in any case");
    }
    api_fail_err(call, e);
    return false;
}

static void resume_one(struct api_call *call, const struct connection *k)
{
    const char *tenant = call->who.tenant, *id = call->params[0];
    struct err e;

    if (k->or_files && core_sandbox_allow_files(call->core, tenant, id, &e) != ERR_OK)
        e2b_fail(call, &e);
    else
        core_sandbox_resume(call->core, tenant, id, k->ttl_ms, !k->memory, resumed, call);
}

/* Of one that runs it asks for no reboot. */
static void connect_one(struct api_call *call)
{
    const struct sandbox *s;
    struct connection k;
    struct err e;

    if (!api_call_body(call) || !read_connect(call, &k, &e))
        return;
    s = find(call);
    if (!s)
        return;
    if (life_of(s->state)->resume != LIFE_CALL_ALREADY) {
        resume_one(call, &k);
        return;
    }
    s = set_ttl(call, k.ttl_ms, true);
    if (s)
        api_reply_json(call, 200, e2b_sandbox_json(call, s));
}

static void resume_as_read(struct api_call *call)
{
    struct connection k;
    struct err e;

    if (read_connect(call, &k, &e))
        resume_one(call, &k);
}

/* An old client's connect: 409 for one that runs. */
void e2b_sandbox_resume(struct api_call *call)
{
    if (api_call_body(call))
        resume_as_read(call);
}

void e2b_sandbox_resume_cay(struct api_call *call)
{
    if (api_call_body_of(call, "timeout memory orFiles"))
        resume_as_read(call);
}

struct pause_wish {
    enum sandbox_tier tier;
    bool healthy; /* requireHealthyGuest */
};

/* Fields that ask for the same thing have to agree. */
static enum err_code check_tier(const json_t *body, const char *tier, bool or_files, struct err *e)
{
    const json_t *memory = json_object_get(body, "memory");
    const bool files = strcmp(tier, "files") == 0;

    if ((files && json_is_true(memory)) || (!files && json_is_false(memory)))
        return err_set(e, ERR_INVALID,
                       "\"memory\" %s contradicts \"tier\" \"%.40s\": give one of the two",
                       files ? "true" : "false", tier);
    if (or_files && strcmp(tier, "memory") != 0)
        return err_set(e, ERR_INVALID, "\"orFiles\" only applies when \"tier\" is \"memory\"");
    return ERR_OK;
}

/* "tier" and "orFiles" are cay's own; E2B's "memory" false means its files alone. */
_Static_assert(SANDBOX_TIER_COUNT == 4, "a new tier: read_tier names those that there are");
static enum err_code read_tier(const json_t *body, enum sandbox_tier *out, struct err *e)
{
    bool memory = true, or_files = false;
    const char *name = NULL;

    if (json_get_bool(body, "memory", NULL, JSON_OPTIONAL, &memory, e) != ERR_OK ||
        json_get_bool(body, "orFiles", NULL, JSON_OPTIONAL, &or_files, e) != ERR_OK ||
        json_get_str(body, "tier", NULL, JSON_OPTIONAL, TIER_NAME_MAX, &name, e) != ERR_OK)
        return e->code;
    if (!name)
        name = memory ? "frozen" : "files";
    if (!core_tier_find(name, or_files, out))
        return err_set(e, ERR_INVALID, "tier: \"%.40s\" is none of frozen, memory and files", name);
    return check_tier(body, name, or_files, e);
}

/* False: answered. */
static bool read_pause(struct api_call *call, struct pause_wish *out)
{
    struct err e;

    *out = (struct pause_wish){.tier = SANDBOX_TIER_FROZEN};
    if (read_tier(call->body, &out->tier, &e) == ERR_OK &&
        json_get_bool(call->body, "requireHealthyGuest", NULL, JSON_OPTIONAL, &out->healthy, &e) ==
            ERR_OK)
        return true;
    api_fail_err(call, &e);
    return false;
}

/* The caller who named a tier is told which it is. */
static void paused_as(void *arg, const struct sandbox *s, const struct err *why)
{
    struct api_call *call = arg;

    if (why)
        e2b_fail(call, why);
    else
        api_reply_json(call, 200,
                       json_pack("{s:s, s:s}", "tier", s ? core_pause_tier_name(s) : "",
                                 "memoryError", s ? core_sandbox_fell(s) : ""));
}

static void pause_one(struct api_call *call, enum sandbox_tier tier)
{
    bool named = json_object_get(call->body, "tier") != NULL;

    core_sandbox_pause(call->core, call->who.tenant, call->params[0], tier,
                       named ? paused_as : e2b_sandbox_done, call);
}

static void on_agent_answer(void *arg, const struct err *why)
{
    struct api_call *call = arg;
    struct pause_wish wish;

    if (why)
        api_fail_err(call, why);
    else if (read_pause(call, &wish))
        pause_one(call, wish.tier);
}

/* requireHealthyGuest: refused where the agent does not answer, as what is paused then would be no
 * use later. */
static void pause_as_read(struct api_call *call)
{
    const struct sandbox *s = core_sandbox_find(call->core, call->who.tenant, call->params[0]);
    struct pause_wish wish;

    if (!read_pause(call, &wish))
        return;
    if (wish.healthy && s && life_of(s->state)->reachable)
        core_sandbox_agent_answers(call->core, call->who.tenant, s->id, on_agent_answer, call);
    else
        pause_one(call, wish.tier);
}

void e2b_sandbox_pause(struct api_call *call)
{
    if (api_call_body(call))
        pause_as_read(call);
}

void e2b_sandbox_pause_cay(struct api_call *call)
{
    if (api_call_body_of(call, "tier memory orFiles requireHealthyGuest"))
        pause_as_read(call);
}

/* A paused sandbox has no time that could be set: that begins with the resume, which names it. 404,
 * as upstream, whose clients know no other answer to it. */
static void set_end(struct api_call *call, int64_t ttl_ms, bool extend_only)
{
    const struct sandbox *s = find(call);

    if (!s)
        return;
    if (life_of(s->state)->group == LIFE_GROUP_PAUSED)
        api_fail(call, 404,
                 "Sandbox \"%s\" is paused: its time begins when it is resumed. Connect to it with "
                 "the timeout that it is to have",
                 s->id);
    else if (set_ttl(call, ttl_ms, extend_only))
        api_reply_empty(call, 204);
}

static void timeout(struct api_call *call)
{
    int64_t seconds = 0;
    struct err e;

    if (!api_call_body(call))
        return;
    if (json_get_int(call->body, "timeout", NULL, JSON_REQUIRED, INT32_MIN, INT32_MAX, &seconds,
                     &e) != ERR_OK) {
        api_fail_err(call, &e);
        return;
    }
    /* Zero and less mean now, as upstream. */
    set_end(call, seconds > 0 ? seconds * 1000 : 1, false);
}

static void refresh(struct api_call *call)
{
    int64_t seconds = E2B_TIMEOUT_V1_MS / 1000;
    struct err e;

    if (!api_call_body(call))
        return;
    if (json_get_int(call->body, "duration", NULL, JSON_OPTIONAL, 0, 3600, &seconds, &e) !=
        ERR_OK) {
        api_fail_err(call, &e);
        return;
    }
    set_end(call, MAX(seconds * 1000, E2B_TIMEOUT_V1_MS), true);
}

const struct api_route e2b_sandbox_routes[] = {
    {API_WRITE, "POST", "/sandboxes", e2b_sandbox_create_v1},
    {API_WRITE, "POST", "/v2/sandboxes", e2b_sandbox_create_v2},
    {API_READ, "GET", "/sandboxes", e2b_sandbox_list_v1},
    {API_READ, "GET", "/v2/sandboxes", e2b_sandbox_list_v2},
    {API_READ, "GET", "/sandboxes/metrics", e2b_sandboxes_metrics},
    {API_READ, "GET", "/sandboxes/{id}", get},
    {API_WRITE, "DELETE", "/sandboxes/{id}", kill_one},
    {API_WRITE, "POST", "/sandboxes/{id}/connect", connect_one},
    {API_WRITE, "POST", "/v2/sandboxes/{id}/connect", connect_one},
    {API_WRITE, "POST", "/sandboxes/{id}/resume", e2b_sandbox_resume},
    {API_WRITE, "POST", "/sandboxes/{id}/timeout", timeout},
    {API_WRITE, "POST", "/sandboxes/{id}/refreshes", refresh},
    {API_READ, "GET", "/sandboxes/{id}/metrics", e2b_sandbox_metrics},
    {API_READ, "GET", "/sandboxes/{id}/logs", e2b_sandbox_logs_v1},
    {API_READ, "GET", "/v2/sandboxes/{id}/logs", e2b_sandbox_logs_v2},
    {API_WRITE, "PUT", "/sandboxes/{id}/network", e2b_sandbox_network,
     .body_max = API_POLICY_MAX_BYTES},
    {API_WRITE, "POST", "/sandboxes/{id}/pause", e2b_sandbox_pause},
    {API_WRITE, "POST", "/sandboxes/{id}/fork", e2b_sandbox_fork},
    {API_WRITE, "POST", "/sandboxes/{id}/snapshots", e2b_snapshot_create},
    {API_READ, "GET", "/snapshots", e2b_snapshot_list},
    {0},
};
