#include "core/environment.h"

#include "core/agent_file_call.h"
#include "core/core_internal.h"
#include "core/reserve.h"
#include "http/json.h"

#include <stdio.h>

#define ANSWER_MAX (64u * 1024u) /* a refusal's sentence */

struct change {
    char id[IDS_SANDBOX_SIZE];
    core_done_cb done;
    void *arg;
};

static void finish(struct change *ch, const struct err *why)
{
    ch->done(ch->arg, why);
    free(ch);
}

/* A sandbox that began before this server was brought up to date has an agent without the call. */
static void refusal(const struct change *ch, int status, const char *body, size_t len,
                    struct err *e)
{
    if (status == 404)
        err_set(e, ERR_CONFLICT,
                "sandbox %s began with an older version of this server, and keeps the variables "
                "that it has: make a new one",
                ch->id);
    else
        err_set(e, status == 400 ? ERR_INVALID : ERR_UNAVAILABLE,
                "the agent of sandbox %s did not take its variables: %.*s", ch->id,
                (int)MIN(len, 200u), body ? body : "");
}

static void on_changed(void *arg, const struct err *why, int status, const char *body, size_t len)
{
    struct change *ch = arg;
    struct err e;

    if (!why && status != 204) {
        refusal(ch, status, body, len, &e);
        why = &e;
    }
    finish(ch, why);
}

static char *change_text(json_t *set, json_t *unset)
{
    json_t *body = json_object();
    char *text;

    if ((set && json_object_set(body, "set", set) < 0) ||
        (unset && json_object_set(body, "unset", unset) < 0)) {
        json_decref(body);
        return NULL;
    }
    text = json_text(body, JSON_COMPACT);
    json_decref(body);
    return text;
}

void core_sandbox_change_env(struct core *c, const char *tenant, const char *id, json_t *set,
                             json_t *unset, core_done_cb done, void *arg)
{
    char *text = change_text(set, unset);
    const struct core_agent_file_call r = {
        .method = "POST", .target = "/cay/envs", .body = text, .max_response = ANSWER_MAX};
    struct change *ch = RESERVE_NEW(&c->reserve, struct change);
    struct err e;

    (void)snprintf(ch->id, sizeof(ch->id), "%s", id);
    ch->done = done;
    ch->arg = arg;
    if (text) {
        core_agent_file_call(c, tenant, ch->id, &r, on_changed, ch);
        return;
    }
    err_set(&e, ERR_EXHAUSTED, "memory is out");
    finish(ch, &e);
}
