/* Building templates as E2B's SDKs do it: a build is asked for (its ids), started with its
 * steps, and watched by its status, which brings the log page by page. Tags are names of builds.
 * core runs the build (core/build.h). */
#include "api/e2b_build.h"

#include "api/e2b.h"
#include "api/e2b_build_spec.h"
#include "core/build_files.h"
#include "http/json.h"

#include <string.h>

#define MIB        (1024u * 1024u)
#define MEMORY_MAX (1024 * 1024) /* MiB; more than the server's own is cut, and said */
#define CPU_MAX    1024
#define TEXT_BYTES 8192

/* Text of a sandbox, whatever bytes it has. */
static json_t *text_json(const char *text)
{
    json_t *value = json_string(text);
    char *copy = value ? NULL : strdup(text);

    for (char *p = copy; p && *p; p++)
        *p = *p & (char)0x80 ? '?' : *p;
    if (!value)
        value = json_string(copy ? copy : "");
    free(copy);
    return value;
}

static void add_tag(void *arg, const char *tag)
{
    json_array_append_new(arg, json_string(tag));
}

static json_t *tags_json(const struct build *b)
{
    json_t *tags = json_array();

    core_build_each_tag(b, add_tag, tags);
    return tags;
}

/* -- a new one --------------------------------------------------------------------------------- */

void e2b_build_request(struct api_call *call)
{
    struct core_build_request r = {.tenant = call->who.tenant};
    const struct build *b = NULL;
    int64_t memory_mib = 0, cpus = 0;
    json_t *tags = NULL;
    struct err e;

    if (!api_call_body(call))
        return;
    if (json_get_str(call->body, "name", "alias", JSON_REQUIRED, CORE_NAME_SIZE + 64, &r.name,
                     &e) != ERR_OK ||
        json_get_arr(call->body, "tags", NULL, JSON_OPTIONAL, &tags, &e) != ERR_OK ||
        json_get_int(call->body, "memoryMB", NULL, JSON_OPTIONAL, 1, MEMORY_MAX, &memory_mib, &e) !=
            ERR_OK ||
        json_get_int(call->body, "cpuCount", NULL, JSON_OPTIONAL, 1, CPU_MAX, &cpus, &e) !=
            ERR_OK) {
        api_fail_err(call, &e);
        return;
    }
    r.tags = tags;
    r.memory_bytes = (uint64_t)memory_mib * MIB;
    r.cpu_milli = (uint32_t)cpus * 1000;
    if (core_build_new(call->core, &r, &b, &e) != ERR_OK)
        api_fail_err(call, &e);
    else
        api_reply_json(call, 202,
                       json_pack("{s:s, s:s, s:b, s:[s], s:[s], s:o}", "templateID", b->template_id,
                                 "buildID", b->id, "public",
                                 core_template_is_public(call->core, b->tenant, b->name), "aliases",
                                 b->name, "names", b->name, "tags", tags_json(b)));
}

void e2b_build_start(struct api_call *call)
{
    const char *tenant = call->who.tenant, *id = call->params[0], *build = call->params[1];
    struct build_spec spec;
    struct err e;

    if (!api_call_body(call))
        return;
    if (core_build_check_start(call->core, tenant, id, build, &e) != ERR_OK ||
        e2b_build_spec_read(call->body, &spec, &e) != ERR_OK ||
        core_build_start(call->core, tenant, id, build, &spec, &e) != ERR_OK)
        api_fail_err(call, &e);
    else
        api_reply_json(call, 202, json_object());
}

/* -- files of COPY steps ----------------------------------------------------------------------- */

/* The address is of the name by which the client reaches this server. */
void e2b_build_files(struct api_call *call)
{
    const char *id = call->params[0], *hash = call->params[1];
    char token[CORE_BUILD_UPLOAD_TOKEN];
    bool present = false;
    struct err e;

    if (!e2b_build_of(call, id)) {
        api_fail(call, 404, "template '%s' not found", id);
        return;
    }
    if (core_build_file_present(call->core, call->who.tenant, hash, &present, &e) != ERR_OK) {
        api_fail_err(call, &e);
        return;
    }
    core_build_upload_token(call->core, call->who.tenant, hash, token);
    api_reply_json(call, 201,
                   json_pack("{s:b, s:o}", "present", present, "url",
                             json_sprintf("%s://%s/templates/%s/files/%s?upload=%s",
                                          api_config_of(call->api)->https ? "https" : "http",
                                          call->request->host, e2b_build_of(call, id)->template_id,
                                          hash, token)));
}

void e2b_build_upload(struct api_call *call)
{
    api_fail(call, 400, "files are sent to the address that GET of this path gives");
}

/* -- its status -------------------------------------------------------------------------------- */

struct page {
    json_t *texts, *entries;
};

static void add_line(void *arg, const struct core_build_line *line)
{
    struct page *p = arg;

    json_array_append_new(p->texts, text_json(line->text));
    json_array_append_new(p->entries,
                          json_pack("{s:o, s:s, s:o, s:s}", "timestamp",
                                    api_json_time(line->at_real_ms), "level", line->level,
                                    "message", text_json(line->text), "step", line->step));
}

void e2b_build_status(struct api_call *call)
{
    const struct build *b = core_build_find(call->core, call->who.tenant, call->params[0],
                                            call->params[1]);
    int64_t offset = 0, limit = CORE_BUILD_LOG_PAGE;
    struct page p;
    json_t *out;

    if (!b) {
        api_fail(call, 404, "build '%s' of template '%s' not found", call->params[1],
                 call->params[0]);
        return;
    }
    if (!api_call_query_int(call, "logsOffset", 0, INT32_MAX, &offset) ||
        !api_call_query_int(call, "limit", 0, CORE_BUILD_LOG_PAGE, &limit))
        return;
    p = (struct page){json_array(), json_array()};
    core_build_log(call->core, b, (size_t)offset, (size_t)limit, add_line, &p);
    out = json_pack("{s:s, s:s, s:s, s:o, s:o}", "templateID", b->template_id, "buildID", b->id,
                    "status", core_build_state_name(b->state), "logs", p.texts, "logEntries",
                    p.entries);
    if (b->state == BUILD_ERROR)
        json_object_set_new(out, "reason",
                            json_pack("{s:o, s:s, s:[]}", "message", text_json(b->reason), "step",
                                      b->step, "logEntries"));
    api_reply_json(call, 200, out);
}

/* -- tags -------------------------------------------------------------------------------------- */

void e2b_tags_add(struct api_call *call)
{
    const struct build *b = NULL;
    const char *target = NULL;
    json_t *tags = NULL;
    struct err e;

    if (!api_call_body(call))
        return;
    if (json_get_str(call->body, "target", NULL, JSON_REQUIRED, TEXT_BYTES, &target, &e) !=
            ERR_OK ||
        json_get_arr(call->body, "tags", NULL, JSON_REQUIRED, &tags, &e) != ERR_OK ||
        core_build_add_tags(call->core, call->who.tenant, target, tags, &b, &e) != ERR_OK)
        api_fail_err(call, &e);
    else
        api_reply_json(call, 201, json_pack("{s:s, s:o}", "buildID", b->id, "tags", tags_json(b)));
}

void e2b_tags_drop(struct api_call *call)
{
    const char *name = NULL;
    json_t *tags = NULL;
    struct err e;

    if (!api_call_body(call))
        return;
    if (json_get_str(call->body, "name", NULL, JSON_REQUIRED, TEXT_BYTES, &name, &e) != ERR_OK ||
        json_get_arr(call->body, "tags", NULL, JSON_REQUIRED, &tags, &e) != ERR_OK ||
        core_build_drop_tags(call->core, call->who.tenant, name, tags, &e) != ERR_OK)
        api_fail_err(call, &e);
    else
        api_reply_empty(call, 204);
}

struct tag_list {
    json_t *out;
    const struct build *b;
};

static void add_listed_tag(void *arg, const char *tag)
{
    struct tag_list *l = arg;

    json_array_append_new(l->out, json_pack("{s:s, s:s, s:o}", "tag", tag, "buildID", l->b->id,
                                            "createdAt", api_json_time(l->b->made_real_ms)));
}

static bool add_tags_of(void *arg, const struct build *b)
{
    if (b->state == BUILD_READY)
        core_build_each_tag(b, add_listed_tag, &(struct tag_list){arg, b});
    return true;
}

void e2b_tags_list(struct api_call *call)
{
    const struct build *b = e2b_build_of(call, call->params[0]);
    const struct template_info *t = core_template_find(call->core, call->params[0]);
    json_t *out;

    if (!b && !t) {
        api_fail(call, 404, "template '%s' not found", call->params[0]);
        return;
    }
    out = json_array();
    if (b)
        core_build_each(call->core, call->who.tenant, b->template_id, add_tags_of, out);
    else
        json_array_append_new(out,
                              json_pack("{s:s, s:s, s:o}", "tag", CORE_BUILD_TAG, "buildID",
                                        E2B_NO_BUILD, "createdAt", api_json_time(t->made_real_ms)));
    api_reply_json(call, 200, out);
}

/* -- the list ---------------------------------------------------------------------------------- */

struct search {
    const char *name;
    const struct build *ready, *any;
};

static bool see_build(void *arg, const struct build *b)
{
    struct search *s = arg;

    if (strcmp(b->name, s->name) != 0 && strcmp(b->template_id, s->name) != 0)
        return true;
    if (!s->any)
        s->any = b;
    if (!s->ready && b->state == BUILD_READY && b->snapshot[0])
        s->ready = b;
    return !s->ready;
}

const struct build *e2b_build_of(struct api_call *call, const char *name)
{
    struct search s = {.name = name};

    core_build_each(call->core, call->who.tenant, NULL, see_build, &s);
    return s.ready ? s.ready : s.any;
}

struct count {
    size_t n;
};

static bool count_one(void *arg, const struct build *b)
{
    ++((struct count *)arg)->n;
    return true;
}

json_t *e2b_build_template_json(struct api_call *call, const struct build *b)
{
    const struct privsep_limits *l = &api_config_of(call->api)->limits;
    uint64_t memory = b->memory_bytes ? MIN(b->memory_bytes, l->memory_bytes) : l->memory_bytes;
    uint32_t cpu = b->cpu_milli ? MIN(b->cpu_milli, l->cpu_milli) : l->cpu_milli;
    struct count count = {0};
    json_t *out;

    core_build_each(call->core, b->tenant, b->template_id, count_one, &count);
    out = json_pack("{s:s, s:s, s:I, s:I, s:I, s:b, s:[s], s:[s]}", "templateID", b->template_id,
                    "buildID", b->id, "cpuCount", (json_int_t)MAX(1, (cpu + 999) / 1000),
                    "memoryMB", (json_int_t)(memory / MIB), "diskSizeMB",
                    (json_int_t)(l->disk_bytes / MIB), "public",
                    core_template_is_public(call->core, b->tenant, b->name), "aliases", b->name,
                    "names", b->name);
    json_object_set_new(out, "createdAt", api_json_time(b->made_real_ms));
    json_object_set_new(out, "updatedAt",
                        api_json_time(b->ended_real_ms ? b->ended_real_ms : b->made_real_ms));
    json_object_set_new(out, "createdBy", json_null());
    json_object_set_new(out, "lastSpawnedAt", json_null());
    json_object_set_new(out, "spawnCount", json_integer(0));
    json_object_set_new(out, "buildCount", json_integer((json_int_t)count.n));
    json_object_set_new(out, "envdVersion", json_string(API_ENVD_VERSION));
    json_object_set_new(out, "buildStatus", json_string(core_build_state_name(b->state)));
    return out;
}

struct listing {
    struct api_call *call;
    json_t *out, *seen;
};

static bool list_one(void *arg, const struct build *b)
{
    struct listing *l = arg;

    if (json_object_get(l->seen, b->template_id))
        return true;
    json_object_set_new(l->seen, b->template_id, json_true());
    json_array_append_new(l->out,
                          e2b_build_template_json(l->call, e2b_build_of(l->call, b->template_id)));
    return true;
}

/* A snapshot's name has no build to tell of. */
static json_t *published_snapshot_json(const struct snapshot *s)
{
    const struct privsep_limits *l = &s->limits;
    json_t *out = json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:b, s:[s], s:[s]}", "templateID", s->name, "buildID",
        E2B_NO_BUILD, "cpuCount", (json_int_t)MAX(1u, (l->cpu_milli + 999) / 1000), "memoryMB",
        (json_int_t)(l->memory_bytes / MIB), "diskSizeMB", (json_int_t)(l->disk_bytes / MIB),
        "public", 1, "aliases", s->name, "names", s->name);

    json_object_set_new(out, "createdAt", api_json_time(s->made_real_ms));
    json_object_set_new(out, "updatedAt", api_json_time(s->made_real_ms));
    json_object_set_new(out, "createdBy", json_null());
    json_object_set_new(out, "lastSpawnedAt", json_null());
    json_object_set_new(out, "spawnCount", json_integer(0));
    json_object_set_new(out, "buildCount", json_integer(1));
    json_object_set_new(out, "envdVersion", json_string(API_ENVD_VERSION));
    json_object_set_new(out, "buildStatus", json_string("ready"));
    return out;
}

json_t *e2b_build_public_json(struct api_call *call, const struct core_public_template *t)
{
    return t->b ? e2b_build_template_json(call, t->b) : published_snapshot_json(t->s);
}

/* Builds of one's own are there already. */
static void list_public(void *arg, const struct core_public_template *t)
{
    struct listing *l = arg;

    if (!t->b || strcmp(t->b->tenant, l->call->who.tenant) != 0)
        json_array_append_new(l->out, e2b_build_public_json(l->call, t));
}

void e2b_build_list(struct api_call *call, json_t *out)
{
    struct listing l = {call, out, json_object()};

    core_build_each(call->core, call->who.tenant, NULL, list_one, &l);
    core_template_each_public(call->core, list_public, &l);
    json_decref(l.seen);
}

static bool add_build(void *arg, const struct build *b)
{
    json_t *one = json_pack("{s:s, s:s, s:o, s:o}", "buildID", b->id, "status",
                            core_build_state_name(b->state), "createdAt",
                            api_json_time(b->made_real_ms), "updatedAt",
                            api_json_time(b->ended_real_ms ? b->ended_real_ms : b->made_real_ms));

    json_object_set_new(one, "cpuCount", json_integer(MAX(1, (b->cpu_milli + 999) / 1000)));
    json_object_set_new(one, "memoryMB", json_integer((json_int_t)(b->memory_bytes / MIB)));
    json_object_set_new(one, "envdVersion", json_string(API_ENVD_VERSION));
    json_array_append_new(arg, one);
    return true;
}

void e2b_build_add_all(struct api_call *call, const char *template_id, json_t *out)
{
    json_t *all = json_array();

    core_build_each(call->core, call->who.tenant, template_id, add_build, all);
    json_object_set_new(out, "builds", all);
}
