#include "core/template_tenant.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/share.h"
#include "contract/meta.h"
#include "core/core_internal.h"
#include "core/sandbox.h"
#include "core/snapshot.h"
#include "core/store_template.h"

#include <stdio.h>
#include <string.h>

_Static_assert(TEMPLATES_SERVER == META_TEMPLATES_SERVER, "jobs tell them by the number");

#define PREFIX   "image-"
#define ID_CHARS 20

static bool is_of(const struct template_info *t, const char *tenant)
{
    return t->id && strcmp(t->tenant, tenant) == 0;
}

/* -- finding ----------------------------------------------------------------------------------- */

const struct template_info *template_tenant_find(const struct core *c, const char *tenant,
                                                 const char *digest)
{
    const struct templates *t = c->templates;

    for (size_t i = TEMPLATES_SERVER; i < TEMPLATES_ALL; i++)
        if (is_of(&t->info[i], tenant) && t->info[i].ready && t->info[i].number != t->removing &&
            strcmp(t->info[i].digest, digest) == 0)
            return &t->info[i];
    return NULL;
}

/* -- a new one --------------------------------------------------------------------------------- */

static enum err_code find_index(const struct core *c, const char *tenant, size_t *out,
                                struct err *e)
{
    size_t used = 0, held = 0, free = 0;

    for (size_t i = TEMPLATES_ALL; i-- > TEMPLATES_SERVER;) {
        const struct template_info *t = &c->templates->info[i];

        used += t->id != NULL;
        held += is_of(t, tenant);
        if (!t->id)
            free = i;
    }
    if (free == 0 || held >= TEMPLATE_TENANT_EACH ||
        !share_leaves_space(CORE_TENANT_IMAGES_MAX, used, held)) {
        err_set(e, ERR_EXHAUSTED,
                "%zu images of registries are kept, %zu of them this tenant's, which may have %u",
                used, held, TEMPLATE_TENANT_EACH);
        err_hint(e, "delete templates that were built on images, and sandboxes made of them");
        return e->code;
    }
    *out = free;
    return ERR_OK;
}

enum err_code template_tenant_new(struct core *c, const char *tenant, const char *source,
                                  const char *digest, const struct template_info **out,
                                  struct err *e)
{
    struct template_image image = {.name = PREFIX};
    size_t index = 0;

    if (core_check_ready(c, e) != ERR_OK || find_index(c, tenant, &index, e) != ERR_OK)
        return e->code;
    ids_random_text(image.name + strlen(PREFIX), ID_CHARS);
    (void)snprintf(image.source, sizeof(image.source), "%s", source);
    (void)snprintf(image.digest, sizeof(image.digest), "%s", digest);
    (void)snprintf(image.tenant, sizeof(image.tenant), "%s", tenant);
    if (store_image_put(c->store, image.name, (uint32_t)index + 1, image.source, image.digest,
                        image.tenant, e) != ERR_OK)
        return e->code;
    template_image_take(c->templates, index, &image);
    *out = &c->templates->info[index];
    return ERR_OK;
}

/* -- what goes --------------------------------------------------------------------------------- */

static bool is_stood_on(const struct core *c, const char *id)
{
    for (size_t i = 0; i < c->registry.n; i++)
        if (strcmp(c->registry.order[i]->s.template_id, id) == 0)
            return true;
    return snapshots_lie_on(c, id);
}

/* A failure was logged; the removal is tried again at the next sweep. */
static void on_removed(void *arg, const struct sandbox *s, const struct err *why)
{
    struct core *c = arg;

    if (c->stopping)
        return;
    c->templates->removing = 0;
    template_images_poke(c);
}

/* The first; NULL: there is none. */
static const struct template_info *unneeded(const struct core *c,
                                            bool (*used)(const struct core *c, const char *id))
{
    for (size_t i = TEMPLATES_SERVER; i < TEMPLATES_ALL; i++) {
        const struct template_info *t = &c->templates->info[i];

        if (t->id && !t->building && !used(c, t->id) && !is_stood_on(c, t->id))
            return t;
    }
    return NULL;
}

/* Removes one at a time: there are few jobs. */
void template_tenant_sweep(struct core *c, bool (*used)(const struct core *c, const char *id))
{
    const struct template_info *t = core_is_ready(c) ? unneeded(c, used) : NULL;

    if (!t || c->templates->removing)
        return;
    c->templates->removing = t->number;
    core_template_remove(c, t->id, on_removed, c);
}
