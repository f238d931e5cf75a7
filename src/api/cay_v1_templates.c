/* Templates, and the jobs that build them. A build outlives its request: it is a job in a fixed
 * number of places, followed by its number; a place is given anew only when its job has ended. The
 * jobs are what a struct cay_v1 holds. */

#include "api/cay_v1.h"

#include "base/log.h"
#include "core/build.h"
#include "core/key.h"
#include "core/limit.h"
#include "core/publish.h"
#include "http/json.h"

#include <stdio.h>
#include <string.h>

#define JOB_ID_LEN     20
#define JOB_LINE_BYTES 256

enum job_state { JOB_FREE, JOB_RUNNING, JOB_DONE, JOB_FAILED };

struct job {
    struct cay_v1 *owner;
    char id[JOB_ID_LEN + 1];
    char template_id[CORE_NAME_SIZE];
    enum job_state state;
    uint64_t begun; /* order of begin */
    unsigned percent;
    uint64_t lines_total; /* ever; line i is in lines[i % CAY_V1_JOB_LINES] */
    char *lines[CAY_V1_JOB_LINES];
    char message[sizeof(((struct err *)NULL)->text)];
};

struct cay_v1 {
    struct job jobs[CAY_V1_JOBS];
    uint64_t jobs_begun;
};

static void job_clear(struct job *j)
{
    struct cay_v1 *owner = j->owner;

    for (size_t i = 0; i < CAY_V1_JOB_LINES; i++)
        free(j->lines[i]);
    memset(j, 0, sizeof(*j));
    j->owner = owner;
}

enum err_code cay_v1_new(struct core *core, const struct api_config *config, struct cay_v1 **out,
                         struct err *e)
{
    struct cay_v1 *v = calloc(1, sizeof(*v));
    enum err_code rc;

    if (!v)
        return err_set(e, ERR_EXHAUSTED, "no memory for /cay/v1");
    for (size_t i = 0; i < CAY_V1_JOBS; i++)
        v->jobs[i].owner = v;
    rc = cay_v1_ensure_operator_key(core, config->state_dir, e);
    if (rc != ERR_OK) {
        free(v);
        return rc;
    }
    *out = v;
    return ERR_OK;
}

void cay_v1_free(struct cay_v1 *v)
{
    if (!v)
        return;
    for (size_t i = 0; i < CAY_V1_JOBS; i++)
        job_clear(&v->jobs[i]);
    free(v);
}

/* -- templates --------------------------------------------------------------------------------- */

static json_t *limits_json(const struct privsep_limits *l)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:b}", "memoryBytes", (json_int_t)l->memory_bytes,
                     "diskBytes", (json_int_t)l->disk_bytes, "cpuMilli", (json_int_t)l->cpu_milli,
                     "pids", (json_int_t)l->pids, "seccompFilters", l->filters != 0);
}

static json_t *template_json(struct api_call *call, const struct template_info *t)
{
    json_t *made = t->made_real_ms ? api_json_time(t->made_real_ms) : json_null();
    struct privsep_limits limits = core_template_limits(call->core, t);

    return json_pack("{s:s, s:b, s:b, s:I, s:o, s:s, s:o, s:s, s:s, s:s, s:[]}", "id", t->id,
                     "ready", t->ready, "building", t->building, "sizeBytes",
                     (json_int_t)t->size_bytes, "madeAt", made, "note", t->note ? t->note : "",
                     "limits", limits_json(&limits), "source", t->source, "digest", t->digest,
                     "tenant", t->tenant, "tags");
}

static void add_public(void *arg, const struct core_public_template *t)
{
    json_array_append_new(arg, json_pack("{s:s, s:b, s:b, s:i, s:o, s:s, s:o, s:s, s:s, s:s, s:[]}",
                                         "id", t->name, "ready", 1, "building", 0, "sizeBytes", 0,
                                         "madeAt", api_json_time(t->s->made_real_ms), "note",
                                         "published by the operator", "limits",
                                         limits_json(&t->s->limits), "source", "", "digest", "",
                                         "tenant", t->s->tenant, "tags"));
}

struct build_list {
    struct api_call *call;
    json_t *out;
};

static void add_tag(void *arg, const char *tag)
{
    json_array_append_new(arg, json_string(tag));
}

/* A failed build has no template, and that of a published one stands in the list already. */
static bool add_build(void *arg, const struct build *b)
{
    const struct build_list *l = arg;
    const char *base = core_build_base(l->call->core, b);
    struct privsep_limits limits = {.memory_bytes = b->memory_bytes, .cpu_milli = b->cpu_milli};
    json_t *tags;

    if (b->state == BUILD_ERROR || core_template_is_public(l->call->core, b->tenant, b->name))
        return true;
    tags = json_array();
    core_build_each_tag(b, add_tag, tags);
    if (json_array_size(tags) == 0) { /* its files are gone: a newer one has each of its tags */
        json_decref(tags);
        return true;
    }
    json_array_append_new(
        l->out,
        json_pack("{s:s, s:b, s:b, s:i, s:o, s:o, s:o, s:s, s:s, s:s, s:o}", "id", b->name, "ready",
                  b->state == BUILD_READY, "building", b->state == BUILD_BUILDING, "sizeBytes", 0,
                  "madeAt", api_json_time(b->made_real_ms), "note",
                  json_sprintf("%s by the tenant %s%s%s",
                               b->state == BUILD_WAITING ? "asked for, and not begun," : "built",
                               b->tenant, base[0] ? ", stands on " : "", base),
                  "limits", limits_json(&limits), "source", "", "digest", "", "tenant", b->tenant,
                  "tags", tags));
    return true;
}

/* A create takes the name of a snapshot as any template's; those without one are in no list. */
static bool add_snapshot(void *arg, const struct snapshot *s)
{
    const struct build_list *l = arg;

    if (!s->name[0] || core_template_is_public(l->call->core, s->tenant, s->name))
        return true;
    json_array_append_new(l->out,
                          json_pack("{s:s, s:b, s:b, s:i, s:o, s:o, s:o, s:s, s:s, s:s, s:[]}",
                                    "id", s->name, "ready", 1, "building", 0, "sizeBytes", 0,
                                    "madeAt", api_json_time(s->made_real_ms), "note",
                                    json_sprintf("snapshot of the tenant %s, stands on %s",
                                                 s->tenant, s->template_id),
                                    "limits", limits_json(&s->limits), "source", "", "digest", "",
                                    "tenant", s->tenant, "tags"));
    return true;
}

void cay_v1_template_list(struct api_call *call)
{
    bool all = call->who.role == CORE_ROLE_OPERATOR;
    const char *tenant = all ? NULL : call->who.tenant;
    const struct template_info *items = NULL;
    size_t n = core_templates(call->core, all, &items);
    json_t *out = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(out, template_json(call, &items[i]));
    core_template_each_public(call->core, add_public, out);
    core_build_each(call->core, tenant, NULL, add_build, &(struct build_list){call, out});
    core_snapshot_each(call->core, tenant, NULL, NULL, add_snapshot,
                       &(struct build_list){call, out});
    api_reply_json(call, 200, out);
}

static bool read_limit(struct api_call *call, enum core_limit limit, int64_t *out)
{
    struct err e;

    if (json_get_int(call->body, core_limit_name(limit), NULL, JSON_OPTIONAL, INT64_MIN, INT64_MAX,
                     out, &e) == ERR_OK &&
        core_limit_check(limit, *out, true, &e) == ERR_OK)
        return true;
    api_fail_err(call, &e);
    return false;
}

/* All of them at once: an absent one or 0 means the server's. */
void cay_v1_template_limits(struct api_call *call)
{
    int64_t memory = 0, disk = 0, cpu = 0, pids = 0;
    bool filters = false;
    struct privsep_limits limits;
    struct err e;

    if (!api_call_body_of(call, "memoryBytes diskBytes cpuMilli pids seccompFilters"))
        return;
    if (!read_limit(call, CORE_LIMIT_MEMORY, &memory) ||
        !read_limit(call, CORE_LIMIT_DISK, &disk) || !read_limit(call, CORE_LIMIT_CPU, &cpu) ||
        !read_limit(call, CORE_LIMIT_PIDS, &pids))
        return;
    if (json_get_bool(call->body, "seccompFilters", NULL, JSON_OPTIONAL, &filters, &e) != ERR_OK) {
        api_fail_err(call, &e);
        return;
    }
    limits = (struct privsep_limits){.memory_bytes = (uint64_t)memory,
                                     .disk_bytes = (uint64_t)disk,
                                     .cpu_milli = (uint32_t)cpu,
                                     .pids = (uint32_t)pids,
                                     .filters = filters ? PRIVSEP_FILTERS : 0};
    if (core_template_set_limits(call->core, call->params[0], &limits, &e) != ERR_OK)
        api_fail_err(call, &e);
    else
        api_reply_empty(call, 204);
}

/* The image itself is left by root on this machine, under the number that is answered. */
void cay_v1_template_import(struct api_call *call)
{
    const char *source, *digest;
    uint32_t number = 0;
    struct err e;

    if (!api_call_body_of(call, "source digest"))
        return;
    if (json_get_str(call->body, "source", NULL, JSON_REQUIRED, CORE_IMAGE_SOURCE_SIZE - 1, &source,
                     &e) != ERR_OK ||
        json_get_str(call->body, "digest", NULL, JSON_REQUIRED, CORE_IMAGE_DIGEST_SIZE - 1, &digest,
                     &e) != ERR_OK ||
        core_template_import(call->core, call->params[0], source, digest, &number, &e) != ERR_OK)
        api_fail_err(call, &e);
    else
        api_reply_json(call, 201,
                       json_pack("{s:s, s:i}", "template", call->params[0], "number", (int)number));
}

static void template_removed(void *arg, const struct sandbox *s, const struct err *why)
{
    struct api_call *call = arg;

    if (why)
        api_fail_err(call, why);
    else
        api_reply_empty(call, 204);
}

static void snapshot_removed(void *arg, const struct err *why)
{
    template_removed(arg, NULL, why);
}

/* "name" or an id: all builds of it; "name:tag": that tag, and the build that has no other. */
static void remove_build(struct api_call *call, const char *name)
{
    const char *tenant = call->who.tenant;
    const struct build *b = strchr(name, ':') ? core_build_named(call->core, tenant, name) : NULL;
    struct err e = {.code = ERR_OK};
    json_t *tags;

    if (b) {
        tags = json_pack("[s]", strchr(name, ':') + 1);
        core_build_drop_tags(call->core, tenant, b->template_id, tags, &e);
        json_decref(tags);
    } else {
        core_build_delete(call->core, tenant, name, &e);
    }
    template_removed(call, NULL, e.code != ERR_OK ? &e : NULL);
}

static void remove_server_template(struct api_call *call, const char *name)
{
    if (call->who.role == CORE_ROLE_OPERATOR) {
        core_build_forget_steps(call->core, name);
        core_template_remove(call->core, name, template_removed, call);
    } else if (core_template_is_host(name)) {
        api_fail(call, 403, "template 'host' " CORE_HOST_STAYS);
    } else if (core_template_find(call->core, name)) {
        api_fail(call, 403,
                 "template '%.100s' is the server's, for all tenants: its operator removes it",
                 name);
    } else {
        api_fail(call, 404, "there is no template '%.100s' of this tenant's", name);
    }
}

/* A tenant's own comes before the server's, as for a create. */
void cay_v1_template_remove(struct api_call *call)
{
    const char *name = call->params[0], *tenant = call->who.tenant;
    const struct snapshot *s = core_snapshot_find(call->core, tenant, name);

    if (core_build_of_template(call->core, tenant, name))
        remove_build(call, name);
    else if (s && s->name[0])
        core_snapshot_delete(call->core, tenant, name, snapshot_removed, call);
    else
        remove_server_template(call, name);
}

/* -- jobs -------------------------------------------------------------------------------------- */

static void job_line(struct job *j, const char *text)
{
    char **line = &j->lines[j->lines_total % CAY_V1_JOB_LINES];

    free(*line);
    *line = strndup(text, JOB_LINE_BYTES);
    j->lines_total++;
}

static void job_progress(void *arg, unsigned percent, const char *text)
{
    struct job *j = arg;

    j->percent = MIN(percent, 100u);
    if (text && *text)
        job_line(j, text);
}

static void job_done(void *arg, const struct sandbox *s, const struct err *why)
{
    struct job *j = arg;

    j->state = why ? JOB_FAILED : JOB_DONE;
    if (!why) {
        j->percent = 100;
        return;
    }
    snprintf(j->message, sizeof(j->message), "%s", why->text);
    log_warn("building template %s failed: %s", j->template_id, why->text);
}

/* A free place, or that of the oldest job that has ended: a running one is never forgotten, since
 * core calls back with it. */
static struct job *job_new(struct cay_v1 *v)
{
    struct job *best = NULL;

    for (size_t i = 0; i < CAY_V1_JOBS; i++) {
        struct job *j = &v->jobs[i];

        if (j->state != JOB_RUNNING && (!best || j->begun < best->begun))
            best = j;
    }
    if (!best)
        return NULL;
    job_clear(best);
    ids_random_text(best->id, JOB_ID_LEN);
    best->state = JOB_RUNNING;
    best->begun = ++v->jobs_begun;
    return best;
}

static struct job *job_running(struct cay_v1 *v, const char *template_id)
{
    for (size_t i = 0; i < CAY_V1_JOBS; i++)
        if (v->jobs[i].state == JOB_RUNNING && strcmp(v->jobs[i].template_id, template_id) == 0)
            return &v->jobs[i];
    return NULL;
}

void cay_v1_template_build(struct api_call *call)
{
    struct cay_v1 *v = api_cay_v1(call->api);
    const struct template_info *t = core_template_find(call->core, call->params[0]);
    struct job *j;
    char id[JOB_ID_LEN + 1];

    if (!t) {
        api_fail(call, 404, "there is no recipe for a template \"%s\"", call->params[0]);
        return;
    }
    j = job_running(v, t->id);
    if (j) {
        api_reply_json(call, 200, json_pack("{s:s}", "job", j->id));
        return;
    }
    j = job_new(v);
    if (!j) {
        api_fail(call, 429, "%d builds are running; wait for one to end", CAY_V1_JOBS);
        return;
    }
    snprintf(j->template_id, sizeof(j->template_id), "%s", t->id);
    memcpy(id, j->id, sizeof(id));
    core_template_build(call->core, j->template_id, job_progress, job_done, j);
    api_reply_json(call, 202, json_pack("{s:s}", "job", id));
}

static json_t *job_json(const struct job *j, uint64_t offset)
{
    static const char *const names[] = {"", "running", "done", "failed"};
    uint64_t oldest = j->lines_total > CAY_V1_JOB_LINES ? j->lines_total - CAY_V1_JOB_LINES : 0;
    json_t *lines = json_array();

    offset = MIN(MAX(offset, oldest), j->lines_total);
    for (uint64_t i = offset; i < j->lines_total; i++) {
        const char *line = j->lines[i % CAY_V1_JOB_LINES];

        json_array_append_new(lines, json_string(line ? line : ""));
    }
    return json_pack("{s:s, s:s, s:s, s:i, s:I, s:I, s:o, s:s}", "id", j->id, "template",
                     j->template_id, "state", names[j->state], "percent", (int)j->percent, "offset",
                     (json_int_t)offset, "next", (json_int_t)j->lines_total, "lines", lines,
                     "message", j->message);
}

void cay_v1_job_get(struct api_call *call)
{
    struct cay_v1 *v = api_cay_v1(call->api);
    int64_t offset = 0;

    if (!api_call_query_int(call, "offset", 0, INT64_MAX, &offset))
        return;
    for (size_t i = 0; i < CAY_V1_JOBS; i++) {
        const struct job *j = &v->jobs[i];

        if (j->state != JOB_FREE && strcmp(j->id, call->params[0]) == 0) {
            api_reply_json(call, 200, job_json(j, (uint64_t)offset));
            return;
        }
    }
    api_fail(call, 404, "there is no job \"%s\" (any more)", call->params[0]);
}
