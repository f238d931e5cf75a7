/* Snapshots for Daytona's clients. They are what a create can name: copies of the
 * files of the tenant's sandboxes, templates that the tenant has built by E2B's SDKs, those of the
 * server, and what the operator has published; the last two are for all tenants ("general"). In
 * this order a name means one of them, as in a create. */
#include "api/daytona_image.h"
#include "base/clock.h"
#include "core/archive.h"
#include "core/build.h"
#include "core/key.h"
#include "core/life.h"
#include "core/publish.h"
#include "core/snapshot.h"
#include "http/json.h"

#include <stdio.h>
#include <string.h>

#define NAME_IS_TAKEN "Snapshot with name \"%s\" already exists for this organization"

/* -- a snapshot of a sandbox ------------------------------------------------------------------- */

struct making {
    char id[IDS_SANDBOX_SIZE];
    char name[CORE_SNAPSHOT_NAME_SIZE];
    bool was_stopped; /* it runs for the snapshot, and is stopped again */
    struct err why;   /* code ERR_OK: it was made */
};

/* The answer is the sandbox, whose state is that of before. */
static void answer_made(struct api_call *call)
{
    const struct making *m = call->state;
    const struct sandbox *s = core_sandbox_find(call->core, call->who.tenant, m->id);

    if (m->why.code != ERR_OK)
        api_fail_err(call, &m->why);
    else if (s)
        api_reply_json(call, 200, daytona_sandbox_json(call, s, false));
    else
        api_fail(call, 404,
                 "Snapshot with name \"%s\" was made; its sandbox %s has ended meanwhile", m->name,
                 m->id);
}

static void stopped_again(void *arg, const struct sandbox *s, const struct err *why)
{
    answer_made(arg); /* one that did not stop is seen to run */
}

static void made(void *arg, const struct snapshot *snapshot, const struct err *why)
{
    struct api_call *call = arg;
    struct making *m = call->state;

    if (!snapshot)
        m->why = *why;
    if (m->was_stopped)
        core_sandbox_pause(call->core, call->who.tenant, m->id, SANDBOX_TIER_FILES, stopped_again,
                           call);
    else
        answer_made(call);
}

bool daytona_snapshot_is_taken(struct api_call *call, const char *name)
{
    return core_snapshot_has_name(call->core, call->who.tenant, name) ||
           core_build_of_template(call->core, call->who.tenant, name) ||
           core_template_find(call->core, name);
}

/* The name may have been taken while the sandbox was started. */
static void begin(struct api_call *call)
{
    struct making *m = call->state;
    struct err e;

    if (daytona_snapshot_is_taken(call, m->name)) {
        err_set(&e, ERR_CONFLICT, NAME_IS_TAKEN, m->name);
        made(call, NULL, &e);
        return;
    }
    core_snapshot_create(call->core, call->who.tenant, m->id, m->name, SNAPSHOT_PLAIN, made, call);
}

static void resumed_to_make(void *arg, const struct sandbox *s, const struct err *why)
{
    struct api_call *call = arg;

    if (why && why->code != ERR_EXISTS)
        api_fail_err(call, why);
    else
        begin(call);
}

static void make_snapshot(struct api_call *call, const struct sandbox *s, const char *name)
{
    struct making *m = calloc(1, sizeof(*m));

    call->state = m;
    call->state_free = free;
    if (!m) {
        api_fail(call, 503, "memory is out");
        return;
    }
    memcpy(m->id, s->id, sizeof(m->id));
    (void)snprintf(m->name, sizeof(m->name), "%s", name);
    m->was_stopped = core_sandbox_is_stopped(s);
    if (m->was_stopped)
        core_sandbox_resume(call->core, call->who.tenant, m->id, s->idle_ms, false, resumed_to_make,
                            call);
    else
        begin(call);
}

static void snapshot_one(struct api_call *call)
{
    const struct sandbox *s = daytona_find(call);
    const char *name = NULL;
    bool memory = false;
    struct err e;

    if (!s || !api_call_body(call))
        return;
    if (json_get_str(call->body, "name", NULL, JSON_REQUIRED, CORE_SNAPSHOT_NAME_SIZE - 1, &name,
                     &e) != ERR_OK ||
        json_get_bool(call->body, "includeMemory", NULL, JSON_OPTIONAL, &memory, &e) != ERR_OK)
        api_fail_err(call, &e);
    else if (memory)
        api_fail(call, 400, "includeMemory: a snapshot has a sandbox's files alone on this server");
    else if (!*name)
        api_fail(call, 400, "name: must not be empty");
    else if (daytona_snapshot_is_taken(call, name))
        api_fail(call, 409, NAME_IS_TAKEN, name);
    else if (core_sandbox_is_archived(s, clock_real_ms()))
        api_fail(call, 400, "Sandbox %s is archived: start it first", s->id);
    else
        make_snapshot(call, s, name);
}

/* -- what a create can name -------------------------------------------------------------------- */

/* As a client is to see it. */
struct shown {
    const char *id, *name, *state, *source; /* source NULL: of no sandbox */
    const char *why;                        /* its build has failed; NULL: it has not */
    bool general;
    struct privsep_limits limits;
    uint64_t size_bytes; /* 0: not known */
    int64_t made_real_ms;
};

static json_t *shown_json(const struct api_call *call, const struct shown *s)
{
    json_t *made_at = api_json_time(s->made_real_ms);
    json_t *size = s->size_bytes ? json_real((double)s->size_bytes / (double)DAYTONA_GIB)
                                 : json_null();
    json_t *out = json_pack("{s:s, s:s, s:b, s:s, s:s, s:o, s:n, s:i, s:n, s:O, s:o, s:n, s:s?}",
                            "id", s->id, "name", s->name, "general", s->general, "state", s->state,
                            "organizationId", call->who.tenant, "size", size, "entrypoint", "gpu",
                            0, "errorReason", "createdAt", made_at, "updatedAt", made_at,
                            "lastUsedAt", "sourceSandboxId", s->source);

    if (!out)
        return NULL;
    if (s->why)
        json_object_set_new(out, "errorReason", api_json_text(s->why));
    json_object_set_new(out, "cpu", daytona_whole(s->limits.cpu_milli, 1000));
    json_object_set_new(out, "mem", daytona_whole(s->limits.memory_bytes, DAYTONA_GIB));
    json_object_set_new(out, "disk", daytona_whole(s->limits.disk_bytes, DAYTONA_GIB));
    json_object_set_new(out, "regionIds", json_pack("[s]", DAYTONA_TARGET));
    json_object_set_new(out, "sandboxClass", json_string("container"));
    return out;
}

static struct shown of_snapshot(const struct snapshot *s)
{
    return (struct shown){.id = s->id,
                          .name = *s->name ? s->name : s->id,
                          .state = "active",
                          .source = s->sandbox,
                          .limits = s->limits,
                          .made_real_ms = s->made_real_ms};
}

const char *daytona_build_state(const struct build *b)
{
    static const char *const names[] = {[BUILD_WAITING] = "pending",
                                        [BUILD_BUILDING] = "building",
                                        [BUILD_READY] = "active",
                                        [BUILD_ERROR] = "build_failed"};

    return (size_t)b->state < ARRAY_SIZE(names) ? names[b->state] : "error";
}

static struct shown of_build(struct api_call *call, const struct build *b)
{
    struct privsep_limits limits = api_config_of(call->api)->limits;

    if (b->memory_bytes)
        limits.memory_bytes = MIN(limits.memory_bytes, b->memory_bytes);
    if (b->cpu_milli)
        limits.cpu_milli = MIN(limits.cpu_milli, b->cpu_milli);
    return (struct shown){.id = b->template_id,
                          .name = b->name,
                          .state = daytona_build_state(b),
                          .why = b->state == BUILD_ERROR ? b->reason : NULL,
                          .limits = limits,
                          .made_real_ms = b->made_real_ms};
}

static struct shown of_template(struct api_call *call, const struct template_info *t)
{
    return (struct shown){.id = t->id,
                          .name = t->id,
                          .state = t->building ? "building"
                                   : t->ready  ? "active"
                                               : "inactive",
                          .general = true,
                          .limits = core_template_limits(call->core, t),
                          .size_bytes = t->size_bytes,
                          .made_real_ms = t->made_real_ms};
}

static struct shown of_public(const struct core_public_template *t)
{
    return (struct shown){.id = t->b ? t->b->template_id : t->name,
                          .name = t->name,
                          .state = "active",
                          .general = true,
                          .limits = t->s->limits,
                          .made_real_ms = t->s->made_real_ms};
}

json_t *daytona_build_json(struct api_call *call, const struct build *b)
{
    const struct shown shown = of_build(call, b);

    return shown_json(call, &shown);
}

const struct build *daytona_build_find(struct api_call *call, const char *name)
{
    const struct build *b = core_build_named(call->core, call->who.tenant, name);

    return b ? b : core_build_of_template(call->core, call->who.tenant, name);
}

void daytona_no_snapshot(struct api_call *call)
{
    api_fail(call, 404, "Snapshot %s not found", call->params[0]);
}

static void get(struct api_call *call)
{
    const char *name = call->params[0];
    const struct snapshot *s = core_snapshot_find(call->core, call->who.tenant, name);
    const struct build *b = s ? NULL : daytona_build_find(call, name);
    const struct template_info *t = s || b ? NULL : core_template_find(call->core, name);
    struct core_public_template public;
    struct shown shown;

    if (s || b || t) {
        shown = s ? of_snapshot(s) : b ? of_build(call, b) : of_template(call, t);
    } else if (core_template_public(call->core, name, &public)) {
        shown = of_public(&public);
    } else {
        daytona_no_snapshot(call);
        return;
    }
    api_reply_json(call, 200, shown_json(call, &shown));
}

static void deleted(void *arg, const struct err *why)
{
    struct api_call *call = arg;

    if (!why)
        api_reply_empty(call, 200);
    else if (why->code == ERR_NOT_FOUND)
        daytona_no_snapshot(call);
    else
        api_fail_err(call, why);
}

static void remove_one(struct api_call *call)
{
    const char *name = call->params[0];
    struct err e;

    if (core_snapshot_find(call->core, call->who.tenant, name))
        core_snapshot_delete(call->core, call->who.tenant, name, deleted, call);
    else if (daytona_build_find(call, name))
        deleted(call,
                core_build_delete(call->core, call->who.tenant, name, &e) == ERR_OK ? NULL : &e);
    else if (core_template_is_host(name))
        api_fail(call, 403, "snapshot host " CORE_HOST_STAYS);
    else if (core_template_find(call->core, name))
        api_fail(call, 403, "snapshot %s is a template of the server's: its operator removes it",
                 name);
    else
        daytona_no_snapshot(call);
}

/* -- the list ---------------------------------------------------------------------------------- */

struct listing {
    struct api_call *call;
    size_t first, limit, total;
    char name[CORE_NAME_SIZE]; /* a part of it; "": any */
    char source[CORE_NAME_SIZE];
    json_t *items, *seen; /* seen: templates that builds are of, each shown once */
};

static void add(struct listing *l, const struct shown *s)
{
    if (!strstr(s->name, l->name) || (*l->source && (!s->source || strcmp(s->source, l->source))))
        return;
    if (l->total >= l->first && l->total < l->first + l->limit)
        json_array_append_new(l->items, shown_json(l->call, s));
    l->total++;
}

static bool add_snapshot(void *arg, const struct snapshot *s)
{
    struct shown shown = of_snapshot(s);

    add(arg, &shown);
    return true;
}

/* The one that a create would take; those that are not ready, and older ones, are its template's
 * history. */
static bool add_build(void *arg, const struct build *b)
{
    struct listing *l = arg;
    const struct build *named = core_build_named(l->call->core, b->tenant, b->template_id);
    struct shown shown = of_build(l->call, named ? named : b);

    if (json_object_get(l->seen, b->template_id))
        return true;
    json_object_set_new(l->seen, b->template_id, json_true());
    add(l, &shown);
    return true;
}

/* The tenant's own are there already. */
static void add_public(void *arg, const struct core_public_template *t)
{
    struct listing *l = arg;
    struct shown shown = of_public(t);

    if (strcmp(l->call->who.tenant, CORE_OPERATOR_TENANT) != 0)
        add(l, &shown);
}

static void add_all(struct listing *l)
{
    const struct template_info *templates = NULL;
    size_t n = core_templates(l->call->core, false, &templates);

    core_snapshot_each(l->call->core, l->call->who.tenant, NULL, NULL, add_snapshot, l);
    core_build_each(l->call->core, l->call->who.tenant, NULL, add_build, l);
    for (size_t i = 0; i < n; i++) {
        struct shown shown = of_template(l->call, &templates[i]);

        add(l, &shown);
    }
    core_template_each_public(l->call->core, add_public, l);
}

/* An order that is asked for is refused, as any filter that would be ignored. */
static bool read_query(struct api_call *call, struct listing *l, int64_t *page, int64_t *limit)
{
    static const char *const unknown[] = {"sort", "order"};
    char text[CORE_NAME_SIZE];

    for (size_t i = 0; i < ARRAY_SIZE(unknown); i++) {
        if (!api_call_query(call, unknown[i], text, sizeof(text)))
            return false;
        if (*text) {
            api_fail(call, 400, "%s: not supported yet by this server in a list of snapshots",
                     unknown[i]);
            return false;
        }
    }
    return api_call_query(call, "name", l->name, sizeof(l->name)) &&
           api_call_query(call, "sourceSandboxId", l->source, sizeof(l->source)) &&
           api_call_query_int(call, "page", 1, DAYTONA_PAGES_MAX, page) &&
           api_call_query_int(call, "limit", 1, DAYTONA_PAGE_MAX, limit);
}

static void list(struct api_call *call)
{
    struct listing l = {.call = call};
    int64_t page = 1, limit = 100;

    if (!read_query(call, &l, &page, &limit))
        return;
    l.first = (size_t)((page - 1) * limit);
    l.limit = (size_t)limit;
    l.items = json_array();
    l.seen = json_object();
    add_all(&l);
    json_decref(l.seen);
    api_reply_json(call, 200,
                   json_pack("{s:o, s:I, s:I, s:I}", "items", l.items, "total", (json_int_t)l.total,
                             "page", (json_int_t)page, "totalPages",
                             (json_int_t)((l.total + l.limit - 1) / l.limit)));
}

const struct api_route daytona_snapshot_routes[] = {
    {API_WRITE, "POST", "/api/sandbox/{id}/snapshot", snapshot_one},
    {API_READ, "GET", "/api/snapshots", list},
    {API_READ, "GET", "/api/snapshots/{id}", get},
    {API_WRITE, "DELETE", "/api/snapshots/{id}", remove_one},
    {0},
};
