/* Templates out of images: a name, a number, and where it came from, as rows of the store.
 * Whether one is there privd knows; a row without a template is an import that did not end. */

#include "base/clock.h"
#include "base/plain_name.h"
#include "core/core_internal.h"
#include "core/deferred.h"
#include "core/store_template.h"
#include "core/template.h"
#include "core/template_tenant.h"

#include <stdio.h>
#include <string.h>

void template_image_take(struct templates *t, size_t index, const struct template_image *from)
{
    struct template_image *image = &t->images[index - TEMPLATES_KNOWN];
    struct template_info *info = &t->info[index];

    *image = *from;
    info->id = image->name;
    info->number = (uint32_t)index + 1;
    info->source = image->source;
    info->digest = image->digest;
    info->tenant = image->tenant;
    info->note = t->notes[index];
    templates_note(t, index);
}

/* The server's have the numbers up to TEMPLATES_SERVER, tenants' those after. */
static void load_one(void *arg, const char *name, uint32_t number, const char *source,
                     const char *digest, const char *tenant)
{
    struct template_image image = {{0}};
    struct templates *t = arg;

    (void)snprintf(image.name, sizeof(image.name), "%s", name);
    (void)snprintf(image.source, sizeof(image.source), "%s", source);
    (void)snprintf(image.digest, sizeof(image.digest), "%s", digest);
    (void)snprintf(image.tenant, sizeof(image.tenant), "%s", tenant);
    if (number > TEMPLATES_KNOWN && number <= TEMPLATES_ALL &&
        (number > TEMPLATES_SERVER) == (tenant[0] != '\0'))
        template_image_take(t, number - 1, &image);
}

enum err_code template_images_load(struct core *c, struct err *e)
{
    return store_image_each(c->store, load_one, c->templates, e);
}

static enum err_code check_request(const char *name, const char *source, const char *digest,
                                   struct err *e)
{
    if (!plain_name_is_valid(name, CORE_IMAGE_NAME_MAX) || name[0] == '.' || name[0] == '-')
        return err_set(
            e, ERR_INVALID,
            "\"%.80s\" cannot be a template's name: 1 to %u letters, digits, '-', '_', '.'", name,
            CORE_IMAGE_NAME_MAX);
    if (!source[0] || strlen(source) >= CORE_IMAGE_SOURCE_SIZE)
        return err_set(e, ERR_INVALID, "source: 1 to %d bytes", CORE_IMAGE_SOURCE_SIZE - 1);
    if (strncmp(digest, "sha256:", 7) != 0 || strspn(digest + 7, "0123456789abcdef") != 64 ||
        strlen(digest) != 71)
        return err_set(e, ERR_INVALID, "digest: \"%.80s\" is not a SHA-256 digest", digest);
    return ERR_OK;
}

/* The place that the name has, or a free one. */
static enum err_code find_index(const struct core *c, const struct template_info *there,
                                const char *name, size_t *out, struct err *e)
{
    const struct templates *t = c->templates;

    if (there && (!there->source[0] || there->ready || there->building)) {
        err_set(e, there->building ? ERR_CONFLICT : ERR_EXISTS, "template %s %s", name,
                there->building ? "is being made already" : "is there");
        err_hint(e, "`cay template rm %.64s` removes it, or take another name", name);
        return e->code;
    }
    for (*out = there ? there->number - 1 : TEMPLATES_KNOWN; *out < TEMPLATES_SERVER; ++*out)
        if (there || !t->info[*out].id)
            return ERR_OK;
    return err_set(e, ERR_EXHAUSTED, "there are %u templates out of images: remove one first",
                   CORE_IMAGES_MAX);
}

enum err_code core_template_import(struct core *c, const char *name, const char *source,
                                   const char *digest, uint32_t *number, struct err *e)
{
    struct template_image image = {{0}};
    size_t index = 0;

    if (core_check_ready(c, e) != ERR_OK || check_request(name, source, digest, e) != ERR_OK ||
        find_index(c, templates_entry(c, name), name, &index, e) != ERR_OK ||
        store_image_put(c->store, name, (uint32_t)index + 1, source, digest, "", e) != ERR_OK)
        return e->code;
    (void)snprintf(image.name, sizeof(image.name), "%s", name);
    (void)snprintf(image.source, sizeof(image.source), "%s", source);
    (void)snprintf(image.digest, sizeof(image.digest), "%s", digest);
    template_image_take(c->templates, index, &image);
    *number = (uint32_t)index + 1;
    return ERR_OK;
}

/* -- tenants' ---------------------------------------------------------------------------------- */

void template_images_poke(struct core *c)
{
    if (c->stopping || !c->templates || timer_armed(&c->images_due))
        return;
    for (size_t i = TEMPLATES_SERVER; i < TEMPLATES_ALL; i++)
        if (c->templates->info[i].id) {
            timers_set(&c->timers, &c->images_due, clock_mono_ms() + TEMPLATE_TENANT_SWEEP_MS);
            return;
        }
}
