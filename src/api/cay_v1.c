/* The routes of /cay/v1 that need little: status, templates and the jobs that build them, one
 * sandbox as the command line sees it. Larger ones have files of their own (cay_v1_*.c). A
 * build outlives its request: it is a job in a fixed number of places, followed by its number;
 * a place is given anew only when its job has ended. */

#include "api/cay_v1.h"

#include "api/e2b.h"
#include "api/openmetrics.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "http/json.h"

#include <errno.h>
#include <fcntl.h>
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
    struct core *core;
    struct job jobs[CAY_V1_JOBS];
    uint64_t jobs_begun;
};

/* -- the operator's key ------------------------------------------------------------------------ */

/* Does the file hold a key of the operator's that is still good? */
static bool key_is_good(struct core *core, int dir)
{
    struct core_identity who;
    char key[CORE_TOKEN_SIZE];
    bool good = io_read_text_at(dir, CAY_V1_KEY_FILE, key, sizeof(key)) > 0 &&
                core_authenticate(core, key, &who, NULL) == ERR_OK &&
                who.role == CORE_ROLE_OPERATOR;

    explicit_bzero(key, sizeof(key));
    return good;
}

static enum err_code ensure_key(struct core *core, const char *state_dir, struct err *e)
{
    CLEANUP_CLOSE int dir = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    static const struct core_identity operator= {CORE_OPERATOR_TENANT, CORE_ROLE_OPERATOR};
    char key[CORE_TOKEN_SIZE], line[CORE_TOKEN_SIZE + 1];
    enum err_code rc;
    int err;

    if (dir < 0)
        return err_set_sys(e, ERR_INTERNAL, errno, "cannot open the state directory %s", state_dir);
    if (key_is_good(core, dir))
        return ERR_OK;
    rc = core_key_create(core, &operator, "made at start", key, e);
    if (rc != ERR_OK)
        return rc;
    snprintf(line, sizeof(line), "%s\n", key);
    err = io_replace_file_at(dir, CAY_V1_KEY_FILE, line, strlen(line), 0600);
    explicit_bzero(key, sizeof(key));
    explicit_bzero(line, sizeof(line));
    if (err < 0)
        return err_set_sys(e, ERR_INTERNAL, err, "cannot write %s/%s", state_dir, CAY_V1_KEY_FILE);
    log_info("made the operator's key: %s/%s", state_dir, CAY_V1_KEY_FILE);
    return ERR_OK;
}

enum err_code cay_v1_new(struct core *core, const struct api_config *config, struct cay_v1 **out,
                         struct err *e)
{
    struct cay_v1 *v = calloc(1, sizeof(*v));
    enum err_code rc;

    if (!v)
        return err_set(e, ERR_EXHAUSTED, "no memory for /cay/v1");
    v->core = core;
    for (size_t i = 0; i < CAY_V1_JOBS; i++)
        v->jobs[i].owner = v;
    rc = ensure_key(core, config->state_dir, e);
    if (rc != ERR_OK) {
        free(v);
        return rc;
    }
    *out = v;
    return ERR_OK;
}

static void job_clear(struct job *j)
{
    struct cay_v1 *owner = j->owner;

    for (size_t i = 0; i < CAY_V1_JOB_LINES; i++)
        free(j->lines[i]);
    memset(j, 0, sizeof(*j));
    j->owner = owner;
}

void cay_v1_free(struct cay_v1 *v)
{
    if (!v)
        return;
    for (size_t i = 0; i < CAY_V1_JOBS; i++)
        job_clear(&v->jobs[i]);
    free(v);
}

/* -- status ------------------------------------------------------------------------------------ */

static void status_done(void *arg, const struct core_status *s)
{
    struct api_call *call = arg;
    int64_t up_s = (clock_real_ms() - s->started_real_ms) / 1000;
    bool operates = call->who.role == CORE_ROLE_OPERATOR;
    /* How many others have is nothing that a tenant is told. */
    size_t sandboxes = operates ? s->sandboxes
                                : core_tenant_sandboxes(call->core, call->who.tenant);
    json_t *out = json_object();

    json_object_set_new(out, "version", json_string(CAY_VERSION));
    json_object_set_new(out, "ready", json_boolean(s->ready));
    json_object_set_new(out, "privd", json_boolean(s->privd_up));
    json_object_set_new(out, "tenant", json_string(call->who.tenant));
    json_object_set_new(out, "operator", json_boolean(operates));
    json_object_set_new(out, "role", json_string(core_role_name(call->who.role)));
    json_object_set_new(out, "domain", json_string(api_config_of(call->api)->domain));
    json_object_set_new(out, "startedAt", api_json_time(s->started_real_ms));
    json_object_set_new(out, "uptimeSeconds", json_integer(MAX(0, up_s)));
    json_object_set_new(out, "sandboxes", json_integer((json_int_t)sandboxes));
    json_object_set_new(out, "slots",
                        json_pack("{s:I, s:I}", "max", (json_int_t)s->slots_max, "ready",
                                  (json_int_t)s->slots_ready));
    json_object_set_new(out, "disk",
                        json_pack("{s:s, s:I, s:I}", "backend", s->disk_backend, "totalBytes",
                                  (json_int_t)s->disk_total_bytes, "freeBytes",
                                  (json_int_t)s->disk_free_bytes));
    api_reply_json(call, 200, out);
}

static void status(struct api_call *call)
{
    core_status(call->core, status_done, call);
}

static void health(struct api_call *call)
{
    if (core_is_ready(call->core))
        api_reply_json(call, 200, json_pack("{s:s}", "status", "ok"));
    else
        api_fail(call, 503, "cay-privd does not answer; no sandbox can be made or reached now");
}

/* -- templates and jobs ------------------------------------------------------------------------ */

static json_t *limits_json(struct api_call *call, const struct template_info *t)
{
    struct privsep_limits l = core_template_limits(call->core, t);

    return json_pack("{s:I, s:I, s:I, s:I, s:b}", "memoryBytes", (json_int_t)l.memory_bytes,
                     "diskBytes", (json_int_t)l.disk_bytes, "cpuMilli", (json_int_t)l.cpu_milli,
                     "pids", (json_int_t)l.pids, "seccompFilters", l.filters != 0);
}

static void templates(struct api_call *call)
{
    const struct template_info *items = NULL;
    size_t n = core_templates(call->core, &items);
    json_t *out = json_array();

    for (size_t i = 0; i < n; i++) {
        const struct template_info *t = &items[i];
        json_t *made = t->made_real_ms ? api_json_time(t->made_real_ms) : json_null();

        json_array_append_new(out, json_pack("{s:s, s:b, s:b, s:I, s:o, s:s, s:o, s:s, s:s}", "id",
                                             t->id, "ready", t->ready, "building", t->building,
                                             "sizeBytes", (json_int_t)t->size_bytes, "madeAt", made,
                                             "note", t->note ? t->note : "", "limits",
                                             limits_json(call, t), "source", t->source, "digest",
                                             t->digest));
    }
    api_reply_json(call, 200, out);
}

static bool read_limit(struct api_call *call, const char *name, int64_t max, int64_t *out)
{
    struct err e;

    if (json_get_int(call->body, name, NULL, JSON_OPTIONAL, 0, max, out, &e) == ERR_OK)
        return true;
    api_fail_err(call, &e);
    return false;
}

static const char *unknown_limit(const json_t *body)
{
    static const char *const known[] = {"memoryBytes", "diskBytes", "cpuMilli", "pids",
                                        "seccompFilters"};
    const char *name;
    json_t *value;

    json_object_foreach ((json_t *)(uintptr_t)body, name, value) {
        bool found = false;

        for (size_t i = 0; i < ARRAY_SIZE(known); i++)
            found |= strcmp(name, known[i]) == 0;
        if (!found)
            return name;
    }
    return NULL;
}

/* All of them at once: an absent one or 0 means the server's. */
static void template_limits(struct api_call *call)
{
    int64_t memory = 0, disk = 0, cpu = 0, pids = 0;
    bool filters = false;
    struct privsep_limits limits;
    struct err e;

    if (!api_call_body(call))
        return;
    if (unknown_limit(call->body)) {
        api_fail(call, 400,
                 "\"%.64s\" is none of memoryBytes, diskBytes, cpuMilli, pids and seccompFilters",
                 unknown_limit(call->body));
        return;
    }
    if (!read_limit(call, "memoryBytes", INT64_MAX, &memory) ||
        !read_limit(call, "diskBytes", INT64_MAX, &disk) ||
        !read_limit(call, "cpuMilli", UINT32_MAX, &cpu) ||
        !read_limit(call, "pids", UINT32_MAX, &pids))
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

static void template_build(struct api_call *call)
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

/* The image itself is left by root on this machine, under the number that is answered. */
static void template_import(struct api_call *call)
{
    const char *source, *digest;
    uint32_t number = 0;
    struct err e;

    if (!api_call_body(call))
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

static void job_get(struct api_call *call)
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

static void template_removed(void *arg, const struct sandbox *s, const struct err *why)
{
    struct api_call *call = arg;

    if (why)
        api_fail_err(call, why);
    else
        api_reply_empty(call, 204);
}

static void template_remove(struct api_call *call)
{
    core_template_remove(call->core, call->params[0], template_removed, call);
}

/* -- one sandbox ------------------------------------------------------------------------------- */

/* In the words of a create. */
static json_t *host_mounts_json(const struct sandbox *s)
{
    json_t *all = json_array(), *m;
    size_t i;

    json_array_foreach (s->volumes, i, m)
        if (json_object_get(m, "host"))
            json_array_append_new(all, json_pack("{s:O, s:O}", "name", json_object_get(m, "name"),
                                                 "path", json_object_get(m, "path")));
    return all;
}

static void sandbox_get(struct api_call *call)
{
    const struct sandbox *s = core_sandbox_find(call->core, call->who.tenant, call->params[0]);
    char note[256] = "";
    const struct privsep_limits *l;

    if (!s) {
        api_fail(call, 404, "there is no sandbox \"%s\" of yours", call->params[0]);
        return;
    }
    l = &s->limits;
    if (strcmp(s->template_id, s->template_requested) != 0 && s->template_requested[0] &&
        !ids_is_snapshot(s->template_requested))
        snprintf(note, sizeof(note), "%.100s was not built when this was created: it runs %.100s",
                 s->template_requested, s->template_id);
    api_reply_json(
        call, 200,
        json_pack(
            "{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:b, s:o, s:o}",
            "id", s->id, "state", e2b_state_name(s->state), "reason",
            core_pause_reason_name(s->pause_reason), "tier", core_pause_tier_name(s),
            "templateAsked", s->template_requested, "templateID", s->template_id, "note", note,
            "level", privsep_level_name(s->level), "cpuMilli", (json_int_t)l->cpu_milli,
            "memoryBytes", (json_int_t)l->memory_bytes, "diskBytes", (json_int_t)l->disk_bytes,
            "pids", (json_int_t)l->pids, "openFiles", (json_int_t)l->open_files, "seccompFilters",
            l->filters != 0, "idle", cay_v1_idle_json(s), "hostMounts", host_mounts_json(s)));
}

const struct api_route cay_v1_routes[] = {
    {API_OPEN, "GET", "/health", health},
    {API_OPERATE, "GET", "/metrics", api_openmetrics},
    {API_READ, "GET", "/cay/v1/status", status},
    {API_READ, "GET", "/cay/v1/templates", templates},
    {API_OPERATE, "POST", "/cay/v1/templates/{name}/build", template_build},
    {API_OPERATE, "POST", "/cay/v1/templates/{name}/import", template_import},
    {API_OPERATE, "PUT", "/cay/v1/templates/{name}/limits", template_limits},
    {API_OPERATE, "DELETE", "/cay/v1/templates/{name}", template_remove},
    {API_OPERATE, "GET", "/cay/v1/jobs/{job}", job_get},
    {API_READ, "GET", "/cay/v1/keys", cay_v1_key_list},
    {API_WRITE, "POST", "/cay/v1/keys", cay_v1_key_create},
    {API_WRITE, "DELETE", "/cay/v1/keys/{id}", cay_v1_key_revoke},
    {API_OPERATE, "GET", "/cay/v1/tenants", cay_v1_tenant_list},
    {API_READ, "GET", "/cay/v1/tenants/{tenant}/ceiling", cay_v1_ceiling_get},
    {API_OPERATE, "PUT", "/cay/v1/tenants/{tenant}/ceiling", cay_v1_ceiling_put},
    {API_OPERATE, "DELETE", "/cay/v1/tenants/{tenant}/ceiling", cay_v1_ceiling_remove},
    {API_READ, "GET", "/cay/v1/tenants/{tenant}/quota", cay_v1_quota_get},
    {API_OPERATE, "PATCH", "/cay/v1/tenants/{tenant}/quota", cay_v1_quota_set},
    {API_READ, "GET", "/cay/v1/tenants/{tenant}/usage", cay_v1_usage_get},
    {API_WRITE, "POST", "/cay/v1/sandboxes", e2b_sandbox_create_cay},
    {API_READ, "GET", "/cay/v1/sandboxes/{id}", sandbox_get},
    {API_WRITE, "POST", "/cay/v1/sandboxes/{id}/pause", e2b_sandbox_pause},
    {API_WRITE, "POST", "/cay/v1/sandboxes/{id}/resume", e2b_sandbox_resume},
    {API_WRITE, "POST", "/cay/v1/sandboxes/{id}/rollback", cay_v1_rollback},
    {API_READ, "GET", "/cay/v1/sandboxes/{id}/policy", cay_v1_policy_get},
    {API_WRITE, "PUT", "/cay/v1/sandboxes/{id}/policy", cay_v1_policy_put},
    {API_READ, "POST", "/cay/v1/sandboxes/{id}/policy/explain", cay_v1_policy_explain},
    {API_READ, "POST", "/cay/v1/policies/check", cay_v1_policy_check},
    {API_READ, "GET", "/cay/v1/sandboxes/{id}/denials", cay_v1_denials},
    {API_READ, "GET", "/cay/v1/sandboxes/{id}/asks", cay_v1_asks},
    {API_WRITE, "POST", "/cay/v1/sandboxes/{id}/asks/{ask}", cay_v1_ask_answer},
    {API_WRITE, "POST", "/cay/v1/sandboxes/{id}/exec", cay_v1_exec},
    {API_WRITE, "POST", "/cay/v1/secrets", cay_v1_secret_set},
    {API_READ, "GET", "/cay/v1/secrets", cay_v1_secret_list},
    {API_WRITE, "DELETE", "/cay/v1/secrets/{name}", cay_v1_secret_remove},
    {API_WRITE, "POST", "/cay/v1/volumes", cay_v1_volume_create},
    {API_READ, "GET", "/cay/v1/volumes", cay_v1_volume_list},
    {API_WRITE, "DELETE", "/cay/v1/volumes/{name}", cay_v1_volume_remove},
    {API_READ, "GET", "/cay/v1/events", cay_v1_events},
    {API_READ, "GET", "/cay/v1/webhooks", cay_v1_webhook_list},
    {API_WRITE, "POST", "/cay/v1/webhooks", cay_v1_webhook_create},
    {API_WRITE, "DELETE", "/cay/v1/webhooks/{id}", cay_v1_webhook_remove},
    {API_READ, "GET", "/cay/v1/webhooks/{id}/deliveries", cay_v1_webhook_deliveries},
    {API_WRITE, "POST", "/cay/v1/webhooks/{id}/ping", cay_v1_webhook_ping},
    {API_WRITE, "POST", "/cay/v1/webhooks/{id}/retry", cay_v1_webhook_retry},
    {API_READ, "GET", "/cay/v1/audit", cay_v1_audit},
    {API_OPERATE, "GET", "/cay/v1/audit/verify", cay_v1_audit_verify},
    {0},
};
