/* POST /env: the variables of the sandbox, which programs, sessions and terminals have that begin
 * from then on. The body goes on to the agent as it is, which makes the change in one step. */
#include "toolbox/env.h"

#include "http/json.h"
#include "toolbox/agent.h"
#include "toolbox/call.h"
#include "toolbox/reply.h"
#include "toolbox/toolbox_internal.h"

#include <string.h>

#define ANSWER_MAX (64u * 1024u) /* a refusal's sentence */

/* The agent says {"code", "message"}. */
static void refuse(struct toolbox_call *c, const char *body, size_t len)
{
    json_t *o = json_load_answer(body, len);
    const char *message = json_string_value(json_object_get(o, "message"));

    toolbox_fail(c, 400, "INVALID_REQUEST_BODY", "invalid request body: %.300s",
                 message ? message : "the sandbox's agent refused it");
    json_decref(o);
}

static void changed(void *arg, const struct http_head *head, const char *body, size_t len,
                    const struct err *why)
{
    struct toolbox_call *c = arg;

    if (why)
        toolbox_fail_err(c, why);
    else if (head->status == 204)
        toolbox_reply_json(c, 200, json_object());
    else if (head->status == 404)
        toolbox_fail(c, 409, NULL,
                     "this sandbox began with an older version of the server, and keeps the "
                     "variables that it has: make a new one");
    else if (head->status == 400)
        refuse(c, body, len);
    else if (head->status == 413)
        toolbox_fail(c, 413, NULL,
                     "the variables of one call have more than 2 MiB of JSON: set "
                     "them in several calls");
    else
        toolbox_fail(c, 500, NULL, "the sandbox did not take its variables");
}

void toolbox_env(struct toolbox_call *c)
{
    struct toolbox_agent_request r = {.method = "POST",
                                      .target = strdup("/cay/envs"),
                                      .max_response_bytes = ANSWER_MAX,
                                      .timeout_ms = c->toolbox->config.agent_timeout_ms,
                                      .done = changed,
                                      .arg = c};

    toolbox_agent_body(&r, json_incref(c->body));
    toolbox_agent(c, &r);
}
