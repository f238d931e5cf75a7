/* Which sandbox serves the contents of which volume is told by the sandboxes themselves (a mark in
 * what they mount), so that nothing has to be kept in step; here are those who wait, and why it
 * ends.
 *
 * A call waits until go_on finds a sandbox that serves in the way that it needs. Each event that
 * changes that (it was made, it has ended, it will not end) calls go_on. To end it its agent is
 * asked first (release), which says no while calls are under way and serves none afterwards. */

#include "core/volume_content.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/call.h"
#include "core/core_internal.h"
#include "core/create.h"
#include "core/deferred.h"
#include "core/life.h"
#include "core/lifecycle.h"
#include "core/reserve.h"
#include "core/sandbox.h"
#include "core/volume_obj.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SERVE_PATH      "/volume"
#define END_TARGET      "/cay/volume-end"
#define END_ANSWER_MAX  4096u
#define SERVE_MEMORY    (UINT64_C(256) << 20)
#define SERVE_DISK      (UINT64_C(16) << 20)
#define SERVE_CPU_MILLI 1000u
#define SERVE_PIDS      64u

struct volume_waiter {
    struct volume_waiter *next;
    bool writes;
    core_sandbox_cb done;
    void *arg;
};

/* -- which sandbox ----------------------------------------------------------------------------- */

static const char *volume_of(const json_t *mount)
{
    const char *id = json_string_value(json_object_get(mount, "volume"));

    return id ? id : "";
}

/* In any state; NULL: none. */
static struct sandbox_obj *server_of(const struct volume_obj *v)
{
    struct sandbox_obj *o = v->tenant->sandboxes;

    while (o && !(o->s.serves_volume &&
                  strcmp(volume_of(json_array_get(o->s.volumes, 0)), v->v.id) == 0))
        o = o->tenant_next;
    return o;
}

static bool reads_only(const struct sandbox_obj *server)
{
    return json_is_true(json_object_get(json_array_get(server->s.volumes, 0), "readOnly"));
}

static size_t count_servers(const struct tenant *t)
{
    size_t n = 0;

    for (const struct sandbox_obj *o = t->sandboxes; o; o = o->tenant_next)
        n += o->s.serves_volume;
    return n;
}

/* *out: the sandbox that excludes it; NULL: none. false: memory is out. */
static bool user_against(const struct volume_obj *v, bool read_only, const struct sandbox_obj **out)
{
    json_t *wanted = json_pack("{s:b}", "readOnly", read_only);

    *out = wanted ? volume_user(v, NULL, wanted) : NULL;
    json_decref(wanted);
    return wanted != NULL;
}

/* -- those who wait ---------------------------------------------------------------------------- */

static void answer(struct volume_waiter *w, const struct sandbox *s, const struct err *why)
{
    w->done(w->arg, s, why);
    free(w);
}

/* ERR_OK: it may be served. */
static enum err_code check(const struct volume_obj *v, bool writes, struct err *e)
{
    const struct sandbox_obj *user;

    if (!user_against(v, !writes, &user))
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    if (v->v.state != VOLUME_READY)
        return err_set(e, ERR_NOT_FOUND, "there is no volume '%.100s'", v->v.name);
    if (!user)
        return ERR_OK;
    err_set(e, ERR_CONFLICT, "volume '%.100s' is in use by sandbox %s: %s", v->v.name, user->s.id,
            writes ? "nothing else changes it meanwhile" : "it may be writing to it");
    err_hint(e, "use the files of that sandbox, end it, or pause it with its files alone");
    return ERR_CONFLICT;
}

static void refuse_all(struct volume_obj *v, const struct err *why)
{
    struct volume_waiter *w, *all = TAKE_PTR(v->waiters);

    while ((w = all)) {
        all = w->next;
        answer(w, NULL, why);
    }
}

/* Those that may not be served now are told. */
static void refuse_some(struct volume_obj *v)
{
    struct volume_waiter *w, *all = TAKE_PTR(v->waiters), **end = &v->waiters;
    struct err e;

    while ((w = all)) {
        all = w->next;
        w->next = NULL;
        if (check(v, w->writes, &e) != ERR_OK) {
            answer(w, NULL, &e);
        } else {
            *end = w;
            end = &w->next;
        }
    }
}

/* Those that this one serves; true: some are left, which need one that writes. */
static bool serve_some(struct volume_obj *v, struct sandbox_obj *server)
{
    struct volume_waiter *w, *all = TAKE_PTR(v->waiters), **end = &v->waiters;
    const bool only = reads_only(server);

    while ((w = all)) {
        all = w->next;
        w->next = NULL;
        if (w->writes && only) {
            *end = w;
            end = &w->next;
        } else {
            answer(w, &server->s, NULL);
        }
    }
    return v->waiters != NULL;
}

/* -- its end ----------------------------------------------------------------------------------- */

static void go_on(struct volume_obj *v);

static bool is_wanted_by(const struct sandbox_obj *o, const struct volume_obj *v)
{
    const json_t *m;
    size_t i;

    json_array_foreach ((json_t *)o->s.volumes, i, m)
        if (strcmp(volume_of(m), v->v.id) == 0)
            return true;
    return false;
}

static struct sandbox_obj *held_for(const struct volume_obj *v)
{
    struct sandbox_obj *o = v->tenant->sandboxes;

    while (o && !(o->held && is_wanted_by(o, v)))
        o = o->tenant_next;
    return o;
}

static void arm(struct volume_obj *v)
{
    timers_set(&v->core->timers, &v->idle, clock_mono_ms() + VOLUME_SERVE_IDLE_MS);
}

/* Calls are under way: sandboxes that wait for their end are refused. */
static void goes_on_serving(struct volume_obj *v, struct sandbox_obj *server)
{
    struct sandbox_obj *o;
    struct err e;

    v->releasing = false;
    arm(v);
    while ((o = held_for(v))) {
        err_set(&e, ERR_CONFLICT,
                "volume '%.100s' is in use by calls of its contents, which are under way",
                v->v.name);
        err_hint(&e, "wait until they have ended, and try again");
        create_held_refused(o, &e);
    }
    if (serve_some(v, server)) { /* they need another one */
        err_set(&e, ERR_CONFLICT,
                "volume '%.100s' was being read by a sandbox, and calls that read it are under "
                "way: try again",
                v->v.name);
        refuse_all(v, &e);
    }
}

static void go_on_all(struct core *c)
{
    for (struct volume_obj *v = c->volumes; v && !c->stopping; v = v->next)
        if (v->waiters)
            go_on(v);
}

static void on_release(struct core *c, const char *id, const struct err *why, int http_status,
                       const char *body, size_t len, void *arg)
{
    struct sandbox_obj *o = sandbox_get(c, NULL, id);
    struct volume_obj *v = o ? volume_get(c, volume_of(json_array_get(o->s.volumes, 0))) : NULL;

    if (!v || c->stopping || !v->releasing || !sandbox_life(o)->reachable)
        return;
    if (!why && http_status == 409) {
        goes_on_serving(v, o);
        go_on_all(c);
        return;
    }
    v->releasing = false;
    lifecycle_end(o, "it has served the volume's contents");
}

static void release(struct volume_obj *v, struct sandbox_obj *server)
{
    struct call_agent_request r = {.method = "POST",
                                   .target = END_TARGET,
                                   .max_response_bytes = END_ANSWER_MAX,
                                   .timeout_ms = v->core->config.agent_timeout_ms};

    if (v->releasing || !sandbox_life(server)->reachable)
        return; /* being made, or ending: go_on comes back to it */
    v->releasing = true;
    timers_cancel(&v->core->timers, &v->idle);
    call_agent(server, &r, on_release, NULL);
}

void volume_content_on_idle(struct timer *t)
{
    struct volume_obj *v = CONTAINER_OF(t, struct volume_obj, idle);
    struct sandbox_obj *server = server_of(v);

    if (server && !core_admits(v->core)) { /* beside the timers of many others */
        arm(v);
    } else if (server) {
        release(v, server);
    } else if (v->waiters) { /* for room */
        v->room_tries++;
        go_on(v);
    }
}

bool volume_content_end(struct volume_obj *v)
{
    struct sandbox_obj *server = server_of(v);

    if (server && sandbox_life(server)->kill == LIFE_CALL_END && !server->kill_wanted)
        lifecycle_end(server, "the volume is removed");
    return server != NULL;
}

/* -- its begin --------------------------------------------------------------------------------- */

struct start {
    struct core *core;
    char volume[IDS_SANDBOX_SIZE];
};

static void on_started(void *arg, const struct sandbox *s, const struct err *why)
{
    CLEANUP_FREE struct start *t = arg;
    struct volume_obj *v = volume_get(t->core, t->volume);

    if (!v)
        return; /* those who waited were told when it went */
    v->starting = false;
    if (!s) {
        refuse_all(v, why);
        return;
    }
    arm(v);
    go_on(v);
}

/* Another volume of the tenant makes way, or those who wait are told that none does. */
static void wait_for_room(struct volume_obj *v)
{
    struct volume_obj *old;
    struct err e;

    if (volume_room_find(v, &old)) {
        if (old)
            release(old, server_of(old));
        return;
    }
    v->room_tries = 0;
    timers_cancel(&v->core->timers, &v->idle);
    err_set(&e, ERR_EXHAUSTED,
            "the contents of %u volumes of this tenant are being served: more are not at a time",
            VOLUME_SERVERS_MAX);
    err_hint(&e, "try again when a call for one of the others has ended");
    refuse_all(v, &e);
}

static void start(struct volume_obj *v)
{
    /* Where a sandbox reads it, this one can only read too. */
    const struct sandbox_obj *user;
    struct volume_mount mount = {.read_only = !user_against(v, false, &user) || user,
                                 .path = SERVE_PATH};
    struct start *t = calloc(1, sizeof(*t));
    const struct sandbox_request r = {.tenant = v->v.tenant,
                                      .template_name = "host",
                                      .ttl_ms = (int64_t)v->core->config.max_ttl_ms,
                                      .secure = true,
                                      .limits = {.memory_bytes = SERVE_MEMORY,
                                                 .disk_bytes = SERVE_DISK,
                                                 .cpu_milli = SERVE_CPU_MILLI,
                                                 .pids = SERVE_PIDS},
                                      .mounts = &mount,
                                      .n_mounts = 1,
                                      .serves_volume = true};
    struct err e;

    v->room_tries = 0;
    timers_cancel(&v->core->timers, &v->idle);
    if (!t) {
        err_set(&e, ERR_UNAVAILABLE, "memory is out");
        refuse_all(v, &e);
        return;
    }
    (void)snprintf(mount.name, sizeof(mount.name), "%s", v->v.id);
    (void)snprintf(t->volume, sizeof(t->volume), "%s", v->v.id);
    t->core = v->core;
    core_sandbox_create(v->core, &r, on_started, t);
}

/* -- a call ------------------------------------------------------------------------------------ */

static void go_on(struct volume_obj *v)
{
    struct sandbox_obj *server;

    refuse_some(v);
    server = server_of(v);
    if (server && sandbox_life(server)->reachable && !v->releasing) {
        if (serve_some(v, server) || held_for(v))
            release(v, server);
    } else if (!server && v->waiters && !held_for(v) && !v->starting) {
        if (count_servers(v->tenant) >= VOLUME_SERVERS_MAX) {
            wait_for_room(v);
            return;
        }
        v->starting = true; /* a create that is refused answers in the next turn */
        start(v);
        v->starting = server_of(v) == NULL && v->waiters != NULL;
    }
}

bool core_volume_is_token(struct core *c, const char *id, const char *token)
{
    const struct volume_obj *v = volume_get(c, id);
    char right[CORE_TOKEN_SIZE + 1] = "";
    size_t n;

    core_sandbox_token(c, id, right);
    n = strlen(right);
    return strlen(token) == n && ids_equal_secret(token, right, n) && v &&
           v->v.state == VOLUME_READY;
}

void core_volume_serve(struct core *c, const char *id, bool writes, core_sandbox_cb done, void *arg)
{
    struct volume_obj *v = volume_get(c, id);
    struct volume_waiter *w, **end;
    struct err e;
    enum err_code code = core_check_ready(c, &e);

    if (code == ERR_OK && !v)
        code = err_set(&e, ERR_NOT_FOUND, "there is no volume '%.32s'", id);
    if (code == ERR_OK)
        code = check(v, writes, &e);
    if (code != ERR_OK) {
        done(arg, NULL, &e);
        return;
    }
    w = RESERVE_NEW(&c->reserve, struct volume_waiter);
    *w = (struct volume_waiter){NULL, writes, done, arg};
    for (end = &v->waiters; *end; end = &(*end)->next)
        ;
    *end = w;
    if (timer_armed(&v->idle) && server_of(v))
        arm(v);
    go_on(v);
}

/* -- what waits for its end -------------------------------------------------------------------- */

bool volume_content_hold(struct sandbox_obj *o)
{
    struct core *c = o->core;
    bool any = false;
    const json_t *m;
    size_t i;

    json_array_foreach (o->s.volumes, i, m) {
        struct volume_obj *v = o->s.serves_volume ? NULL : volume_get(c, volume_of(m));
        struct sandbox_obj *server = v ? server_of(v) : NULL;

        if (!server)
            continue;
        any = true;
        release(v, server);
    }
    return any;
}

static struct sandbox_obj *first_free(const struct core *c)
{
    for (size_t i = 0; i < c->registry.n; i++) {
        struct sandbox_obj *o = c->registry.order[i];

        if (o->held && !volume_content_hold(o))
            return o;
    }
    return NULL;
}

static void after_end(void *arg)
{
    struct core *c = arg;
    struct sandbox_obj *o;

    c->volume_end_deferred = false;
    while (!c->stopping && (o = first_free(c)))
        create_send_held(o);
    for (struct volume_obj *v = c->volumes, *next; v && !c->stopping; v = next) {
        next = v->next;
        if (!server_of(v)) {
            v->releasing = v->starting = false;
            timers_cancel(&c->timers, &v->idle);
            v->unserved(v);
        }
    }
    go_on_all(c);
}

void volume_content_ended(struct core *c)
{
    if (c->volume_end_deferred || c->stopping)
        return;
    c->volume_end_deferred = true;
    core_defer(c, &c->volume_end, after_end, c);
}

void volume_content_free(struct volume_obj *v, const struct err *why)
{
    timers_cancel(&v->core->timers, &v->idle);
    refuse_all(v, why);
}
