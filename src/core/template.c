/* Templates: privd has them by number; names and aliases are ours. Two are known from the start,
 * the others are images that were given a name (template_image.c). privd tells which are ready, and
 * is asked again after each job. */

#include "core/template.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/call.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/deferred.h"
#include "core/reserve.h"
#include "core/sandbox.h"
#include "core/store_template.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define NOTE_SIZE   224
#define REASON_SIZE 160
#define REFRESH_MS  2000u
#define TAG_DEFAULT "default"
#define TAG_LATEST  "latest"

static const struct {
    uint32_t number;
    const char *id;
    const char *aliases[4];
    const char *build_note; /* advice for a template that is not there */
} known[] = {
    {PRIVSEP_TEMPLATE_HOST,
     "host",
     {NULL},
     "it is made from this machine's own programs at the server's start; see `cay doctor`"},
    {PRIVSEP_TEMPLATE_BASE,
     "base",
     {"debian", NULL},
     "it is not built yet: `cay template build base`"},
};

#define KNOWN   ARRAY_SIZE(known)
#define IS_HOST 0 /* place of "host" in known */

_Static_assert(KNOWN == TEMPLATES_KNOWN, "images have the places after them");

struct job {
    struct job *next;
    struct core *core;
    uint64_t seq; /* of the JOB request */
    size_t which;
    bool build;
    char last[REASON_SIZE]; /* its last message */
    void (*on_progress)(void *arg, unsigned percent, const char *text);
    core_sandbox_cb done;
    void *arg;
};

/* -- what is there ----------------------------------------------------------------------------- */

bool core_template_is_host(const char *name)
{
    return strcmp(name, known[IS_HOST].id) == 0;
}

void templates_note(struct templates *t, size_t i)
{
    bool failed = !t->info[i].ready && !t->info[i].building && t->failed[i][0];
    const char *text = t->info[i].ready      ? ""
                       : t->info[i].building ? "it is being built"
                       : failed              ? t->failed[i]
                       : i < KNOWN           ? known[i].build_note
                                   : "its import did not end: begin it again, or remove it";
    size_t len = strnlen(text, NOTE_SIZE - 1);

    memcpy(t->notes[i], text, len);
    t->notes[i][len] = '\0';
}

void templates_forget(struct core *c)
{
    struct templates *t = c->templates;

    for (size_t i = 0; i < KNOWN; i++) {
        t->info[i].id = known[i].id;
        t->info[i].number = known[i].number;
        t->info[i].source = t->info[i].digest = t->info[i].tenant = "";
    }
    for (size_t i = 0; i < TEMPLATES_ALL; i++) {
        t->info[i].ready = false;
        t->info[i].made_real_ms = 0;
        t->info[i].size_bytes = 0;
        t->info[i].note = t->notes[i];
        templates_note(t, i);
    }
}

enum err_code templates_init(struct core *c, struct err *e)
{
    c->templates = calloc(1, sizeof(*c->templates));
    if (!c->templates)
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    templates_forget(c);
    return ERR_OK;
}

void templates_free(struct core *c)
{
    struct job *next;

    for (struct job *j = c->jobs; j; j = next) {
        next = j->next;
        free(j);
    }
    c->jobs = NULL;
    for (size_t i = 0; i < TEMPLATES_ALL; i++)
        tenant_refund(&c->templates->bytes[i]);
    free(c->templates);
    c->templates = NULL;
}

const char *templates_name(const struct core *c, uint32_t number)
{
    for (size_t i = 0; i < TEMPLATES_ALL; i++)
        if (c->templates->info[i].id && c->templates->info[i].number == number)
            return c->templates->info[i].id;
    return NULL;
}

/* privd has said how big it is: it counts as its tenant's. */
static void charge(struct core *c, size_t index)
{
    const struct template_info *t = &c->templates->info[index];
    struct tenant *tenant = t->tenant[0] ? tenant_get(c, t->tenant) : NULL;

    if (tenant) /* without memory it counts when privd lists it anew */
        tenant_recharge(tenant, TENANT_TEMPLATE_BYTES, t->size_bytes, &c->templates->bytes[index]);
    tenant_unref(tenant);
}

void templates_on_event(struct core *c, const struct privsep_msg *m)
{
    for (size_t i = 0; i < TEMPLATES_ALL; i++) {
        struct template_info *t = &c->templates->info[i];

        if (!t->id || t->number != m->u.template.number)
            continue;
        t->ready = m->u.template.ready != 0;
        t->made_real_ms = m->u.template.made_real_ms;
        t->size_bytes = m->u.template.size_bytes;
        charge(c, i);
        templates_note(c->templates, i);
    }
}

struct templates_call {
    void (*fn)(struct core *c, int status);
};

static void on_templates(struct core *c, const char *id, int status, const struct privsep_msg *m,
                         int *fds, size_t n_fds, void *arg)
{
    CLEANUP_FREE struct templates_call *a = arg;

    if (a->fn)
        a->fn(c, status);
}

int templates_request(struct core *c, void (*fn)(struct core *c, int status))
{
    struct privsep_msg m = {.op = PRIVSEP_TEMPLATES};
    struct templates_call *a = calloc(1, sizeof(*a));
    int64_t rc;

    if (!a)
        return -ENOMEM;
    a->fn = fn;
    rc = call_privd(c, "", &m, on_templates, a);
    if (rc < 0)
        free(a);
    return rc < 0 ? (int)rc : 0;
}

/* A build that an earlier cayd began ends without a word to this one: a request for the template is
 * the reason to look again. */
static void refresh(struct core *c)
{
    uint64_t now = clock_mono_ms();

    if (c->templates_requested_ms && now - c->templates_requested_ms < REFRESH_MS)
        return;
    c->templates_requested_ms = now;
    templates_request(c, NULL);
}

/* Places are stable, for jobs; the list has no gaps. */
static size_t templates_show(struct templates *t, size_t most)
{
    size_t n = 0;

    for (size_t i = 0; i < most; i++)
        if (t->info[i].id)
            t->shown[n++] = t->info[i];
    return n;
}

size_t core_templates(struct core *c, bool all, const struct template_info **out)
{
    refresh(c);
    *out = c->templates->shown;
    return templates_show(c->templates, all ? TEMPLATES_ALL : TEMPLATES_SERVER);
}

/* -- names ------------------------------------------------------------------------------------- */

static bool is_name_of(const struct templates *t, size_t i, const char *name, size_t len)
{
    const char *id = t->info[i].id;

    if (id && strlen(id) == len && memcmp(id, name, len) == 0)
        return true;
    for (const char *const *a = i < KNOWN ? known[i].aliases : NULL; a && *a; a++)
        if (strlen(*a) == len && memcmp(*a, name, len) == 0)
            return true;
    return false;
}

/* A name may carry a tag; there is one version of each, so only the tags that mean "the"
 * version. */
static bool find(const struct templates *t, const char *name, size_t *out)
{
    const char *colon = strchr(name, ':');
    size_t len = colon ? (size_t)(colon - name) : strlen(name);

    if (colon && strcmp(colon + 1, TAG_DEFAULT) != 0 && strcmp(colon + 1, TAG_LATEST) != 0)
        return false;
    for (size_t i = 0; i < TEMPLATES_ALL; i++) {
        if (is_name_of(t, i, name, len)) {
            *out = i;
            return true;
        }
    }
    return false;
}

struct template_info *templates_entry(struct core *c, const char *name)
{
    size_t i;

    return name && find(c->templates, name, &i) ? &c->templates->info[i] : NULL;
}

const struct template_info *core_template_by_id(struct core *c, const char *id)
{
    return templates_entry(c, id);
}

const struct template_info *core_template_find(struct core *c, const char *name)
{
    const struct template_info *t = templates_entry(c, name);

    return t && !t->tenant[0] ? t : NULL;
}

enum err_code templates_resolve(struct core *c, const char *tenant, const char *name,
                                const struct template_info **requested,
                                const struct template_info **used, struct err *e)
{
    const struct template_info *host = &c->templates->info[IS_HOST];
    const struct template_info *t = templates_entry(c, name);

    if (!t || (t->tenant[0] && strcmp(t->tenant, tenant) != 0))
        return err_set(e, ERR_NOT_FOUND, "there is no template '%.64s'", name ? name : "");
    if (!t->ready)
        refresh(c);
    /* an image is no Debian like the others: host does not take its place */
    if (!t->ready && (!host->ready || t->source[0])) {
        err_set(e, ERR_UNAVAILABLE, "template %s is not ready: %s", t->id, t->note);
        err_hint(e, "see `cay template ls`");
        return ERR_UNAVAILABLE;
    }
    *requested = t;
    *used = t->ready ? t : host;
    return ERR_OK;
}

/* -- jobs -------------------------------------------------------------------------------------- */

void templates_on_progress(struct core *c, const struct privsep_msg *m)
{
    for (struct job *j = c->jobs; j; j = j->next) {
        if (j->seq != m->u.progress.job_seq)
            continue;
        snprintf(j->last, sizeof(j->last), "%.*s", (int)sizeof(m->u.progress.text) - 1,
                 m->u.progress.text);
        if (j->on_progress)
            j->on_progress(j->arg, MIN(m->u.progress.percent, 100u), j->last);
        return;
    }
}

static void unlink_job(struct core *c, struct job *j)
{
    struct job **at = &c->jobs;

    while (*at != j)
        at = &(*at)->next;
    *at = j->next;
}

static void job_error(const struct core *c, struct err *e, const struct job *j, int status)
{
    char what[96];

    snprintf(what, sizeof(what), "%s template %s", j->build ? "building" : "removing",
             c->templates->info[j->which].id);
    if (status == -EBUSY)
        err_set(e, ERR_CONFLICT, "%s: it is in use, or being built or removed already", what);
    else if (call_is_channel_error(status) || !j->last[0])
        call_privd_err(e, status, what);
    else
        err_set_sys(e, err_code_from_errno(status), status, "%s: %s", what, j->last);
}

/* The template is gone: its name too. */
static enum err_code forget_image(struct core *c, size_t index, struct err *e)
{
    struct template_info *info = &c->templates->info[index];

    if (store_image_delete(c->store, info->id, e) != ERR_OK)
        return e->code;
    *info = (struct template_info){.id = NULL};
    tenant_refund(&c->templates->bytes[index]);
    c->templates->failed[index][0] = '\0';
    return ERR_OK;
}

/* The list is asked for anew before the waiting callers are answered: the answer is then true. The
 * reply to it need not be waited for: it is in order. */
static void on_job(struct core *c, const char *id, int status, const struct privsep_msg *m,
                   int *fds, size_t n_fds, void *arg)
{
    CLEANUP_FREE struct job *j = arg;
    struct templates *t = c->templates;
    struct err why;

    unlink_job(c, j);
    t->info[j->which].building = false;
    t->failed[j->which][0] = '\0';
    /* one whose import did not end has nothing that privd could remove */
    if (!j->build && status == -ENOENT && t->info[j->which].source[0])
        status = 0;
    if (status < 0) {
        job_error(c, &why, j, status);
        log_warn("%s", why.text);
        if (j->build)
            snprintf(t->failed[j->which], NOTE_SIZE, "the last build failed: %.160s", why.text);
        else if (status != -EBUSY) /* a part of it may be gone: the list, which has what is there */
            t->info[j->which].ready = false;
    } else if (j->build) {
        t->info[j->which].ready = true;
    } else {
        t->info[j->which].ready = false;
        t->info[j->which].size_bytes = 0;
    }
    if (status == 0 && !j->build && t->info[j->which].source[0] &&
        forget_image(c, j->which, &why) != ERR_OK)
        status = -EIO;
    templates_note(t, j->which);
    templates_request(c, NULL);
    if (j->done)
        j->done(j->arg, NULL, status < 0 ? &why : NULL);
}

static size_t users_of(const struct core *c, size_t which)
{
    size_t n = 0;

    for (size_t i = 0; i < c->registry.n; i++)
        n += strcmp(c->registry.order[i]->s.template_id, c->templates->info[which].id) == 0;
    return n;
}

static enum err_code check_job(struct core *c, const char *name, bool build, size_t *which,
                               struct err *e)
{
    enum err_code code = core_check_ready(c, e);

    if (code != ERR_OK)
        return code;
    if (!name || !find(c->templates, name, which))
        return err_set(e, ERR_NOT_FOUND, "there is no template '%.64s'", name ? name : "");
    for (struct job *j = c->jobs; j; j = j->next)
        if (j->which == *which)
            return err_set(e, ERR_CONFLICT, "template %s is being %s already",
                           c->templates->info[*which].id, j->build ? "built" : "removed");
    if (!build && *which == IS_HOST)
        return err_set(e, ERR_CONFLICT, "template host is this machine itself and stays");
    if (!build && users_of(c, *which))
        return err_set(e, ERR_CONFLICT, "%zu sandboxes use template %s: end them first",
                       users_of(c, *which), c->templates->info[*which].id);
    return ERR_OK;
}

static enum err_code start_job(struct core *c, const char *name, bool build, struct job *j,
                               struct err *e)
{
    struct privsep_msg m = {.op = PRIVSEP_JOB};
    enum err_code code = check_job(c, name, build, &j->which, e);
    int64_t seq;

    if (code != ERR_OK)
        return code;
    j->build = build;
    m.u.job.kind = build ? PRIVSEP_JOB_TEMPLATE_BUILD : PRIVSEP_JOB_TEMPLATE_REMOVE;
    m.u.job.template_number = c->templates->info[j->which].number;
    seq = call_privd(c, "", &m, on_job, j);
    if (seq < 0)
        return call_privd_err(e, seq, build ? "building a template" : "removing a template");
    j->seq = (uint64_t)seq;
    j->next = c->jobs;
    c->jobs = j;
    c->templates->info[j->which].building = build;
    templates_note(c->templates, j->which);
    return ERR_OK;
}

static void run_job(struct core *c, const char *name, bool build,
                    void (*on_progress)(void *arg, unsigned percent, const char *text),
                    core_sandbox_cb done, void *arg)
{
    struct job *j = RESERVE_NEW(&c->reserve, struct job);
    struct err e;

    *j = (struct job){.core = c, .on_progress = on_progress, .done = done, .arg = arg};
    if (start_job(c, name, build, j, &e) == ERR_OK)
        return;
    free(j);
    core_defer_error(c, done, arg, &e);
}

void core_template_build(struct core *c, const char *name,
                         void (*on_progress)(void *arg, unsigned percent, const char *text),
                         core_sandbox_cb done, void *arg)
{
    run_job(c, name, true, on_progress, done, arg);
}

void core_template_remove(struct core *c, const char *name, core_sandbox_cb done, void *arg)
{
    run_job(c, name, false, NULL, done, arg);
}
