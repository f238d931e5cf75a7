/* A list (c->build_cached), in no order. Each build that is started has a number (c->build_uses),
 * and the steps that it uses or adds get it with their place, the first the highest: so the one
 * that goes first is the last step of the build that was started longest ago, and none goes before
 * those that stand on it. */

#include "core/build_cache.h"

#include "core/build_state.h"
#include "core/core_internal.h"
#include "core/publish.h"
#include "core/template.h"
#include "http/digest.h"
#include "http/json.h"

#include <stdio.h>
#include <string.h>

struct build_cached {
    struct build_cached *next;
    struct tenant *tenant;
    char template_id[IDS_SANDBOX_SIZE]; /* of the template whose build was the last to use it */
    char on[BUILD_RUN_ON_SIZE];
    bool first; /* `on` is what a build begins with */
    unsigned char key[DIGEST_SHA256_SIZE];
    char snapshot[IDS_SANDBOX_SIZE];
    char *state; /* user, folder and variables afterwards: build_state_take */
    uint64_t used;
};

/* -- finding ----------------------------------------------------------------------------------- */

static struct build_cached *of_snapshot(const struct core *c, const char *snapshot)
{
    struct build_cached *k = c->build_cached;

    while (k && strcmp(k->snapshot, snapshot) != 0)
        k = k->next;
    return k;
}

bool build_cache_has(const struct core *c, const char *snapshot)
{
    return of_snapshot(c, snapshot) != NULL;
}

static struct build_cached *of_key(const struct build_run *r,
                                   const unsigned char key[static DIGEST_SHA256_SIZE])
{
    struct build_cached *k = r->core->build_cached;

    while (k && (k->tenant != r->o->tenant || memcmp(k->key, key, sizeof(k->key)) != 0))
        k = k->next;
    return k;
}

/* NULL: memory is out. */
static json_t *words_json(const struct build_step *s)
{
    json_t *words = json_array();

    for (size_t i = 0; words && i < s->n; i++)
        if (json_array_append_new(words, json_string(s->words[i])) < 0) {
            json_decref(words);
            return NULL;
        }
    return words;
}

/* Of the step r->at, on r->on. false: memory is out. */
static bool make_key(const struct build_run *r, unsigned char key[static DIGEST_SHA256_SIZE])
{
    const struct build_step *s = &r->spec.steps[r->at];
    json_t *words = words_json(s);
    json_t *all = words ? json_pack("[s, s, s, o]", r->on, build_op_name(s->op),
                                    s->files ? s->files : "", words)
                        : NULL;
    CLEANUP_FREE char *text = json_text(all, JSON_COMPACT);

    json_decref(all);
    if (text)
        digest_sha256(text, strlen(text), key);
    return text != NULL;
}

/* -- going ------------------------------------------------------------------------------------- */

static void unlink_one(struct core *c, struct build_cached *gone)
{
    struct build_cached **at = &c->build_cached;

    while (*at != gone)
        at = &(*at)->next;
    *at = gone->next;
    tenant_unref(gone->tenant);
    free(gone->state);
    free(gone);
}

static void drop(struct core *c, struct build_cached *k)
{
    snapshots_remove(c, k->snapshot);
    unlink_one(c, k);
}

/* A sandbox is just being made of it. */
static bool in_use(const struct core *c, const struct build_cached *k)
{
    for (const struct build_obj *o = c->builds; o; o = o->next)
        if (o->run && !o->run->sandbox[0] && strcmp(o->run->on, k->snapshot) == 0)
            return true;
    return false;
}

static bool is_orphan(const struct core *c, const struct build_cached *k)
{
    return !k->first && !of_snapshot(c, k->on) && !in_use(c, k);
}

/* Those that stand on one that is gone are found by none. */
static void drop_orphans(struct core *c)
{
    struct build_cached *k = c->build_cached;

    while (k) {
        bool orphan = is_orphan(c, k);

        if (orphan)
            drop(c, k);
        k = orphan ? c->build_cached : k->next;
    }
}

void build_cache_forget(struct core *c, const char *tenant, const char *template_id)
{
    struct build_cached *next;

    for (struct build_cached *k = c->build_cached; k; k = next) {
        next = k->next;
        if (strcmp(k->tenant->name, tenant) == 0 && strcmp(k->template_id, template_id) == 0 &&
            !in_use(c, k))
            drop(c, k);
    }
    drop_orphans(c);
}

/* The one of the tenant that was not used for longest. */
static bool give_way(struct core *c, const char *tenant)
{
    struct build_cached *oldest = NULL;

    for (struct build_cached *k = c->build_cached; k; k = k->next)
        if (strcmp(k->tenant->name, tenant) == 0 && (!oldest || k->used < oldest->used) &&
            !in_use(c, k))
            oldest = k;
    if (oldest)
        drop(c, oldest);
    return oldest != NULL;
}

void core_build_forget_steps(struct core *c, const char *template_id)
{
    struct build_cached *next;

    for (struct build_cached *k = c->build_cached; k; k = next) {
        const struct snapshot *s = snapshots_ready(c, k->snapshot);

        next = k->next;
        if (s && strcmp(s->template_id, template_id) == 0 && !in_use(c, k))
            drop(c, k);
    }
}

void build_cache_free(struct core *c)
{
    while (c->build_cached)
        unlink_one(c, c->build_cached);
}

/* -- using ------------------------------------------------------------------------------------- */

static void use(const struct build_run *r, struct build_cached *k)
{
    k->used = (r->number << 16) | (CORE_BUILD_STEPS_MAX - r->at);
    memcpy(k->template_id, r->o->b.template_id, sizeof(k->template_id));
}

/* Finds the base of the build, the limits that its sandboxes have, the user and folder of its first
 * step. "": it is not there. */
static void find_base(struct build_run *r)
{
    const struct build *b = &r->o->b;
    const struct template_info *requested, *used;
    const struct snapshot *s = core_template_snapshot(r->core, b->tenant, r->spec.from);
    unsigned char sum[DIGEST_SHA256_SIZE];
    char text[256 + sizeof(r->user) + sizeof(r->cwd)];
    struct err e;
    int n;

    if (!s && templates_resolve(r->core, b->tenant, r->spec.from, &requested, &used, &e) != ERR_OK)
        return;
    n = snprintf(text, sizeof(text), "%llu %u %s", (unsigned long long)b->memory_bytes,
                 b->cpu_milli, s ? s->id : "");
    if (!s)
        n += snprintf(text + n, sizeof(text) - (size_t)n, "%.128s %u %lld", used->id, used->number,
                      (long long)used->made_real_ms);
    n += snprintf(text + n, sizeof(text) - (size_t)n, " %s %s", r->user, r->cwd);
    digest_sha256(text, (size_t)n, sum);
    ids_hex(sum, sizeof(sum), r->on);
}

/* The next step, if it need not run. */
static struct build_cached *find_next(const struct build_run *r)
{
    unsigned char key[DIGEST_SHA256_SIZE];
    struct build_cached *k;

    if (r->at == r->spec.n || r->spec.steps[r->at].force || !make_key(r, key))
        return NULL;
    k = of_key(r, key);
    return k && snapshots_ready(r->core, k->snapshot) ? k : NULL;
}

bool build_cache_find(struct build_run *r)
{
    const struct build_cached *last = NULL;
    struct build_cached *k;

    r->number = ++r->core->build_uses;
    find_base(r);
    while (r->on[0] && (k = find_next(r))) {
        build_state_name_step(r, "CACHED ");
        use(r, k);
        memcpy(r->on, k->snapshot, sizeof(k->snapshot));
        r->at++;
        last = k;
    }
    r->cached = r->at;
    return !last || build_state_take(r, last->state, strlen(last->state));
}

/* -- keeping ----------------------------------------------------------------------------------- */

static size_t held(const struct core *c, const struct tenant *t)
{
    size_t n = 0;

    for (const struct build_cached *k = c->build_cached; k; k = k->next)
        n += k->tenant == t;
    return n;
}

/* The tenant that holds most gives way. */
static void make_room(const struct build_run *r)
{
    struct core *c = r->core;
    const struct tenant *most = r->o->tenant;
    size_t all = 0;

    for (const struct build_cached *k = c->build_cached; k; k = k->next) {
        all++;
        if (k->tenant != most && held(c, k->tenant) > held(c, most))
            most = k->tenant;
    }
    if (held(c, r->o->tenant) >= CORE_BUILD_CACHED)
        give_way(c, r->o->b.tenant);
    else if (all >= CORE_BUILD_CACHED_ALL)
        give_way(c, most->name);
}

static bool enter(struct build_run *r, const char *snapshot)
{
    struct build_cached *k = calloc(1, sizeof(*k)), *same;

    if (!k || !make_key(r, k->key) || ((same = of_key(r, k->key)) && in_use(r->core, same)) ||
        !(k->state = build_state_text(r))) {
        free(k);
        return false;
    }
    if (same)
        drop(r->core, same);
    k->tenant = tenant_ref(r->o->tenant);
    memcpy(k->on, r->on, sizeof(k->on));
    k->first = r->at == 0;
    (void)snprintf(k->snapshot, sizeof(k->snapshot), "%s", snapshot);
    use(r, k);
    k->next = r->core->build_cached;
    r->core->build_cached = k;
    r->core->kept_gives_way = give_way;
    if (same)
        drop_orphans(r->core);
    return true;
}

static void on_kept(void *arg, const struct snapshot *s, const struct err *why)
{
    struct build_run *r = arg;

    if (r->core->stopping)
        return;
    if (why)
        build_log_add(&r->o->log, "info", r->step, "the step is not kept for other builds: %s",
                      why->text);
    if (s && enter(r, s->id)) {
        memset(r->on, 0, sizeof(r->on));
        memcpy(r->on, s->id, sizeof(s->id));
    } else {
        r->on[0] = '\0';
        snapshots_remove(r->core, s ? s->id : "");
    }
    r->kept(r);
}

/* The step before may have given way meanwhile: then this one would not be found. */
static bool stands(const struct build_run *r)
{
    CLEANUP_FREE char *state = build_state_text(r);

    return r->on[0] && (r->at == 0 || of_snapshot(r->core, r->on)) && state &&
           strlen(state) <= CORE_BUILD_CACHED_STATE_BYTES;
}

void build_cache_keep(struct build_run *r, void (*done)(struct build_run *r))
{
    if (!stands(r)) {
        r->on[0] = '\0';
        done(r);
        return;
    }
    r->kept = done;
    make_room(r);
    core_snapshot_create(r->core, r->o->b.tenant, r->sandbox, NULL, SNAPSHOT_OF_BUILD, on_kept, r);
}
