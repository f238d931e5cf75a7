/* Takes /init, which cayd sends once the sandbox has an owner: environment, user and limits. Also
 * answers /health and /envs. */

#include "agent/common/agent.h"
#include "agent/files/volume_files.h"
#include "agent/generation.h"
#include "agent/start_command.h"
#include "agent/trust.h"
#include "agent/volumes.h"

#include "base/clock.h"
#include "base/io.h"
#include "http/json.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define INIT_BODY_MAX  (2u * 1024u * 1024u)
#define INIT_ENVS_MAX  4096
#define INIT_ENVS_SIZE (1024u * 1024u)
#define OUTPUT_MAX     (INT64_C(1) << 40)
#define INIT_RUN_DIR   "/run/e2b"
#define SANDBOX_ID     "E2B_SANDBOX_ID"

static const struct http_header protocol_headers[] = {
    {AGENT_PROTOCOL_HEADER, AGENT_PROTOCOL},
    {"Cache-Control", "no-store"},
};

void health_get(struct http_exchange *x, struct agent *a UNUSED)
{
    http_respond(x, 204, protocol_headers, ARRAY_SIZE(protocol_headers), NULL, 0);
}

void envs_get(struct http_exchange *x, struct agent *a)
{
    static const struct http_header headers[] = {
        {"Content-Type", "application/json"},
        {"Cache-Control", "no-store"},
    };
    CLEANUP_FREE char *body = json_dumps(a->env, JSON_COMPACT);

    if (body)
        http_respond(x, 200, headers, ARRAY_SIZE(headers), body, strlen(body));
    else
        http_respond_error(x, 500, "out of memory");
}

/* Best effort: a template may have no /run. No link is followed. */
static void publish(const struct agent *a, const char *dir_path, const char *file, unsigned mode,
                    const char *text)
{
    CLEANUP_CLOSE int dir = -1;
    CLEANUP_CLOSE int fd = -1;

    if (!text || a->id[0] == '\0' || a->command_sandbox)
        return;
    if (mkdir(dir_path, 0755) < 0 && errno != EEXIST)
        return;
    dir = open(dir_path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0)
        return;
    (void)unlinkat(dir, file, 0);
    fd = openat(dir, file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd >= 0)
        (void)!io_write_full(fd, text, strlen(text));
}

/* Programs inside learn from /run/e2b/.E2B_* where they run, also when their environment was
 * cleared. */
static void publish_fact(const struct agent *a, const char *name, const char *file)
{
    publish(a, INIT_RUN_DIR, file, 0644, json_string_value(json_object_get(a->env, name)));
}

/* A program that has begun under another id, as one of a template's memory has, sees none of what
 * the create gave: it finds that here. /run is in memory, so that it is in no snapshot's files.
 * Before the id, which tells that it is there. */
static void publish_environment(const struct agent *a, const json_t *before)
{
    const char *was = json_string_value(json_object_get(before, SANDBOX_ID));
    const char *now = json_string_value(json_object_get(a->env, SANDBOX_ID));
    CLEANUP_FREE char *text = was && now && strcmp(was, now) != 0 ? json_dumps(a->env, JSON_COMPACT)
                                                                  : NULL;

    publish(a, GENERATION_DIR, "environment.json", 0600, text);
}

static enum err_code check_env(const json_t *env, struct err *e)
{
    return json_check_env(env, "envVars", INIT_ENVS_MAX, INIT_ENVS_SIZE, e);
}

struct init {
    json_t *env, *volumes;
    const char *user, *workdir, *authority;
    int64_t at_real_ms;    /* 0: not told */
    int64_t start_wait_ms; /* for the start command's port; 0: not told */
    bool start_command, start_must_run, serve_volume;
    bool new_files; /* no program was run on them: places of volumes may be cleared */
    struct agent_limits limits;
};

static enum err_code read_limits(const json_t *body, struct agent_limits *out, struct err *e)
{
    json_t *limits = NULL;
    int64_t memory = 0, disk = 0, cpu = 0, output = 0;

    if (json_get_obj(body, "limits", NULL, JSON_OPTIONAL, &limits, e) != ERR_OK)
        return e->code;
    if (!limits)
        return ERR_OK;
    if (json_get_int(limits, "memoryBytes", NULL, JSON_OPTIONAL, 0, INT64_MAX, &memory, e) !=
            ERR_OK ||
        json_get_int(limits, "diskBytes", NULL, JSON_OPTIONAL, 0, INT64_MAX, &disk, e) != ERR_OK ||
        json_get_int(limits, "cpuMilli", NULL, JSON_OPTIONAL, 0, UINT32_MAX, &cpu, e) != ERR_OK ||
        json_get_int(limits, "outputBytesPerSecond", NULL, JSON_OPTIONAL, 0, OUTPUT_MAX, &output,
                     e) != ERR_OK)
        return e->code;
    *out = (struct agent_limits){(uint64_t)memory, (uint64_t)disk, (uint32_t)cpu, (uint64_t)output};
    return ERR_OK;
}

static void set_limits(struct agent *a, const struct agent_limits *to)
{
    if (to->memory_bytes)
        a->limits.memory_bytes = to->memory_bytes;
    if (to->disk_bytes)
        a->limits.disk_bytes = to->disk_bytes;
    if (to->cpu_milli)
        a->limits.cpu_milli = to->cpu_milli;
    if (to->output_bytes_per_second)
        process_limit_output(a, to->output_bytes_per_second);
}

enum err_code init_set_limits(struct agent *a, const json_t *body, struct err *e)
{
    struct agent_limits to = {0};
    enum err_code code = read_limits(body, &to, e);

    if (code == ERR_OK)
        set_limits(a, &to);
    return code;
}

static enum err_code read_init(const json_t *body, struct init *in, struct err *e)
{
    const char *timestamp = NULL;

    if (json_get_obj(body, "envVars", NULL, JSON_OPTIONAL, &in->env, e) != ERR_OK ||
        json_get_str(body, "defaultUser", NULL, JSON_OPTIONAL, AGENT_NAME_SIZE - 1, &in->user, e) !=
            ERR_OK ||
        json_get_str(body, "defaultWorkdir", NULL, JSON_OPTIONAL, AGENT_PATH_SIZE - 1, &in->workdir,
                     e) != ERR_OK ||
        json_get_str(body, "caBundle", NULL, JSON_OPTIONAL, TRUST_PEM_MAX, &in->authority, e) !=
            ERR_OK ||
        json_get_str(body, "timestamp", NULL, JSON_OPTIONAL, 64, &timestamp, e) != ERR_OK ||
        json_get_int(body, "startWaitMs", NULL, JSON_OPTIONAL, 0, INT32_MAX, &in->start_wait_ms,
                     e) != ERR_OK ||
        json_get_arr(body, "volumes", NULL, JSON_OPTIONAL, &in->volumes, e) != ERR_OK ||
        json_get_bool(body, "startMustRun", NULL, JSON_OPTIONAL, &in->start_must_run, e) !=
            ERR_OK ||
        json_get_bool(body, "startCommand", NULL, JSON_OPTIONAL, &in->start_command, e) != ERR_OK ||
        json_get_bool(body, "newFiles", NULL, JSON_OPTIONAL, &in->new_files, e) != ERR_OK ||
        json_get_bool(body, "serveVolume", NULL, JSON_OPTIONAL, &in->serve_volume, e) != ERR_OK ||
        read_limits(body, &in->limits, e) != ERR_OK)
        return e->code;
    if (in->env && check_env(in->env, e) != ERR_OK)
        return e->code;
    if (timestamp && clock_parse_rfc3339(timestamp, &in->at_real_ms) < 0)
        return err_set(e, ERR_INVALID, "timestamp '%s' is not an RFC 3339 time", timestamp);
    return ERR_OK;
}

/* The environment is replaced as a whole; an empty user or directory leaves what was there. */
static void apply(struct agent *a, const struct init *in)
{
    if (in->env) {
        json_t *before = a->env;

        a->env = json_incref(in->env);
        publish_environment(a, before);
        json_decref(before);
        publish_fact(a, "E2B_SANDBOX", ".E2B_SANDBOX");
        publish_fact(a, SANDBOX_ID, ".E2B_SANDBOX_ID");
        publish_fact(a, "E2B_TEMPLATE_ID", ".E2B_TEMPLATE_ID");
    }
    if (in->user && in->user[0])
        snprintf(a->default_user, sizeof(a->default_user), "%s", in->user);
    if (in->workdir && in->workdir[0])
        snprintf(a->default_workdir, sizeof(a->default_workdir), "%s", in->workdir);
    if (in->authority)
        trust_install(a, in->authority);
    set_limits(a, &in->limits);
}

static void answer_init(struct http_exchange *x)
{
    http_respond(x, 204, protocol_headers, ARRAY_SIZE(protocol_headers), NULL, 0);
}

static void serve_volume(struct http_exchange *x, struct agent *a)
{
    int r = volume_files_begin(a);

    if (r < 0)
        http_respond_error(x, 500, "the volume cannot be served: %s", strerror(-r));
    else
        answer_init(x);
}

static void init_read(struct http_exchange *x, char *text, size_t len)
{
    struct agent *a = http_exchange_get(x);
    struct init in = {.start_command = true};
    json_t *body = NULL;
    struct err e;

    if (json_parse(text, len, true, &body, &e) != ERR_OK || read_init(body, &in, &e) != ERR_OK) {
        http_respond_error(x, 400, "%s", e.text);
    } else if (in.serve_volume) {
        serve_volume(x, a);
    } else if (volumes_link(in.volumes, in.new_files, &e) != ERR_OK) {
        http_respond_error(x, 409, "%s", e.text);
    } else {
        /* A late copy of an older call changes nothing. */
        if (in.at_real_ms == 0 || in.at_real_ms > a->init_real_ms) {
            apply(a, &in);
            a->init_real_ms = MAX(a->init_real_ms, in.at_real_ms);
        }
        struct start_request start = {.variables_alone = !in.start_command,
                                      .wait_ms = (uint64_t)in.start_wait_ms,
                                      .must_run = in.start_must_run,
                                      .answer = answer_init};

        if (!start_command_run(a, &start, x))
            answer_init(x);
    }
    json_decref(body);
}

void init_post(struct http_exchange *x, struct agent *a UNUSED)
{
    http_body_collect(x, INIT_BODY_MAX, init_read);
}
