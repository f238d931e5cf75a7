#include "core/published.h"

#include "base/log.h"
#include "core/core_internal.h"
#include "core/key.h"
#include "core/store_template.h"

#include <stdio.h>
#include <string.h>

static size_t index_of(const struct core *c, const char *name)
{
    const struct published *p = c->published;
    size_t len = strcspn(name, ":"), i = 0;

    while (i < p->n && !(strlen(p->names[i]) == len && memcmp(p->names[i], name, len) == 0))
        i++;
    return i;
}

bool published_has(const struct core *c, const char *name)
{
    return index_of(c, name) < c->published->n;
}

static void load_one(void *arg, const char *name)
{
    struct published *p = arg;

    if (p->n < CORE_PUBLISHED_MAX)
        (void)snprintf(p->names[p->n++], sizeof(p->names[0]), "%s", name);
}

enum err_code published_init(struct core *c, struct err *e)
{
    c->published = calloc(1, sizeof(*c->published));
    return c->published ? store_published_each(c->store, load_one, c->published, e)
                        : err_set(e, ERR_EXHAUSTED, "memory is out");
}

void published_free(struct core *c)
{
    free(TAKE_PTR(c->published));
}

enum err_code published_add(struct core *c, const char *name, struct err *e)
{
    struct published *p = c->published;

    if (p->n == CORE_PUBLISHED_MAX)
        return err_set(e, ERR_EXHAUSTED, "%zu templates are published: no more are allowed", p->n);
    if (store_published_put(c->store, name, e) != ERR_OK)
        return e->code;
    (void)snprintf(p->names[p->n++], sizeof(p->names[0]), "%s", name);
    log_info("template %s is for all tenants now", name);
    return ERR_OK;
}

enum err_code published_remove(struct core *c, const char *name, struct err *e)
{
    struct published *p = c->published;
    size_t at = index_of(c, name);

    if (store_published_delete(c->store, p->names[at], e) != ERR_OK)
        return e->code;
    log_info("template %s is for its own tenant alone now", p->names[at]);
    p->n--;
    memmove(p->names[at], p->names[at + 1], (p->n - at) * sizeof(p->names[0]));
    return ERR_OK;
}

void published_forget(struct core *c, const char *tenant, const char *name)
{
    struct err e;

    if (strcmp(tenant, CORE_OPERATOR_TENANT) == 0 && published_has(c, name) &&
        published_remove(c, name, &e) != ERR_OK)
        log_error("template %s: %s", name, e.text);
}
