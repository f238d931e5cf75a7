/* The tools that make and end a sandbox, pause and resume it, and give the address of a port.
 * Each finds its sandbox by target.c, calls core, and answers the request once, from core's
 * callback; the session (session.c) remembers which sandbox is its own. Only `kill` makes it
 * forget that: the next call makes a new sandbox. */

#include "mcp/result.h"
#include "mcp/target.h"
#include "mcp/tool.h"

#include <stdio.h>
#include <string.h>

#define LINE_MAX_BYTES 1024u

/* -- create ------------------------------------------------------------------------------------ */

static void answer_made(struct request *r)
{
    const struct sandbox *s = core_sandbox_find(r->core, r->tenant, r->sandbox);
    const char *policy = target_policy(r), *requested = s ? s->template_requested : "";
    char text[LINE_MAX_BYTES];
    int n;

    if (!s) {
        result_fail(r, "the sandbox ended right after it was made; make another one");
        return;
    }
    n = snprintf(text, sizeof(text), "Sandbox %s runs (template %s%s%s; network: %s).", s->id,
                 s->template_id,
                 strcmp(s->template_id, requested) == 0 ? ""
                 : core_sandbox_has_files_of(s)         ? ", with the files of "
                                                        : " in place of ",
                 strcmp(s->template_id, requested) == 0 ? "" : requested, policy);
    result_done(r, json_pack("{s:s, s:s}", "template", s->template_id, "network", policy), text,
                (size_t)MIN(n, (int)sizeof(text) - 1));
}

void tool_create(struct request *r)
{
    target_make(r, answer_made);
}

/* -- pause, resume, kill ----------------------------------------------------------------------- */

static void answer_state(struct request *r, const char *state)
{
    char text[LINE_MAX_BYTES];
    int n = snprintf(text, sizeof(text), "Sandbox %s: %s.", r->sandbox, state);

    result_done(r, json_pack("{s:s}", "state", state), text, (size_t)n);
}

static void on_paused(void *arg, const struct sandbox *s, const struct err *why)
{
    struct request *r = arg;

    if (why && why->code != ERR_EXISTS)
        result_fail_err(r, why);
    else
        answer_state(r, "paused");
}

static void pause_it(struct request *r)
{
    core_sandbox_pause(r->core, r->tenant, r->sandbox, SANDBOX_TIER_FROZEN, on_paused, r);
}

void tool_pause(struct request *r)
{
    target_existing(r, pause_it);
}

static void on_resumed(void *arg, const struct sandbox *s, const struct err *why)
{
    struct request *r = arg;

    if (why && why->code != ERR_EXISTS)
        result_fail_err(r, why);
    else
        answer_state(r, "running");
}

static void resume_it(struct request *r)
{
    core_sandbox_resume(r->core, r->tenant, r->sandbox, 0, false, on_resumed, r);
}

void tool_resume(struct request *r)
{
    target_existing(r, resume_it);
}

static void on_killed(void *arg, const struct sandbox *s, const struct err *why)
{
    struct request *r = arg;

    if (why && why->code != ERR_NOT_FOUND)
        result_fail_err(r, why);
    else
        answer_state(r, "killed");
}

/* A session forgets its own: the next call makes a new one, and need not be told so. */
static void kill_it(struct request *r)
{
    struct session *session = request_session(r);

    if (session && strcmp(session->sandbox, r->sandbox) == 0)
        session->sandbox[0] = '\0';
    core_sandbox_kill(r->core, r->tenant, r->sandbox, on_killed, r);
}

void tool_kill(struct request *r)
{
    target_existing(r, kill_it);
}

/* -- expose ------------------------------------------------------------------------------------ */

static void expose_it(struct request *r)
{
    const struct api_config *config = api_config_of(r->http->api);
    int port = (int)schema_integer(r->args, "port", 0);
    char url[LINE_MAX_BYTES], text[LINE_MAX_BYTES];
    int n;

    if (!config->domain[0]) {
        result_fail(r, "this server has no domain for the ports of sandboxes: its operator sets it "
                       "as [server] domain");
        return;
    }
    (void)snprintf(url, sizeof(url), "%s://%d-%s.%s", config->https ? "https" : "http", port,
                   r->sandbox, config->domain);
    n = snprintf(text, sizeof(text), "Port %d of sandbox %s: %.700s", port, r->sandbox, url);
    result_done(r, json_pack("{s:i, s:s}", "port", port, "url", url), text, (size_t)n);
}

void tool_expose(struct request *r)
{
    target_running(r, expose_it);
}
