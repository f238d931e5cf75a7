#include "core/build_of_create.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/build_internal.h"
#include "core/core_internal.h"
#include "core/create_later.h"
#include "core/sandbox.h"

#include <stdio.h>
#include <string.h>

#define PREFIX_LEN (sizeof(CORE_IMAGE_PREFIX) - 1)

bool core_build_is_of_create(const char *name)
{
    return strncmp(name, CORE_IMAGE_PREFIX, PREFIX_LEN) == 0 &&
           strlen(name) == PREFIX_LEN + CORE_IMAGE_DIGITS &&
           strspn(name + PREFIX_LEN, "0123456789abcdef") == CORE_IMAGE_DIGITS;
}

/* -- which are there --------------------------------------------------------------------------- */

static bool has_sandbox(const struct core *c, const struct build *b)
{
    for (size_t i = 0; i < c->registry.n; i++) {
        const struct sandbox *s = &c->registry.order[i]->s;

        if (strcmp(s->template_requested, b->template_id) == 0 && strcmp(s->tenant, b->tenant) == 0)
            return true;
    }
    return false;
}

/* Of the template's builds, ready or not: `newest` stands for it. */
struct image {
    struct build_obj *newest;
    int64_t used_real_ms;
    bool under_way;
};

static struct image image_of(struct core *c, struct build_obj *newest)
{
    struct image i = {.newest = newest, .used_real_ms = c->started_real_ms};

    for (struct build_obj *o = newest; o; o = o->next) {
        if (!build_is_of(o, newest->b.tenant, newest->b.template_id))
            continue;
        i.under_way = i.under_way || o->run;
        i.used_real_ms = MAX(i.used_real_ms, MAX(o->used_real_ms, o->b.made_real_ms));
    }
    return i;
}

static bool is_first(const struct core *c, const struct build_obj *o)
{
    const struct build_obj *at = c->builds;

    while (!build_is_of(at, o->b.tenant, o->b.template_id))
        at = at->next;
    return at == o;
}

/* NULL: none may go. tenant NULL: of all. unused_ms: for at least so long. *n: how many there
 * are. */
static struct build_obj *longest_unused(struct core *c, const char *tenant, int64_t unused_ms,
                                        size_t *n)
{
    int64_t before = clock_real_ms() - unused_ms;
    struct image oldest = {.newest = NULL};

    *n = 0;
    for (struct build_obj *o = c->builds; o; o = o->next) {
        struct image i;

        if (!core_build_is_of_create(o->b.name) || (tenant && !build_is_of(o, tenant, NULL)) ||
            !is_first(c, o))
            continue;
        ++*n;
        i = image_of(c, o);
        if (!i.under_way && i.used_real_ms <= before && !has_sandbox(c, &o->b) &&
            (!oldest.newest || i.used_real_ms < oldest.used_real_ms))
            oldest = i;
    }
    return oldest.newest;
}

static void remove_one(struct core *c, const struct build_obj *o)
{
    char tenant[CORE_TENANT_SIZE], id[IDS_SANDBOX_SIZE];
    struct err e;

    (void)snprintf(tenant, sizeof(tenant), "%s", o->b.tenant);
    memcpy(id, o->b.template_id, sizeof(id));
    log_info("template %s: no sandbox has been made of it for long; it goes", o->b.name);
    if (core_build_delete(c, tenant, id, &e) != ERR_OK)
        log_warn("template %s: %s", id, e.text);
}

/* -- those that are not used any more ---------------------------------------------------------- */

void build_of_create_arm(struct core *c)
{
    if (c->stopping || timer_armed(&c->images_unused))
        return;
    for (const struct build_obj *o = c->builds; o; o = o->next)
        if (core_build_is_of_create(o->b.name)) {
            timers_set(&c->timers, &c->images_unused, clock_mono_ms() + CORE_IMAGE_SWEEP_MS);
            return;
        }
}

void build_of_create_on_due(struct timer *t)
{
    struct core *c = CONTAINER_OF(t, struct core, images_unused);
    struct build_obj *o;
    size_t n = 1;

    for (size_t i = 0; i < n && core_is_ready(c); i++) {
        o = longest_unused(c, NULL, CORE_IMAGE_AGE_MS, &n);
        if (!o)
            break;
        remove_one(c, o);
    }
    build_of_create_arm(c);
}

static enum err_code make_room(struct core *c, const char *tenant, struct err *e)
{
    struct build_obj *o;
    size_t n;

    o = longest_unused(c, tenant, 0, &n);
    if (n < CORE_IMAGES_OF_A_TENANT)
        return ERR_OK;
    if (o) {
        remove_one(c, o);
        return ERR_OK;
    }
    err_set(e, ERR_EXHAUSTED,
            "%zu templates of images that were given to a create are there: a tenant may have %u, "
            "and sandboxes made of each of them are there",
            n, CORE_IMAGES_OF_A_TENANT);
    err_hint(e, "end some of them, or make a snapshot of the image and name it");
    return ERR_EXHAUSTED;
}

/* -- a create ---------------------------------------------------------------------------------- */

/* That is ready, or else under way. */
static struct build_obj *known(struct core *c, const char *tenant, const char *name)
{
    struct build_obj *o = build_named(c, tenant, name);

    for (struct build_obj *b = c->builds; b && !o; b = b->next)
        if (b->run && build_is_of(b, tenant, NULL) && strcmp(b->b.name, name) == 0)
            o = b;
    return o;
}

/* A build that cannot be started leaves nothing: earlier ones of the name have failed. */
static enum err_code begin(struct core *c, const char *tenant, const char *name,
                           struct build_spec *spec, const struct build **out, struct err *e)
{
    const struct core_build_request r = {.tenant = tenant, .name = name};
    const struct build *b = NULL;
    enum err_code code;

    if (!core_build_of_template(c, tenant, name) && make_room(c, tenant, e) != ERR_OK)
        return e->code;
    code = core_build_new(c, &r, &b, e);
    if (code == ERR_OK) {
        code = core_build_start(c, tenant, b->template_id, b->id, spec, e);
        if (code != ERR_OK)
            core_build_delete(c, tenant, b->template_id, NULL);
    }
    if (code == ERR_OK)
        *out = b;
    return code;
}

enum err_code core_build_of_create(struct core *c, const char *tenant,
                                   const uint8_t hash[static CORE_IMAGE_HASH_SIZE],
                                   struct build_spec *spec, const struct build **out, struct err *e)
{
    char name[PREFIX_LEN + CORE_IMAGE_DIGITS + 1] = CORE_IMAGE_PREFIX;
    enum err_code code = ERR_OK;
    struct build_obj *o;

    ids_hex(hash, CORE_IMAGE_DIGITS / 2, name + PREFIX_LEN);
    o = known(c, tenant, name);
    if (o) {
        o->used_real_ms = clock_real_ms();
        *out = &o->b;
    } else {
        code = begin(c, tenant, name, spec, out, e);
    }
    build_spec_free(spec); /* empty where the build has it */
    build_of_create_arm(c);
    return code;
}
