#include "core/create_later.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/core_internal.h"
#include "core/deferred.h"
#include "core/publish.h"
#include "core/sandbox.h"
#include "core/snapshot.h"
#include "core/template.h"

#include <stdio.h>
#include <string.h>

struct later_obj {
    struct core_create_later l;
    struct later_obj *next; /* older ones */
    struct core *core;
    struct tenant *tenant;
    struct tenant_charge charge;
    char build[CORE_BUILD_ID_SIZE], template_name[CORE_BUILD_NAME_SIZE];
    void (*owner_free)(void *owner);
    struct timer end;
    bool dropped; /* its sandbox is ended when it is there */
};

static bool is_of(const struct later_obj *o, const char *tenant)
{
    return strcmp(o->tenant->name, tenant) == 0;
}

static bool has_failed(const struct later_obj *o)
{
    return o->l.state == LATER_BUILD_FAILED || o->l.state == LATER_FAILED;
}

/* -- the end ----------------------------------------------------------------------------------- */

static void leave(struct later_obj *o)
{
    struct later_obj **at = &o->core->creates_later;

    while (*at != o)
        at = &(*at)->next;
    *at = o->next;
    timers_cancel(&o->core->timers, &o->end);
    o->owner_free(o->l.owner);
    tenant_refund(&o->charge);
    tenant_unref(o->tenant);
    free(o);
}

static void on_end(struct timer *t)
{
    leave(CONTAINER_OF(t, struct later_obj, end));
}

static void fail(struct later_obj *o, enum core_later_state state, const char *reason)
{
    o->l.state = state;
    (void)snprintf(o->l.reason, sizeof(o->l.reason), "%s", reason);
    log_info("sandbox %s: not made: %s", o->l.id, o->l.reason);
    timers_set(&o->core->timers, &o->end, clock_mono_ms() + CORE_LATER_FAILED_MS);
}

void create_later_free(struct core *c)
{
    while (c->creates_later)
        leave(c->creates_later);
}

void core_later_drop(struct core *c, const struct core_create_later *l)
{
    struct later_obj *o = c->creates_later;

    while (&o->l != l)
        o = o->next;
    if (o->l.state == LATER_CREATING)
        o->dropped = true;
    else
        leave(o);
}

/* -- the sandbox ------------------------------------------------------------------------------- */

static void on_dropped_ended(void *arg, const struct sandbox *s, const struct err *why)
{
    if (why && why->code != ERR_NOT_FOUND && why->code != ERR_CANCELED)
        log_warn("a sandbox that was deleted while it was made: %s", why->text);
}

static void on_created(void *arg, const struct sandbox *s, const struct err *why)
{
    struct later_obj *o = arg;
    struct core *c = o->core;

    if (c->stopping)
        return;
    if (o->dropped) {
        if (s)
            core_sandbox_kill(c, o->tenant->name, s->id, on_dropped_ended, NULL);
        leave(o);
    } else if (s) {
        leave(o);
    } else {
        fail(o, LATER_FAILED, why->text);
    }
}

/* The template below the image was not known when the sandbox was asked for. */
static enum err_code check_limits(struct core *c, const struct later_obj *o, struct err *e)
{
    const struct snapshot *s = core_template_snapshot(c, o->tenant->name, o->template_name);
    const struct template_info *t = s ? core_template_by_id(c, s->template_id) : NULL;
    const struct privsep_limits *l = &o->l.request.limits;
    struct privsep_limits most = c->config.limits;

    if (t)
        most = core_template_limits(c, t);
    if (l->memory_bytes <= most.memory_bytes && l->cpu_milli <= most.cpu_milli &&
        l->disk_bytes <= most.disk_bytes)
        return ERR_OK;
    return err_set(e, ERR_INVALID,
                   "a sandbox of this image has at most %.1f cores, %.1f GiB of memory and %.1f "
                   "GiB of disk on this server",
                   most.cpu_milli / 1e3, (double)most.memory_bytes / (double)(1u << 30),
                   (double)most.disk_bytes / (double)(1u << 30));
}

static void create(struct later_obj *o)
{
    struct sandbox_request *r = &o->l.request;
    struct err e;

    if (check_limits(o->core, o, &e) != ERR_OK) {
        fail(o, LATER_FAILED, e.text);
        return;
    }
    r->tenant = o->tenant->name;
    r->name = o->l.name;
    r->id = o->l.id;
    r->template_name = o->template_name;
    o->l.state = LATER_CREATING;
    core_sandbox_create(o->core, r, on_created, o);
}

void create_later_on_build(struct core *c, const struct build *b)
{
    struct later_obj *next;

    for (struct later_obj *o = c->creates_later; o; o = next) {
        next = o->next;
        if (o->l.state != LATER_BUILDING || strcmp(o->build, b->id) != 0)
            continue;
        if (b->state == BUILD_READY)
            create(o);
        else
            fail(o, LATER_BUILD_FAILED, b->reason);
    }
}

/* -- a new one --------------------------------------------------------------------------------- */

/* Its tenant's oldest that has failed goes where there are too many. */
static enum err_code make_room(struct core *c, const char *tenant, struct err *e)
{
    const unsigned n = (unsigned)tenant_held(c, tenant, TENANT_LATER);
    const unsigned all = (unsigned)c->tenants.charged[TENANT_LATER];
    struct later_obj *oldest = NULL;

    if (n < CORE_LATER_OF_A_TENANT && all < CORE_LATER_ALL)
        return ERR_OK;
    for (struct later_obj *o = c->creates_later; o; o = o->next)
        if (is_of(o, tenant) && has_failed(o))
            oldest = o;
    if (oldest) {
        leave(oldest);
        return ERR_OK;
    }
    return err_set(
        e, ERR_EXHAUSTED,
        "%u sandboxes wait for the build of their image, %u of them this tenant's: there "
        "may be %u, and %u of a tenant; wait for one",
        all, n, CORE_LATER_ALL, CORE_LATER_OF_A_TENANT);
}

static enum err_code check(struct core *c, const struct sandbox_request *r, struct err *e)
{
    const struct core_create_later *l = NULL;

    if (r->name && *r->name)
        l = core_later_find(c, r->tenant, r->name);
    if (l || (r->name && *r->name && sandbox_name_is_taken(c, r->tenant, r->name)))
        return err_set(e, ERR_EXISTS, "there is a sandbox with the name %s already", r->name);
    return make_room(c, r->tenant, e);
}

enum err_code core_create_later(struct core *c, const struct sandbox_request *r,
                                const struct build *build, void *owner,
                                void (*owner_free)(void *owner),
                                const struct core_create_later **out, struct err *e)
{
    struct later_obj *o = NULL;

    if (check(c, r, e) != ERR_OK)
        return e->code;
    o = calloc(1, sizeof(*o));
    if (!o || !(o->tenant = tenant_get(c, r->tenant))) {
        free(o);
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    }
    tenant_charge(o->tenant, TENANT_LATER, 1, &o->charge);
    o->core = c;
    o->end.fire = on_end;
    o->owner_free = owner_free;
    ids_sandbox(o->l.id);
    (void)snprintf(o->l.name, sizeof(o->l.name), "%s", r->name ? r->name : "");
    (void)snprintf(o->build, sizeof(o->build), "%s", build->id);
    (void)snprintf(o->template_name, sizeof(o->template_name), "%s", build->name);
    memcpy(o->l.template_id, build->template_id, sizeof(o->l.template_id));
    o->l.request = *r;
    o->l.owner = owner;
    o->l.made_real_ms = clock_real_ms();
    o->next = c->creates_later;
    c->creates_later = o;
    *out = &o->l;
    return ERR_OK;
}

/* -- finding ----------------------------------------------------------------------------------- */

const struct core_create_later *core_later_find(struct core *c, const char *tenant,
                                                const char *name)
{
    for (const struct later_obj *o = c->creates_later; o; o = o->next)
        if (!o->dropped && is_of(o, tenant) &&
            (strcmp(o->l.id, name) == 0 || (*o->l.name && strcmp(o->l.name, name) == 0)))
            return &o->l;
    return NULL;
}

void core_later_each(struct core *c, const char *tenant,
                     void (*fn)(void *arg, const struct core_create_later *l), void *arg)
{
    for (const struct later_obj *o = c->creates_later; o; o = o->next)
        if (!o->dropped && is_of(o, tenant))
            fn(arg, &o->l);
}
