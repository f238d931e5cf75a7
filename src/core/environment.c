#include "core/environment.h"

#include "core/agent_file_call.h"
#include "core/call.h"
#include "core/core_internal.h"
#include "core/reserve.h"

#include <stdio.h>
#include <string.h>

#define ENV_BYTES_MAX (2u * 1024u * 1024u) /* as the agent answers it */

struct change {
    struct core *core;
    char tenant[CORE_TENANT_SIZE], id[IDS_SANDBOX_SIZE];
    json_t *set, *unset; /* ours */
    core_done_cb done;
    void *arg;
};

static void finish(struct change *ch, const struct err *why)
{
    ch->done(ch->arg, why);
    json_decref(ch->set);
    json_decref(ch->unset);
    free(ch);
}

/* The variables by which create.c describes the sandbox to programs. */
static bool is_own(const char *name)
{
    static const char *const own[] = {"E2B_SANDBOX", "E2B_SANDBOX_ID", "E2B_TEMPLATE_ID"};

    for (size_t i = 0; i < ARRAY_SIZE(own); i++)
        if (strcmp(own[i], name) == 0)
            return true;
    return false;
}

static int merge(json_t *env, const struct change *ch)
{
    const char *name;
    json_t *value;
    size_t i;
    int rc = 0;

    json_array_foreach (ch->unset, i, value)
        if (json_is_string(value) && !is_own(json_string_value(value)))
            json_object_del(env, json_string_value(value));
    json_object_foreach (ch->set, name, value)
        if (!is_own(name))
            rc |= json_object_set(env, name, value);
    return rc;
}

static void on_given(void *arg, const struct err *why, int status, const char *body, size_t len)
{
    struct change *ch = arg;
    struct err e;

    if (!why && status != 204) {
        err_set(&e, status == 400 ? ERR_INVALID : ERR_UNAVAILABLE,
                "the agent of sandbox %s did not take its variables: %.*s", ch->id,
                (int)MIN(len, 200u), body ? body : "");
        why = &e;
    }
    finish(ch, why);
}

static void give(struct change *ch, json_t *env)
{
    json_t *body = merge(env, ch) == 0 ? json_pack("{s:O}", "envVars", env) : NULL;
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    const struct core_agent_file_call r = {
        .method = "POST", .target = "/init", .body = text, .max_response = ENV_BYTES_MAX};
    struct err e;

    json_decref(body);
    if (text) {
        core_agent_file_call(ch->core, ch->tenant, ch->id, &r, on_given, ch);
        return;
    }
    err_set(&e, ERR_EXHAUSTED, "memory is out");
    finish(ch, &e);
}

static void on_env(void *arg, const struct err *why, int status, const char *body, size_t len)
{
    struct change *ch = arg;
    json_t *env = call_agent_env(why, status, body, len);
    struct err e;

    if (why) {
        finish(ch, why);
    } else if (json_is_object(env)) {
        give(ch, env);
    } else {
        err_set(&e, ERR_UNAVAILABLE, "the agent of sandbox %s does not tell its variables", ch->id);
        finish(ch, &e);
    }
    json_decref(env);
}

void core_sandbox_change_env(struct core *c, const char *tenant, const char *id, json_t *set,
                             json_t *unset, core_done_cb done, void *arg)
{
    const struct core_agent_file_call r = {
        .method = "GET", .target = "/envs", .max_response = ENV_BYTES_MAX};
    struct change *ch = RESERVE_NEW(&c->reserve, struct change);

    ch->core = c;
    (void)snprintf(ch->tenant, sizeof(ch->tenant), "%s", tenant);
    (void)snprintf(ch->id, sizeof(ch->id), "%s", id);
    ch->set = json_incref(set);
    ch->unset = json_incref(unset);
    ch->done = done;
    ch->arg = arg;
    core_agent_file_call(c, ch->tenant, ch->id, &r, on_env, ch);
}
