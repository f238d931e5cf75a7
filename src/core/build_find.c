/* Finding builds: by id, and by what a name with a tag means. Called by create_check.c, for what
 * a create begins with, so that nothing here begins or ends one. */

#include "core/build_internal.h"

#include "base/plain_name.h"
#include "core/core_internal.h"

#include <stdio.h>
#include <string.h>

static const char *const state_names[BUILD_STATE_COUNT] = {[BUILD_WAITING] = "waiting",
                                                           [BUILD_BUILDING] = "building",
                                                           [BUILD_READY] = "ready",
                                                           [BUILD_ERROR] = "error"};

const char *core_build_state_name(enum build_state state)
{
    return state < BUILD_STATE_COUNT ? state_names[state] : "error";
}

bool build_has_tag(const struct build *b, const char *tag)
{
    char part[CORE_BUILD_TAG_MAX + 3];

    (void)snprintf(part, sizeof(part), ",%.*s,", (int)CORE_BUILD_TAG_MAX, tag);
    return strstr(b->tags, part) != NULL;
}

void core_build_each_tag(const struct build *b, void (*fn)(void *arg, const char *tag), void *arg)
{
    char tags[CORE_BUILD_TAGS_SIZE], *rest = tags, *tag;

    memcpy(tags, b->tags, sizeof(tags));
    while ((tag = strsep(&rest, ",")))
        if (*tag)
            fn(arg, tag);
}

/* "name" or "name:tag". *tagged: the second. */
enum err_code build_split_name(const char *text, char name[static CORE_BUILD_NAME_SIZE],
                               char tag[static CORE_BUILD_TAG_MAX + 1], bool *tagged, struct err *e)
{
    const char *colon = strchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : strlen(text);

    *tagged = colon != NULL;
    if (n < CORE_BUILD_NAME_SIZE) {
        memcpy(name, text, n);
        name[n] = '\0';
    }
    if (n >= CORE_BUILD_NAME_SIZE || !plain_name_is_label(name, CORE_BUILD_NAME_SIZE - 1))
        return err_set(e, ERR_INVALID,
                       "\"%.100s\" is no name of a template: at most %d letters, digits, '.', '_' "
                       "and '-', the first of them a letter or digit, and :TAG",
                       text, CORE_BUILD_NAME_SIZE - 1);
    if (colon && !plain_name_is_label(colon + 1, CORE_BUILD_TAG_MAX))
        return err_set(e, ERR_INVALID, "\"%.70s\" is no tag", colon + 1);
    (void)snprintf(tag, CORE_BUILD_TAG_MAX + 1, "%s", colon ? colon + 1 : CORE_BUILD_TAG);
    return ERR_OK;
}

/* -- finding ----------------------------------------------------------------------------------- */

bool build_is_of(const struct build_obj *o, const char *tenant, const char *template_id)
{
    return strcmp(o->b.tenant, tenant) == 0 &&
           (!template_id || !*template_id || strcmp(o->b.template_id, template_id) == 0);
}

struct build_obj *build_get(struct core *c, const char *tenant, const char *template_id,
                            const char *build)
{
    struct build_obj *o = c->builds;

    while (o && !(strcmp(o->b.id, build) == 0 && build_is_of(o, tenant, template_id)))
        o = o->next;
    return o;
}

const struct build *core_build_find(struct core *c, const char *tenant, const char *template_id,
                                    const char *build)
{
    const struct build_obj *o = build_get(c, tenant, template_id, build);

    return o ? &o->b : NULL;
}

struct build_obj *build_named(struct core *c, const char *tenant, const char *text)
{
    char name[CORE_BUILD_NAME_SIZE], tag[CORE_BUILD_TAG_MAX + 1];
    bool tagged;

    if (build_split_name(text, name, tag, &tagged, NULL) != ERR_OK)
        return NULL;
    for (struct build_obj *o = c->builds; o; o = o->next)
        if (o->b.state == BUILD_READY && build_is_of(o, tenant, NULL) &&
            build_has_tag(&o->b, tag) &&
            (strcmp(o->b.name, name) == 0 || strcmp(o->b.template_id, name) == 0))
            return o;
    return NULL;
}

/* A tenant has at most CORE_BUILDS_OF_A_TENANT. */
size_t builds_count_names(const struct core *c, const char *tenant)
{
    const char *seen[CORE_BUILDS_OF_A_TENANT];
    size_t n = 0, i;

    for (const struct build_obj *o = c->builds; o && n < ARRAY_SIZE(seen); o = o->next) {
        if (!build_is_of(o, tenant, NULL))
            continue;
        for (i = 0; i < n && strcmp(seen[i], o->b.template_id) != 0; i++)
            ;
        if (i == n)
            seen[n++] = o->b.template_id;
    }
    return n;
}

const struct build *core_build_named(struct core *c, const char *tenant, const char *name)
{
    const struct build_obj *o = build_named(c, tenant, name);

    return o ? &o->b : NULL;
}

const struct build *core_build_of_template(struct core *c, const char *tenant, const char *name)
{
    size_t n = strcspn(name, ":");

    for (const struct build_obj *o = c->builds; o; o = o->next)
        if (build_is_of(o, tenant, NULL) && (strcmp(o->b.template_id, name) == 0 ||
                                             (strncmp(o->b.name, name, n) == 0 && !o->b.name[n])))
            return &o->b;
    return NULL;
}

const char *core_build_template_name(struct core *c, const char *tenant, const char *template_id)
{
    const struct build *b = core_build_of_template(c, tenant, template_id);

    return b ? b->name : "";
}

const struct snapshot *builds_snapshot(struct core *c, const char *tenant, const char *name)
{
    const struct build_obj *o = name ? build_named(c, tenant, name) : NULL;

    return o ? snapshots_ready(c, o->b.snapshot) : NULL;
}

const char *core_build_base(struct core *c, const struct build *b)
{
    const struct snapshot *s = b->state == BUILD_READY ? snapshots_ready(c, b->snapshot) : NULL;

    return s ? s->template_id : "";
}

void core_build_each(struct core *c, const char *tenant, const char *template_id,
                     bool (*fn)(void *arg, const struct build *b), void *arg)
{
    for (struct build_obj *o = c->builds; o; o = o->next)
        if (build_is_of(o, tenant ? tenant : o->b.tenant, template_id) && !fn(arg, &o->b))
            return;
}

void core_build_log(struct core *c, const struct build *b, size_t offset, size_t limit,
                    void (*fn)(void *arg, const struct core_build_line *line), void *arg)
{
    const struct build_obj *o = CONTAINER_OF(b, const struct build_obj, b);

    build_log_each(&o->log, offset, MIN(limit, (size_t)CORE_BUILD_LOG_PAGE), fn, arg);
}
