/* Listings: filters and pages over the registry's order. Nothing is kept between pages but the
 * cursor, which names a place that need not exist any more. */

#include "core/list.h"

#include "base/arena.h"
#include "core/build.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/life.h"
#include "core/publish.h"
#include "core/registry.h"
#include "core/sandbox.h"
#include "core/snapshot.h"

#include <string.h>

#define LIST_MAX 1000u

struct matcher {
    const struct sandbox_filter *f;
    const char *template_id; /* of the template that the filter names; NULL: any */
    bool running, paused;
};

static bool has_metadata(const struct sandbox *s, const json_t *wanted)
{
    const char *key;
    json_t *value;

    json_object_foreach ((json_t *)wanted, key, value) {
        if (!json_equal(json_object_get(s->metadata, key), value))
            return false;
    }
    return true;
}

static bool is_of_template(const struct sandbox *s, const char *id)
{
    return strcmp(s->template_requested, id) == 0 ||
           (!core_sandbox_has_files_of(s) && strcmp(s->template_id, id) == 0);
}

/* All of the filter but its states. */
static bool matches(const struct matcher *m, const struct sandbox *s)
{
    if (s->serves_volume || (m->f->tenant && strcmp(s->tenant, m->f->tenant) != 0))
        return false;
    if (m->template_id && !is_of_template(s, m->template_id))
        return false;
    if (m->f->started_after_ms && s->started_real_ms < m->f->started_after_ms)
        return false;
    return !m->f->metadata || has_metadata(s, m->f->metadata);
}

static bool is_running(const struct sandbox *s)
{
    return life_of(s->state)->group == LIFE_GROUP_RUNNING;
}

static bool is_paused(const struct sandbox *s)
{
    return life_of(s->state)->group == LIFE_GROUP_PAUSED;
}

static bool wanted(const struct matcher *m, const struct sandbox *s)
{
    return ((m->running && is_running(s)) || (m->paused && is_paused(s))) && matches(m, s);
}

static size_t count_running(const struct registry *r, const struct matcher *m)
{
    size_t n = 0;

    for (size_t i = 0; i < r->n; i++)
        n += is_running(&r->order[i]->s) && matches(m, &r->order[i]->s);
    return n;
}

/* The first place to look at. Descending, places are counted from one above: [start, 0)
 * downwards. */
static size_t start_of(const struct registry *r, const struct sandbox_filter *f)
{
    size_t at;

    if (!f->cursor_id)
        return f->ascending ? 0 : r->n;
    at = registry_lower_bound(r, f->cursor_ms, f->cursor_id);
    if (f->ascending && at < r->n && r->order[at]->s.started_real_ms == f->cursor_ms &&
        strcmp(r->order[at]->s.id, f->cursor_id) == 0)
        at++;
    return at;
}

static void collect(const struct registry *r, const struct matcher *m, struct sandbox_page *page)
{
    const struct sandbox_filter *f = m->f;
    size_t at = start_of(r, f);

    while (f->ascending ? at < r->n : at > 0) {
        const struct sandbox *s = &r->order[f->ascending ? at++ : --at]->s;

        if (!wanted(m, s))
            continue;
        if (page->count == f->limit) {
            page->more = true;
            return;
        }
        page->items[page->count++] = s;
    }
}

/* The template that a create would find by the name; where there is none any more, its id. */
static const char *id_of_template(struct core *c, const char *tenant, const char *name)
{
    const struct snapshot *s = tenant ? core_snapshot_find(c, tenant, name) : NULL;
    const struct build *b = tenant && !s ? core_build_of_template(c, tenant, name) : NULL;
    const struct template_info *t = s || b ? NULL : core_template_find(c, name);
    struct core_public_template public;

    if (ids_is_snapshot(name) || ids_is_template(name))
        return name;
    if (!s && !b && !t && core_template_public(c, name, &public)) {
        s = public.s;
        b = public.b;
    }
    return b ? b->template_id : s ? s->id : t ? t->id : ""; /* "": no sandbox has it */
}

enum err_code core_sandbox_list(struct core *c, const struct sandbox_filter *f, struct arena *arena,
                                struct sandbox_page *out, struct err *e)
{
    bool any = !f->running && !f->paused;
    struct matcher m = {.f = f, .running = f->running || any, .paused = f->paused || any};
    struct sandbox_page page = {0};

    if (f->limit < 1 || f->limit > LIST_MAX)
        return err_set(e, ERR_INVALID, "a page has 1 to %u sandboxes, not %zu", LIST_MAX, f->limit);
    if (f->template_name)
        m.template_id = id_of_template(c, f->tenant, f->template_name);
    page.items = arena_alloc(arena,
                             sizeof(struct sandbox *) * MAX(1, MIN(f->limit, c->registry.n)));
    if (!page.items)
        return err_set(e, ERR_TOO_LARGE, "the page does not fit into the request's memory");
    collect(&c->registry, &m, &page);
    page.total_running = count_running(&c->registry, &m);
    *out = page;
    return ERR_OK;
}
