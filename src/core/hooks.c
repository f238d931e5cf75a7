/* A call of the agent for each pause and resume. Its answer is the tenant's: of the failures the
 * first is told, cut, and how many there were. */

#include "core/hooks.h"

#include "contract/agent_boot.h"
#include "core/call.h"
#include "core/core_internal.h"
#include "core/create.h"
#include "core/events.h"
#include "core/life.h"
#include "core/sandbox.h"
#include "core/tier.h"
#include "http/json.h"

#include <string.h>

#define ANSWER_MAX    (64u * 1024u)
#define SLACK_MS      1000u /* beside the hooks' own time */
#define HOOK_NAME_MAX 64
#define ERROR_MAX     400

/* A text of the agent's, cut; not at the end of a character, which JSON's escapes make good. */
static json_t *text_of(const json_t *one, const char *field, size_t max)
{
    const char *text = json_string_value(json_object_get(one, field));
    size_t n = text ? json_string_length(json_object_get(one, field)) : 0;

    return json_stringn(text ? text : "", json_whole_text(text ? text : "", MIN(n, max)));
}

static void add_failure(struct sandbox_obj *o, const char *hook, json_t *name, json_t *error,
                        size_t failed)
{
    events_add(o->tenant, EVENT_SANDBOX_HOOK_FAILED, o->s.id,
               json_pack("{s:s, s:o, s:o, s:I}", "hook", hook, "name", name, "error", error,
                         "failed", (json_int_t)failed));
}

static void report(struct sandbox_obj *o, const char *hook, const struct err *why, int status,
                   const char *body, size_t len)
{
    const json_t *failed, *first;
    json_t *answer = NULL;
    struct err e;

    if (why) {
        add_failure(o, hook, json_string(""),
                    json_string("the sandbox's agent did not answer in time"), 1);
        return;
    }
    if (status != 200 || !body || json_parse_request(body, len, false, &answer, &e) != ERR_OK)
        return; /* an agent of an older version has none */
    failed = json_object_get(answer, "failed");
    first = json_array_get(failed, 0);
    if (first)
        add_failure(o, hook, text_of(first, "name", HOOK_NAME_MAX),
                    text_of(first, "error", ERROR_MAX), json_array_size(failed));
    json_decref(answer);
}

static void on_pause_hooks(struct core *c, const char *id, const struct err *why, int http_status,
                           const char *body, size_t len, void *arg)
{
    struct sandbox_obj *o = sandbox_get(c, NULL, id);

    if (!o || !o->hooks_requested || c->stopping || sandbox_life(o)->change != LIFE_CHANGE_PAUSE)
        return; /* it ends, or the next start settles it */
    o->hooks_requested = false;
    report(o, "pause", why, http_status, body, len);
    c->tiers[tier_number(&o->s)].go_on(o, why); /* privd is asked, or the agent first */
}

/* A sandbox that is paused again, or ends, has cut the call itself. */
static void on_resume_hooks(struct core *c, const char *id, const struct err *why, int http_status,
                            const char *body, size_t len, void *arg)
{
    struct sandbox_obj *o = sandbox_get(c, NULL, id);

    if (o && !c->stopping && sandbox_life(o)->reachable)
        report(o, "resume", why, http_status, body, len);
}

/* With the limits, as an agent that was frozen was not told of a resize meanwhile. NULL: memory is
 * out. */
static char *make_body(const struct sandbox_obj *o, const char *hook, const char *tier,
                       const char *reason)
{
    json_t *body = json_pack("{s:s, s:s, s:s, s:o}", "hook", hook, "tier", tier, "reason", reason,
                             "limits", create_limits(&o->s.limits));
    char *text = json_text(body, JSON_COMPACT);

    json_decref(body);
    return text;
}

static void call_hooks(struct sandbox_obj *o, char *body, call_agent_cb cb)
{
    const struct call_agent_request r = {.method = "POST",
                                         .target = "/cay/hooks",
                                         .body = body,
                                         .max_response_bytes = ANSWER_MAX,
                                         .timeout_ms = AGENT_HOOKS_MS + SLACK_MS};

    call_agent(o, &r, cb, NULL);
}

void hooks_before_pause(struct sandbox_obj *o, const char *tier)
{
    const char *reason = core_pause_reason_name(o->s.pause_reason);

    o->hooks_requested = true;
    /* without a body, as memory is out, the agent refuses */
    call_hooks(o, make_body(o, "pause", tier, reason), on_pause_hooks);
}

/* Nothing waits for these, and nothing is set aside for them any more. */
void hooks_after_resume(struct sandbox_obj *o, const char *tier, const char *reason)
{
    char *body = core_admits(o->core) ? make_body(o, "resume", tier, reason) : NULL;

    if (body)
        call_hooks(o, body, on_resume_hooks);
    else
        add_failure(o, "resume", json_string(""), json_string("the server's memory is out"), 1);
}

uint64_t hooks_wait_ms(void)
{
    return AGENT_HOOKS_MS + 2 * SLACK_MS;
}
