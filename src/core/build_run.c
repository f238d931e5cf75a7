/* A phase is a function that asks for one thing, and its callback, which begins the next phase, or
 * ends the build where it has failed (go_on). Nothing is begun when the server stops: a callback
 * that waits is called with an error, and build_run_free frees it. */

#include "core/build_run.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/agent_file_call.h"
#include "core/build_cache.h"
#include "core/build_command.h"
#include "core/build_copy.h"
#include "core/build_image.h"
#include "core/build_state.h"
#include "core/build_step.h"
#include "core/core_internal.h"
#include "core/publish.h"
#include "core/template_memory.h"
#include "http/json.h"

#include <stdio.h>
#include <string.h>

#define START_FILE     "/etc/cay/start.json"
#define START_FILE_MAX 65536u /* the most that cay-init reads of it: agent/start_command.h */
#define DEFAULT_USER   "user"
#define DEFAULT_CWD    "/home/user"
#define PRESET         "package-registries"
#define MARGIN_MS      60000 /* the sandbox outlives its build, which ends it */
#define READY_AGAIN_MS 500u
/* In which it has to succeed in the sandbox of the template's memory, beside twice what it took: it
 * may wait for something that only the build's own has. */
#define MEMORY_READY_MS 10000u
#define NO_READY_MS     2000u /* in which a start command without a ready command may fail */

void build_run_free(struct build_run *r)
{
    if (!r)
        return;
    timers_cancel(&r->core->timers, &r->again);
    build_copy_free(r);
    build_image_free(r);
    build_spec_free(&r->spec);
    json_decref(r->env);
    core_call_end(r->core);
    free(r);
}

/* -- 5: the end -------------------------------------------------------------------------------- */

static void over(struct build_run *r);

/* The template is good without. */
static void on_memory(void *arg, const struct err *why)
{
    struct build_run *r = arg;

    if (r->core->stopping)
        return;
    if (why)
        build_log_add(&r->o->log, "warn", r->step,
                      "sandboxes of the template start its command anew: %.500s", why->text);
    else
        build_log_add(&r->o->log, "info", r->step,
                      "sandboxes of the template begin with its command running");
    over(r);
}

static void make_memory(struct build_run *r)
{
    const struct template_memory_request request = {.tenant = r->o->b.tenant,
                                                    .snapshot = r->o->made,
                                                    .ready = r->spec.ready,
                                                    .ready_user = r->user,
                                                    .cwd = r->cwd,
                                                    .env = r->env,
                                                    .ready_ms = 2 * r->ready_took_ms +
                                                                MEMORY_READY_MS,
                                                    .settle_ms = NO_READY_MS};

    r->memory_tried = true;
    template_memory_make(r->core, &request, on_memory, r);
}

static void over(struct build_run *r)
{
    struct build_obj *o = r->o;
    bool good = !r->failed;
    void (*fn)(struct build_obj *, bool) = r->over;

    if (r->start_runs)
        return; /* its end comes: the sandbox is gone */
    if (good && r->spec.start && *r->spec.start && !r->memory_tried) {
        make_memory(r);
        return;
    }
    o->run = NULL;
    build_run_free(r);
    fn(o, good);
}

static void on_killed(void *arg, const struct sandbox *s, const struct err *why)
{
    struct build_run *r = arg;

    if (r->core->stopping)
        return;
    if (why && why->code != ERR_NOT_FOUND)
        log_warn("build %s: its sandbox %s: %s", r->o->b.id, r->sandbox, why->text);
    r->sandbox[0] = '\0';
    over(r);
}

static void end(struct build_run *r)
{
    if (r->ending)
        return;
    r->ending = true;
    timers_cancel(&r->core->timers, &r->again);
    if (r->sandbox[0])
        core_sandbox_kill(r->core, r->o->b.tenant, r->sandbox, on_killed, r);
    else
        over(r);
}

/* false: the server is at its end, or the build is, and may be gone: without a sandbox to end first
 * its end comes at once. */
static bool go_on(struct build_run *r)
{
    if (r->core->stopping)
        return false;
    if (!r->failed)
        return true;
    end(r);
    return false;
}

/* -- 4: start and ready ------------------------------------------------------------------------ */

static void check_ready(struct build_run *r);

static void on_again(struct timer *t)
{
    check_ready(CONTAINER_OF(t, struct build_run, again));
}

static void become_ready(struct build_run *r)
{
    r->is_ready = true;
    r->ready_took_ms = clock_mono_ms() + r->ready_time_ms - r->ready_until_ms;
    end(r);
}

static void on_start_over(void *arg, const struct core_exec_result *x, const struct err *why)
{
    struct build_run *r = arg;

    r->start_runs = false;
    if (r->core->stopping)
        return;
    if (r->ending) {
        if (!r->sandbox[0])
            over(r);
        return;
    }
    if (build_command_failed(r, "the start command", x, why))
        end(r);
}

static void not_ready(struct build_run *r, const struct core_exec_result *x)
{
    if (!x->timed_out)
        (void)snprintf(r->ready_last, sizeof(r->ready_last), "its last status is %d", x->exit_code);
    if (clock_mono_ms() >= r->ready_until_ms)
        build_run_fail(r, "the ready command did not succeed within %llu s; %s",
                       (unsigned long long)r->ready_time_ms / 1000,
                       r->ready_last[0] ? r->ready_last : "no call of it ended in its time");
}

static void on_ready(void *arg, const struct core_exec_result *x, const struct err *why)
{
    struct build_run *r = arg;

    if (r->core->stopping || r->ending)
        return;
    if (why)
        build_run_fail(r, "the ready command: %s", why->text);
    else if (x->exit_code == 0 && !x->signal && !x->timed_out) {
        become_ready(r);
        return;
    } else {
        not_ready(r, x);
    }
    if (go_on(r))
        timers_set(&r->core->timers, &r->again, clock_mono_ms() + READY_AGAIN_MS);
}

static void check_ready(struct build_run *r)
{
    uint64_t now = clock_mono_ms(), left = r->ready_until_ms > now ? r->ready_until_ms - now : 1;
    struct build_command c = {.user = r->user,
                              .cwd = r->cwd,
                              .cmd = "/bin/bash",
                              .timeout_ms = MIN(left, (uint64_t)CORE_BUILD_READY_ONE_MS)};

    if (!r->spec.ready) {
        become_ready(r);
        return;
    }
    c.args = json_pack("[s, s, s]", "-l", "-c", r->spec.ready);
    build_command(r, &c, on_ready);
}

/* Less than the build may still take, so that it is the ready command that is said to have failed,
 * not the start command, which does not end. */
static uint64_t time_for_ready(const struct build_run *r)
{
    uint64_t now = clock_mono_ms(), left = r->until_ms > now ? r->until_ms - now : 0;

    return MIN(left - left / 8, (uint64_t)CORE_BUILD_READY_TIME_MS);
}

static void run_start_command(struct build_run *r)
{
    const struct build_command c = {.user = r->user,
                                    .cwd = r->cwd,
                                    .cmd = "/bin/sh",
                                    .args = json_pack("[s, s]", "-c", r->spec.start),
                                    .logged = true};

    build_log_add(&r->o->log, "info", r->step, "start command: %.500s", r->spec.start);
    build_log_command(&r->o->log, r->step, true);
    r->start_runs = true;
    build_command(r, &c, on_start_over);
}

static void try_start(struct build_run *r)
{
    r->ready_time_ms = time_for_ready(r);
    r->ready_until_ms = clock_mono_ms() + r->ready_time_ms;
    if (r->spec.start && *r->spec.start)
        run_start_command(r);
    if (r->spec.ready && !*r->spec.ready)
        r->spec.ready = NULL;
    if (r->spec.ready)
        check_ready(r);
    else
        timers_set(&r->core->timers, &r->again,
                   clock_mono_ms() + (r->start_runs ? NO_READY_MS : 0));
}

/* -- 3: the start file and the snapshot -------------------------------------------------------- */

static void on_snapshot(void *arg, const struct snapshot *s, const struct err *why)
{
    struct build_run *r = arg;

    if (s)
        memcpy(r->o->made, s->id, sizeof(r->o->made));
    else if (!r->core->stopping)
        build_run_fail(r, "keeping the template: %s%s%s", why->text, why->hint[0] ? "; " : "",
                       why->hint);
    if (go_on(r))
        try_start(r);
}

static void keep(struct build_run *r)
{
    if (go_on(r))
        core_snapshot_create(r->core, r->o->b.tenant, r->sandbox, NULL, SNAPSHOT_OF_BUILD,
                             on_snapshot, r);
}

/* NULL: memory is out. */
static char *start_file(const struct build_run *r)
{
    json_t *file = build_state(r);
    int rc = 0;
    char *text;

    if (r->spec.start && *r->spec.start) {
        rc |= json_object_set_new(file, "cmd", json_string(r->spec.start));
        if (r->spec.ready_port > 0)
            rc |= json_object_set_new(file, "port", json_integer(r->spec.ready_port));
    }
    text = rc == 0 ? json_text(file, JSON_INDENT(1)) : NULL;
    json_decref(file);
    return text;
}

static void finalize(struct build_run *r)
{
    CLEANUP_FREE char *text = start_file(r);

    r->step = "finalize";
    build_log_add(&r->o->log, "info", r->step, "finalizing");
    if (!text || strlen(text) > START_FILE_MAX) {
        if (!text)
            build_run_fail(r, "memory is out");
        else
            build_run_fail(r, "ENV and the start command have more than %u bytes together",
                           START_FILE_MAX);
        end(r);
        return;
    }
    build_write_file(r, START_FILE, text, keep);
}

/* -- 2: the steps ------------------------------------------------------------------------------ */

static void on_step(struct build_run *r);

static void next_step(struct build_run *r)
{
    if (!go_on(r))
        return;
    if (r->at == r->spec.n) {
        finalize(r);
        return;
    }
    build_state_name_step(r, "");
    build_step_begin(r, on_step);
}

static void on_kept(struct build_run *r)
{
    r->at++;
    next_step(r);
}

static void on_step(struct build_run *r)
{
    if (go_on(r))
        build_cache_keep(r, on_kept);
}

/* -- 1: the sandbox ---------------------------------------------------------------------------- */

static void on_start_file(void *arg, const struct err *why, int status, const char *body,
                          size_t len)
{
    struct build_run *r = arg;

    if (why && !r->core->stopping)
        build_run_fail(r, "the sandbox of the build cannot be reached: %s", why->text);
    else if (!why && status == 200 && body && !build_state_take(r, body, len))
        build_run_fail(r, "memory is out");
    next_step(r);
}

static void on_created(void *arg, const struct sandbox *s, const struct err *why)
{
    static const struct core_agent_file_call call = {.method = "GET",
                                                     .target = "/files?path=" START_FILE
                                                               "&username=root",
                                                     .max_response = START_FILE_MAX};
    struct build_run *r = arg;

    if (s)
        memcpy(r->sandbox, s->id, sizeof(r->sandbox));
    else if (!r->core->stopping)
        build_run_fail(r, "%s%s%s", why->text, why->hint[0] ? "; " : "", why->hint);
    if (!go_on(r))
        return;
    if (r->cached > 0) {
        next_step(r);
        return;
    }
    if (strcmp(s->template_id, s->template_requested) != 0 && !core_sandbox_has_files_of(s))
        build_log_add(&r->o->log, "warn", r->step, "template %s is not built yet: this is %s",
                      s->template_requested, s->template_id);
    core_agent_file_call(r->core, r->o->b.tenant, r->sandbox, &call, on_start_file, r);
}

/* No more than what a sandbox has that asks for nothing. */
static void limit(struct build_run *r, struct privsep_limits *l)
{
    const struct privsep_limits *most = &r->core->config.limits;
    const struct build *b = &r->o->b;

    l->memory_bytes = MIN(b->memory_bytes, most->memory_bytes);
    l->cpu_milli = MIN(b->cpu_milli, most->cpu_milli);
    if (l->memory_bytes < b->memory_bytes || l->cpu_milli < b->cpu_milli)
        build_log_add(&r->o->log, "warn", r->step,
                      "a sandbox of this server has %llu MiB and %u thousandths of a processor at "
                      "most: so has the template",
                      (unsigned long long)(most->memory_bytes >> 20), most->cpu_milli);
}

/* No longer than a sandbox may live on this server; the build ends before its sandbox would. */
static void limit_time(struct build_run *r)
{
    uint64_t most = MIN((uint64_t)CORE_BUILD_TIME_MS + MARGIN_MS, r->core->config.max_ttl_ms);

    r->ttl_ms = (int64_t)most;
    r->time_ms = most > 2 * (uint64_t)MARGIN_MS ? most - MARGIN_MS : most / 2;
    r->until_ms = clock_mono_ms() + r->time_ms;
}

static void make_sandbox(struct build_run *r)
{
    json_t *policy = json_pack("{s:[s]}", "presets", PRESET);
    json_t *metadata = json_pack("{s:s, s:s}", "cay.build", r->o->b.name, "cay.build.id",
                                 r->o->b.id);
    struct sandbox_request request = {.tenant = r->o->b.tenant,
                                      .template_name = r->spec.from,
                                      .secure = true,
                                      .allow_internet = true,
                                      .metadata = metadata,
                                      .ttl_ms = r->ttl_ms,
                                      .policy = policy};

    limit(r, &request.limits);
    if (!r->image)
        build_log_add(&r->o->log, "info", r->step, "FROM %.128s", r->spec.from);
    /* Without a policy it would be let out everywhere; without metadata it is not this build's. */
    if (policy && metadata && build_cache_find(r)) {
        r->step = "base";
        request.snapshot = r->cached > 0 ? r->on : NULL;
        core_sandbox_create(r->core, &request, on_created, r);
    } else {
        build_run_fail(r, "memory is out");
        build_command_later(r, over);
    }
    json_decref(metadata);
    json_decref(policy);
}

/* -- 0: an image ------------------------------------------------------------------------------- */

static void on_image(struct build_run *r)
{
    if (go_on(r))
        make_sandbox(r);
}

/* A template of that name goes before an image. */
static bool begins_with_image(const struct build_run *r)
{
    return r->spec.image && !core_template_snapshot(r->core, r->o->b.tenant, r->spec.from) &&
           !core_template_find(r->core, r->spec.from);
}

enum err_code build_run_begin(struct build_obj *o, struct build_spec *spec,
                              void (*fn)(struct build_obj *o, bool good), struct err *e)
{
    bool begun = core_call_begin(o->core);
    struct build_run *r = begun ? calloc(1, sizeof(*r)) : NULL;

    if (!r || !(r->env = json_object())) {
        if (begun)
            core_call_end(o->core);
        free(r);
        return err_set(e, ERR_UNAVAILABLE, "memory is out");
    }
    r->o = o;
    r->core = o->core;
    r->spec = *spec;
    *spec = (struct build_spec){0};
    r->over = fn;
    r->step = "base";
    r->copy_fd = -1;
    r->again.fire = on_again;
    (void)snprintf(r->user, sizeof(r->user), "%s", r->spec.user ? r->spec.user : DEFAULT_USER);
    (void)snprintf(r->cwd, sizeof(r->cwd), "%s", r->spec.cwd ? r->spec.cwd : DEFAULT_CWD);
    o->run = r;
    limit_time(r);
    if (begins_with_image(r))
        build_image_begin(r, on_image);
    else
        make_sandbox(r);
    return ERR_OK;
}
