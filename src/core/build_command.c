#include "core/build_command.h"

#include "base/clock.h"
#include "core/agent_file_call.h"
#include "core/core_internal.h"
#include "core/deferred.h"

#include <stdio.h>
#include <string.h>

#define REFUSALS_SHOWN 20u

void build_run_fail(struct build_run *r, const char *fmt, ...)
{
    va_list ap;

    if (r->failed)
        return;
    r->failed = true;
    va_start(ap, fmt);
    (void)vsnprintf(r->o->b.reason, sizeof(r->o->b.reason), fmt, ap);
    va_end(ap);
    for (char *p = r->o->b.reason; *p; p++)
        if (((unsigned char)*p < ' ' && *p != '\n' && *p != '\t') || *p == 0x7f)
            *p = '?';
    (void)snprintf(r->o->b.step, sizeof(r->o->b.step), "%s", r->step);
    build_log_add(&r->o->log, "error", r->step, "%s", r->o->b.reason);
}

/* -- a command --------------------------------------------------------------------------------- */

static bool on_output(void *arg, int which, const char *bytes, size_t len)
{
    struct build_run *r = arg;

    if (len > 0)
        build_log_output(&r->o->log, r->step, which, bytes, len);
    return true;
}

uint64_t build_command(struct build_run *r, const struct build_command *c, core_exec_cb done)
{
    uint64_t now = clock_mono_ms(), left = r->until_ms > now ? r->until_ms - now : 1;
    json_t *process = json_pack("{s:s, s:o, s:s, s:O}", "cmd", c->cmd, "args", c->args, "cwd",
                                c->cwd, "envs", r->env);
    const struct core_exec_request request = {
        .process = process,
        .user = c->user,
        .timeout_ms = c->timeout_ms && c->timeout_ms < left ? c->timeout_ms : left,
        .max_output_bytes = BUILD_OUTPUT_MAX,
        .on_output = c->logged ? on_output : NULL};
    uint64_t number = core_exec(r->core, r->o->b.tenant, r->sandbox, &request, done, r);

    json_decref(process);
    return number;
}

static void log_refusals(struct build_run *r, const json_t *violations)
{
    const json_t *d;
    size_t i;

    json_array_foreach (violations, i, d) {
        const char *name = json_string_value(json_object_get(d, "name"));
        const char *rule = json_string_value(json_object_get(d, "rule"));
        const char *reason = json_string_value(json_object_get(d, "reason"));

        if (i == REFUSALS_SHOWN)
            return;
        build_log_add(&r->o->log, "warn", r->step,
                      "refused by the policy (%.64s): %.255s:%d: %.300s", rule ? rule : "no rule",
                      name ? name : "", (int)json_integer_value(json_object_get(d, "port")),
                      reason ? reason : "");
    }
}

bool build_command_failed(struct build_run *r, const char *what, const struct core_exec_result *x,
                          const struct err *why)
{
    const struct build_log *l = &r->o->log;
    const char *tail = l->tail_len > 0 ? ": " : "";
    int n = (int)l->tail_len;

    build_log_command(&r->o->log, r->step, false);
    if (why)
        build_run_fail(r, "%.200s: %s", what, why->text);
    else if (x->timed_out)
        build_run_fail(r, "%.200s: the time of the build is over (%llu s)", what,
                       (unsigned long long)r->time_ms / 1000);
    else if (x->signal)
        build_run_fail(r, "%.200s: ended by %s%s%.200s%s%.*s", what, x->signal,
                       x->reason ? ", " : "", x->reason ? x->reason : "", tail, n, l->tail);
    else if (x->exit_code != 0)
        build_run_fail(r, "%.200s: it ended with status %d%s%.200s%s%.*s", what, x->exit_code,
                       x->reason ? ", " : "", x->reason ? x->reason : "", tail, n, l->tail);
    if (x)
        log_refusals(r, x->violations);
    return r->failed;
}

/* -- a file ------------------------------------------------------------------------------------ */

static void on_written(void *arg, const struct err *why, int status, const char *body, size_t len)
{
    struct build_run *r = arg;

    if (why)
        build_run_fail(r, "writing a file of the template: %s", why->text);
    else if (status / 100 != 2)
        build_run_fail(r, "writing a file of the template: the sandbox's agent answered %d: %.*s",
                       status, (int)MIN(len, (size_t)200), body ? body : "");
    r->written(r);
}

/* path: a literal, and part of a query as it is. */
void build_write_file(struct build_run *r, const char *path, const char *text,
                      void (*done)(struct build_run *r))
{
    char target[128];
    struct core_agent_file_call call = {.method = "POST",
                                        .target = target,
                                        .type = "application/octet-stream",
                                        .body = strdup(text),
                                        .max_response = 4096};

    r->written = done;
    if (!call.body) {
        build_run_fail(r, "writing a file of the template: memory is out");
        build_command_later(r, done);
        return;
    }
    (void)snprintf(target, sizeof(target), "/files?path=%s&username=root", path);
    core_agent_file_call(r->core, r->o->b.tenant, r->sandbox, &call, on_written, r);
}

static void on_later(void *arg)
{
    struct build_run *r = arg;

    r->step_done(r);
}

void build_command_later(struct build_run *r, void (*done)(struct build_run *r))
{
    r->step_done = done;
    core_defer(r->core, &r->later, on_later, r);
}
