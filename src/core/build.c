/* Builds as records: rows of the store, objects in a list, newest first; their beginning, their
 * tags and their end. They are found by build_find.c. build_run.c runs one that is under way.
 * Called by api and by core.c at the start and the end. */

#include "core/build.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/plain_name.h"
#include "core/build_cache.h"
#include "core/build_run.h"
#include "core/core_internal.h"
#include "core/create_later.h"
#include "core/deferred.h"
#include "core/lifecycle.h"
#include "core/published.h"
#include "core/sandbox.h"
#include "core/store_build.h"
#include "core/template.h"

#include <stdio.h>
#include <string.h>

#define METADATA_ID "cay.build.id"

/* -- tags -------------------------------------------------------------------------------------- */

static enum err_code add_tag(struct build *b, const char *tag, struct err *e)
{
    size_t n = strlen(b->tags);

    if (!tag || !plain_name_is_label(tag, CORE_BUILD_TAG_MAX))
        return err_set(e, ERR_INVALID,
                       "\"%.70s\" is no tag: at most %u letters, digits, '.', '_' and '-', the "
                       "first of them a letter or digit",
                       tag ? tag : "", CORE_BUILD_TAG_MAX);
    if (build_has_tag(b, tag))
        return ERR_OK;
    if (n + strlen(tag) + 3 > sizeof(b->tags))
        return err_set(e, ERR_INVALID, "a build has %u tags at most", CORE_BUILD_TAGS_MAX);
    (void)snprintf(b->tags + n, sizeof(b->tags) - n, "%s%s,", n ? "" : ",", tag);
    return ERR_OK;
}

static void drop_tag(struct build *b, const char *tag)
{
    char part[CORE_BUILD_TAG_MAX + 3], *at;
    size_t n = (size_t)snprintf(part, sizeof(part), ",%.*s,", (int)CORE_BUILD_TAG_MAX, tag);

    at = strstr(b->tags, part);
    if (!at)
        return;
    memmove(at + 1, at + n, strlen(at + n) + 1);
    if (strcmp(b->tags, ",") == 0)
        b->tags[0] = '\0';
}

/* An array of strings, added to b's. NULL: none. */
static enum err_code add_tags(struct build *b, const json_t *tags, struct err *e)
{
    const json_t *one;
    size_t i;

    json_array_foreach (tags, i, one)
        if (add_tag(b, json_string_value(one), e) != ERR_OK)
            return e->code;
    return ERR_OK;
}

/* -- entering and leaving ---------------------------------------------------------------------- */

static struct build_obj *enter(struct core *c, const struct build *b)
{
    struct build_obj *o = calloc(1, sizeof(*o)), **at = &c->builds;

    if (!o)
        return NULL;
    o->tenant = tenant_get(c, b->tenant);
    if (!o->tenant) {
        free(o);
        return NULL;
    }
    tenant_charge(o->tenant, TENANT_BUILDS, 1, &o->charge);
    o->core = c;
    o->b = *b;
    o->b.tenant = o->tenant->name;
    build_log_init(&o->log);
    while (*at && (*at)->b.made_real_ms > b->made_real_ms)
        at = &(*at)->next;
    o->next = *at;
    *at = o;
    return o;
}

static void leave(struct build_obj *o)
{
    struct build_obj **at = &o->core->builds;

    while (*at != o)
        at = &(*at)->next;
    *at = o->next;
    build_run_free(o->run);
    build_log_free(&o->log);
    tenant_refund(&o->charge);
    tenant_unref(o->tenant);
    free(o);
}

enum err_code builds_adopt(void *core, const struct build *b, struct err *e)
{
    return enter(core, b) ? ERR_OK : err_set(e, ERR_EXHAUSTED, "memory is out");
}

void builds_free(struct core *c)
{
    while (c->builds)
        leave(c->builds);
    build_cache_free(c);
}

static void write_row(struct build_obj *o)
{
    struct err e;

    if (store_build_put(o->core->store, &o->b, &e) != ERR_OK)
        log_error("build %s: %s", o->b.id, e.text);
}

/* Its files and its row. */
static void forget(struct build_obj *o)
{
    struct err e;

    if (store_build_delete(o->core->store, o->b.id, &e) != ERR_OK)
        log_error("build %s: %s", o->b.id, e.text);
    snapshots_remove(o->core, o->b.snapshot);
    leave(o);
}

/* No name means it any more: its record stays for those who ask how it went. */
static void retire(struct build_obj *o)
{
    snapshots_remove(o->core, o->b.snapshot);
    o->b.snapshot[0] = '\0';
}

/* -- a new one --------------------------------------------------------------------------------- */

/* UUID of version 4. */
static void make_id(char out[static CORE_BUILD_ID_SIZE])
{
    uint8_t raw[16];
    char hex[33];

    ids_random_bytes(raw, sizeof(raw));
    raw[6] = (uint8_t)((raw[6] & 0x0f) | 0x40);
    raw[8] = (uint8_t)((raw[8] & 0x3f) | 0x80);
    ids_hex(raw, sizeof(raw), hex);
    (void)snprintf(out, CORE_BUILD_ID_SIZE, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12,
                   hex + 16, hex + 20);
}

/* The oldest goes that is no template, where there are too many. */
static enum err_code make_room(struct core *c, const char *tenant, struct err *e)
{
    size_t n = tenant_held(c, tenant, TENANT_BUILDS);
    struct build_obj *oldest = NULL;

    if (n < CORE_BUILDS_OF_A_TENANT)
        return ERR_OK;
    for (struct build_obj *o = c->builds; o; o = o->next)
        if (build_is_of(o, tenant, NULL) && !o->run && !o->b.snapshot[0])
            oldest = o;
    if (!oldest) {
        err_set(e, ERR_EXHAUSTED, "%zu builds of templates are there: a tenant may have %u", n,
                CORE_BUILDS_OF_A_TENANT);
        err_hint(e, "delete a template, or remove tags of old ones");
        return ERR_EXHAUSTED;
    }
    forget(oldest);
    return ERR_OK;
}

/* That of the tenant's builds of this name, or a new one, which its quota has to allow. */
static enum err_code choose_template(struct core *c, struct build *b, struct err *e)
{
    struct tenant *t;
    enum err_code code;

    for (struct build_obj *o = c->builds; o; o = o->next)
        if (build_is_of(o, b->tenant, NULL) && strcmp(o->b.name, b->name) == 0) {
            memcpy(b->template_id, o->b.template_id, sizeof(b->template_id));
            return ERR_OK;
        }
    t = tenant_get(c, b->tenant);
    code = t ? quota_check_template(t, e) : err_set(e, ERR_UNAVAILABLE, "memory is out");
    tenant_unref(t);
    b->template_id[0] = 't';
    ids_random_text(b->template_id + 1, IDS_SANDBOX_LEN - 1);
    return code;
}

static enum err_code fill(struct core *c, const struct core_build_request *r, struct build *b,
                          struct err *e)
{
    char tag[CORE_BUILD_TAG_MAX + 1];
    bool tagged;

    *b = (struct build){.tenant = r->tenant,
                        .memory_bytes = r->memory_bytes,
                        .cpu_milli = r->cpu_milli,
                        .made_real_ms = clock_real_ms()};
    make_id(b->id);
    if (build_split_name(r->name, b->name, tag, &tagged, e) != ERR_OK)
        return e->code;
    if (templates_entry(c, b->name))
        return err_set(e, ERR_CONFLICT,
                       "there is a template %s of the server's: give yours another name", b->name);
    if ((tagged || json_array_size(r->tags) == 0) && add_tag(b, tag, e) != ERR_OK)
        return e->code;
    if (choose_template(c, b, e) != ERR_OK)
        return e->code;
    return add_tags(b, r->tags, e);
}

enum err_code core_build_new(struct core *c, const struct core_build_request *r,
                             const struct build **out, struct err *e)
{
    struct build_obj *o;
    struct build b;
    enum err_code code = core_check_ready(c, e);

    if (code == ERR_OK)
        code = fill(c, r, &b, e);
    if (code == ERR_OK)
        code = make_room(c, r->tenant, e);
    if (code == ERR_OK)
        code = store_build_put(c->store, &b, e);
    if (code != ERR_OK)
        return code;
    o = enter(c, &b);
    if (!o) {
        store_build_delete(c->store, b.id, NULL);
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    }
    *out = &o->b;
    return ERR_OK;
}

/* -- its run ----------------------------------------------------------------------------------- */

struct taken {
    struct build_obj *by;
};

/* by has the tag alone. */
static void take_tag(void *arg, const char *tag)
{
    struct build_obj *by = ((struct taken *)arg)->by;

    if (strcmp(tag, CORE_BUILD_TAG) == 0)
        snapshots_drop_name(by->core, by->b.tenant, by->b.name);
    for (struct build_obj *o = by->core->builds; o; o = o->next) {
        if (o == by || o->b.state != BUILD_READY ||
            !build_is_of(o, by->b.tenant, by->b.template_id) || !build_has_tag(&o->b, tag))
            continue;
        drop_tag(&o->b, tag);
        if (!o->b.tags[0])
            retire(o);
        write_row(o);
    }
}

/* The oldest logs go. */
static void drop_logs(struct core *c, const char *tenant)
{
    unsigned n = 0;

    for (struct build_obj *o = c->builds; o; o = o->next)
        if (build_is_of(o, tenant, NULL) && !o->run && o->log.n > 0 && ++n > CORE_BUILD_LOGS_KEPT)
            build_log_free(&o->log);
}

static void on_over(struct build_obj *o, bool good)
{
    o->b.ended_real_ms = clock_real_ms();
    o->b.state = good ? BUILD_READY : BUILD_ERROR;
    if (good)
        memcpy(o->b.snapshot, o->made, sizeof(o->b.snapshot));
    else
        snapshots_remove(o->core, o->made);
    o->made[0] = '\0';
    write_row(o);
    if (good)
        core_build_each_tag(&o->b, take_tag, &(struct taken){o});
    build_log_add(&o->log, "info", good ? "finalize" : o->b.step, "build %s: %s", o->b.id,
                  core_build_state_name(o->b.state));
    drop_logs(o->core, o->b.tenant);
    log_info("build %s of template %s: %s", o->b.id, o->b.name, core_build_state_name(o->b.state));
    create_later_on_build(o->core, &o->b);
}

static enum err_code check_running(struct core *c, const char *tenant, struct err *e)
{
    unsigned n = 0;

    for (struct build_obj *o = c->builds; o; o = o->next)
        n += build_is_of(o, tenant, NULL) && o->run;
    return n < CORE_BUILDS_RUNNING
               ? ERR_OK
               : err_set(e, ERR_EXHAUSTED,
                         "%u builds are under way: a tenant may have %u at a time; wait for one to "
                         "end",
                         n, CORE_BUILDS_RUNNING);
}

static enum err_code begin(struct build_obj *o, struct build_spec *spec, struct err *e)
{
    enum err_code code;

    o->b.state = BUILD_BUILDING;
    code = store_build_put(o->core->store, &o->b, e);
    if (code == ERR_OK)
        code = build_run_begin(o, spec, on_over, e);
    if (code == ERR_OK) {
        tenant_count(o->tenant, USAGE_BUILDS);
        return ERR_OK;
    }
    o->b.state = BUILD_WAITING;
    write_row(o);
    return code;
}

enum err_code core_build_check_start(struct core *c, const char *tenant, const char *template_id,
                                     const char *build, struct err *e)
{
    const struct build_obj *o = build_get(c, tenant, template_id, build);
    enum err_code code = core_check_ready(c, e);

    if (code != ERR_OK)
        return code;
    if (!o)
        return err_set(e, ERR_NOT_FOUND, "there is no build '%.36s' of a template '%.100s'", build,
                       template_id);
    if (o->b.state != BUILD_WAITING)
        return err_set(e, ERR_CONFLICT, "the build is %s already: ask for a new one",
                       core_build_state_name(o->b.state));
    return check_running(c, tenant, e);
}

enum err_code core_build_start(struct core *c, const char *tenant, const char *template_id,
                               const char *build, struct build_spec *spec, struct err *e)
{
    enum err_code code = core_build_check_start(c, tenant, template_id, build, e);

    if (code == ERR_OK)
        code = build_spec_check(spec, e);
    if (code == ERR_OK)
        code = begin(build_get(c, tenant, template_id, build), spec, e);
    build_spec_free(spec); /* empty where the build has it */
    return code;
}

/* -- changing ---------------------------------------------------------------------------------- */

static enum err_code none_named(const char *name, struct err *e)
{
    return err_set(e, ERR_NOT_FOUND, "template '%.120s' not found", name);
}

enum err_code core_build_add_tags(struct core *c, const char *tenant, const char *target,
                                  const json_t *tags, const struct build **out, struct err *e)
{
    struct build_obj *o = build_named(c, tenant, target);
    struct build changed;

    if (!o)
        return none_named(target, e);
    changed = o->b;
    if (json_array_size(tags) == 0)
        return err_set(e, ERR_INVALID, "tags: there has to be one");
    if (add_tags(&changed, tags, e) != ERR_OK || store_build_put(c->store, &changed, e) != ERR_OK)
        return e->code;
    memcpy(o->b.tags, changed.tags, sizeof(o->b.tags));
    core_build_each_tag(&o->b, take_tag, &(struct taken){o});
    *out = &o->b;
    return ERR_OK;
}

enum err_code core_build_drop_tags(struct core *c, const char *tenant, const char *name,
                                   const json_t *tags, struct err *e)
{
    bool known = false;
    const json_t *one;
    size_t i;

    for (struct build_obj *o = c->builds; o; o = o->next) {
        if (o->b.state != BUILD_READY || !build_is_of(o, tenant, NULL) ||
            (strcmp(o->b.name, name) != 0 && strcmp(o->b.template_id, name) != 0))
            continue;
        known = true;
        json_array_foreach (tags, i, one)
            if (json_is_string(one) && json_string_length(one) <= CORE_BUILD_TAG_MAX)
                drop_tag(&o->b, json_string_value(one));
        if (!o->b.tags[0])
            retire(o);
        write_row(o);
    }
    return known ? ERR_OK : none_named(name, e);
}

enum err_code core_build_delete(struct core *c, const char *tenant, const char *name, struct err *e)
{
    struct build_obj *next;
    char id[IDS_SANDBOX_SIZE] = "";

    for (struct build_obj *o = c->builds; o; o = o->next)
        if (build_is_of(o, tenant, NULL) &&
            (strcmp(o->b.name, name) == 0 || strcmp(o->b.template_id, name) == 0)) {
            memcpy(id, o->b.template_id, sizeof(id));
            if (o->run)
                return err_set(e, ERR_CONFLICT,
                               "template '%.100s' is being built: delete it when that has ended",
                               name);
        }
    if (!id[0])
        return none_named(name, e);
    for (struct build_obj *o = c->builds; o; o = next) {
        next = o->next;
        if (build_is_of(o, tenant, id)) {
            published_forget(c, tenant, o->b.name);
            forget(o);
        }
    }
    build_cache_forget(c, tenant, id);
    return ERR_OK;
}

/* -- after a restart --------------------------------------------------------------------------- */

static void kill_sandbox_of(struct build_obj *o)
{
    struct registry *all = &o->core->registry;

    for (size_t i = 0; i < all->n; i++) {
        const struct sandbox *s = &all->order[i]->s;
        const char *id = json_string_value(json_object_get(s->metadata, METADATA_ID));

        if (!id || strcmp(id, o->b.id) != 0 || strcmp(s->tenant, o->b.tenant) != 0)
            continue;
        lifecycle_end(all->order[i], "its build was interrupted");
        return;
    }
}

static bool stays(struct core *c, const char *id)
{
    for (struct build_obj *o = c->builds; o; o = o->next)
        if (strcmp(o->b.snapshot, id) == 0 || strcmp(o->made, id) == 0)
            return true;
    return build_cache_has(c, id);
}

void builds_ready(struct core *c)
{
    for (struct build_obj *o = c->builds; o; o = o->next) {
        if (o->b.state != BUILD_BUILDING || o->run)
            continue;
        o->b.state = BUILD_ERROR;
        o->b.ended_real_ms = clock_real_ms();
        (void)snprintf(o->b.step, sizeof(o->b.step), "base");
        (void)snprintf(o->b.reason, sizeof(o->b.reason),
                       "the server was started anew while the template was built: build it again");
        build_log_add(&o->log, "error", o->b.step, "%s", o->b.reason);
        write_row(o);
        kill_sandbox_of(o);
    }
    snapshots_sweep_builds(c, stays);
}
