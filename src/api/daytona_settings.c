/* Daytona's calls about one sandbox that exists: its labels and intervals, who may ask its ports,
 * the key of signed URLs of its files, and its metrics. Each handler finds the sandbox among those
 * of the caller's tenant (daytona_find answers where there is none), calls core and answers in
 * Daytona's shape; none waits. Addresses are in daytona_address.c, the network settings in
 * daytona_network.c. */

#include "api/daytona.h"
#include "api/e2b.h"
#include "base/clock.h"
#include "core/archive.h"
#include "core/auto_destroy.h"
#include "core/file_url.h"
#include "core/life.h"
#include "http/json.h"

#include <string.h>

enum err_code daytona_idle_ms(struct api_call *call, int64_t minutes, int64_t *out, struct err *e)
{
    uint64_t max_ms = api_config_of(call->api)->max_ttl_ms;

    if (max_ms && (uint64_t)minutes * DAYTONA_MINUTE_MS > max_ms)
        return err_set(e, ERR_INVALID,
                       "autoStopInterval, autoPauseInterval: at most %llu minutes on this server",
                       (unsigned long long)(max_ms / DAYTONA_MINUTE_MS));
    *out = minutes * DAYTONA_MINUTE_MS;
    return ERR_OK;
}

/* It stops, or is paused, after so long a time without use; 0: it does not. There is one time for
 * both: a time for one of them ends the other's. */
static enum err_code set_idle(struct api_call *call, const struct sandbox **s, int64_t minutes,
                              bool pause, struct err *e)
{
    const char *tenant = call->who.tenant, *id = (*s)->id;
    const bool is_deleted = (*s)->on_timeout == SANDBOX_ON_TIMEOUT_KILL;
    int64_t idle_ms = 0;

    if (minutes == 0 && core_sandbox_pauses_when_idle(*s) != pause)
        return ERR_OK;
    if (pause && is_deleted)
        return err_set(
            e, ERR_INVALID,
            "Sandbox %s is deleted when it stops, or at its time: it cannot be paused by itself",
            id);
    if (daytona_idle_ms(call, minutes, &idle_ms, e) != ERR_OK)
        return e->code;
    if (is_deleted || (!pause && (*s)->timeout_tier == SANDBOX_TIER_FILES))
        return core_sandbox_set_idle(call->core, tenant, id, idle_ms, s, e);
    return core_sandbox_set_idle_pause(
        call->core, tenant, id, idle_ms,
        pause && minutes > 0 ? SANDBOX_TIER_FROZEN : SANDBOX_TIER_FILES, s, e);
}

/* The sandbox of the call and its {interval}. NULL: answered, and the call may be gone. */
static const struct sandbox *find_interval(struct api_call *call, long *minutes)
{
    const struct sandbox *s = daytona_find(call);
    char *end;

    if (!s)
        return NULL;
    *minutes = strtol(call->params[1], &end, 10);
    if (end != call->params[1] && !*end && *minutes >= 0 && *minutes <= INT32_MAX)
        return s;
    api_fail(call, 400, "the interval must be a number of minutes, 0 or more");
    return NULL;
}

static void answer(struct api_call *call, const struct sandbox *s, enum err_code code,
                   const struct err *e)
{
    if (code != ERR_OK)
        api_fail_err(call, e);
    else
        api_reply_json(call, 200, daytona_sandbox_json(call, s, false));
}

/* change gets the minutes, and the sandbox as it is then in *s. */
static void set_interval(struct api_call *call,
                         enum err_code (*change)(struct api_call *call, const struct sandbox **s,
                                                 long minutes, struct err *e))
{
    long minutes;
    const struct sandbox *s = find_interval(call, &minutes);
    struct err e;
    enum err_code code;

    if (!s)
        return;
    code = change(call, &s, minutes, &e);
    answer(call, s, code, &e);
}

static enum err_code change_stop(struct api_call *call, const struct sandbox **s, long minutes,
                                 struct err *e)
{
    return set_idle(call, s, minutes, false, e);
}

static enum err_code change_pause(struct api_call *call, const struct sandbox **s, long minutes,
                                  struct err *e)
{
    return set_idle(call, s, minutes, true, e);
}

/* POST .../autostop/{interval}: minutes, 0: never for being idle. */
void daytona_set_auto_stop(struct api_call *call)
{
    set_interval(call, change_stop);
}

/* POST .../autopause/{interval} */
void daytona_set_auto_pause(struct api_call *call)
{
    set_interval(call, change_pause);
}

int64_t daytona_archive_ms(int64_t minutes)
{
    const int64_t most = CORE_ARCHIVE_MAX_MS / DAYTONA_MINUTE_MS;

    return (minutes == 0 ? most : MIN(minutes, most)) * DAYTONA_MINUTE_MS;
}

static enum err_code change_archive(struct api_call *call, const struct sandbox **s, long minutes,
                                    struct err *e)
{
    return core_sandbox_set_auto_archive(call->core, call->who.tenant, (*s)->id,
                                         daytona_archive_ms(minutes), s, e);
}

/* POST .../autoarchive/{interval}: minutes from the stop; 0, and any longer: 30 days. */
void daytona_set_auto_archive(struct api_call *call)
{
    set_interval(call, change_archive);
}

static bool is_stopped(const struct sandbox *s)
{
    const struct life *life = life_of(s->state);

    return life->files && life->change != LIFE_CHANGE_RESUME && !s->kept_memory;
}

/* Minutes after which one that is stopped is deleted; 0: one that stops is gone, or has stopped and
 * is gone now; below: it stays. Of one that ends at a time that does not move only 0 is true. */
static void set_auto_delete(struct api_call *call, const struct sandbox *s, long minutes)
{
    enum err_code code;
    struct err e;

    if (minutes == 0 && is_stopped(s)) {
        daytona_sandbox_delete(call, s);
    } else if (minutes != 0 && s->idle_ms == 0 && s->on_timeout == SANDBOX_ON_TIMEOUT_KILL) {
        api_fail(call, 409, "Sandbox %s ends at its time: set an auto-stop interval", s->id);
    } else {
        code = core_sandbox_set_auto_delete(call->core, call->who.tenant, s->id,
                                            minutes * DAYTONA_MINUTE_MS, &s, &e);
        answer(call, s, code, &e);
    }
}

/* POST .../autodelete/{interval}: minutes. */
void daytona_set_auto_delete(struct api_call *call)
{
    char *end;
    long minutes = strtol(call->params[1], &end, 10);
    const struct sandbox *s = daytona_find(call);

    if (!s)
        return;
    if (end == call->params[1] || *end || minutes < INT32_MIN || minutes > INT32_MAX)
        api_fail(call, 400, "the interval must be a number of minutes, or -1");
    else
        set_auto_delete(call, s, minutes);
}

/* POST .../ttl/{interval}: minutes from now on, after which it is deleted in any state; 0: not for
 * that. */
void daytona_set_ttl(struct api_call *call)
{
    char *end;
    long minutes = strtol(call->params[1], &end, 10);
    const struct sandbox *s = daytona_find(call);
    enum err_code code;
    struct err e;

    if (!s)
        return;
    if (end == call->params[1] || *end || minutes < 0 || minutes > INT32_MAX) {
        api_fail(call, 400, "the time must be a number of minutes, 0 or more");
        return;
    }
    code = core_sandbox_set_auto_destroy(call->core, call->who.tenant, s->id,
                                         minutes * DAYTONA_MINUTE_MS, &s, &e);
    answer(call, s, code, &e);
}

/* -- labels ------------------------------------------------------------------------------------ */

void daytona_set_labels(struct api_call *call)
{
    const struct sandbox *s = daytona_find(call);
    json_t *labels = NULL;
    struct err e;

    if (!s || !api_call_body(call))
        return;
    if (json_get_obj(call->body, "labels", NULL, JSON_REQUIRED, &labels, &e) != ERR_OK ||
        json_check_str_map(labels, "labels", API_MAP_MAX_COUNT, API_METADATA_MAX_BYTES, &e) !=
            ERR_OK ||
        core_sandbox_set_metadata(call->core, call->who.tenant, s->id, labels, &s, &e) != ERR_OK)
        api_fail_err(call, &e);
    else
        api_reply_json(call, 200, json_pack("{s:O}", "labels", labels));
}

/* To be found is to be used. */
void daytona_activity(struct api_call *call)
{
    if (daytona_find(call))
        api_reply_empty(call, 201);
}

/* -- who may ask its ports --------------------------------------------------------------------- */

/* All that is set but the way in stays. */
static enum err_code network_with(const struct sandbox *s, bool public, struct network **out,
                                  struct err *e)
{
    json_t *shown = network_shown(s->network) ? json_deep_copy(network_shown(s->network))
                                              : json_object();
    enum err_code rc;

    if (!shown || json_object_set_new(shown, E2B_PUBLIC_KEY, json_boolean(public)) < 0)
        rc = err_set(e, ERR_UNAVAILABLE, "memory is out");
    else
        rc = e2b_network_setting(shown, out, e);
    json_decref(shown);
    return rc;
}

/* POST .../public/{isPublic} */
void daytona_set_public(struct api_call *call)
{
    const struct sandbox *s = daytona_find(call);
    struct core_network n = {.network = NULL};
    bool public;
    struct err e;

    if (!s)
        return;
    public = strcmp(call->params[1], "true") == 0;
    n.policy = s->policy;
    n.credentials = s->credentials;
    n.allow_internet = s->allow_internet;
    if (!public && strcmp(call->params[1], "false") != 0)
        api_fail(call, 400, "isPublic must be true or false");
    else if (!s->secure && !public)
        api_fail(call, 400, "Sandbox %s has no token for its ports: it stays public", s->id);
    else if (network_with(s, public, &n.network, &e) != ERR_OK)
        api_fail_err(call, &e);
    else
        core_sandbox_set_network(call->core, call->who.tenant, s->id, &n, daytona_sandbox_done,
                                 call);
    network_unref(n.network);
}

/* -- signed URLs of files ---------------------------------------------------------------------- */

/* Clients sign with it themselves, so that it opens all files of a sandbox: for roles that may. */
static void reply_signing_key(struct api_call *call, bool replace)
{
    const struct sandbox *s = daytona_find(call);
    char key[FILE_URL_KEY_SIZE];
    struct err e;

    if (!s)
        return;
    if (core_sandbox_file_url_key(call->core, call->who.tenant, s->id, replace, key, &e) != ERR_OK)
        api_fail_err(call, &e);
    else
        api_reply_json(call, 200, json_string(key));
    explicit_bzero(key, sizeof(key));
}

void daytona_signing_key(struct api_call *call)
{
    reply_signing_key(call, false);
}

/* All URLs that were signed with the one of before are refused from now on. */
void daytona_replace_signing_key(struct api_call *call)
{
    reply_signing_key(call, true);
}

/* -- metrics ----------------------------------------------------------------------------------- */

static void add_point(json_t *points, const struct sandbox_metric *m, double value)
{
    json_t *at = api_json_time(m->at_real_ms);

    json_array_append_new(points, json_pack("{s:o, s:f}", "timestamp", at, "value", value));
}

static void got_metrics(void *arg, const struct sandbox_metric *items, size_t n,
                        const struct err *why)
{
    static const char *const names[] = {
        "daytona.sandbox.cpu.utilization",    "daytona.sandbox.cpu.limit",
        "daytona.sandbox.memory.utilization", "daytona.sandbox.memory.usage",
        "daytona.sandbox.memory.limit",       "daytona.sandbox.filesystem.usage",
        "daytona.sandbox.filesystem.total"};
    struct api_call *call = arg;
    json_t *series;

    if (why) {
        api_fail_err(call, why);
        return;
    }
    series = json_array();
    for (size_t k = 0; k < ARRAY_SIZE(names); k++) {
        json_t *points = json_array();

        for (size_t i = 0; i < n; i++) {
            const struct sandbox_metric *m = &items[i];
            const double values[] = {m->cpu_count ? m->cpu_used_pct / m->cpu_count : 0,
                                     (double)m->cpu_count,
                                     m->memory_total_bytes ? 100.0 * (double)m->memory_used_bytes /
                                                                 (double)m->memory_total_bytes
                                                           : 0,
                                     (double)m->memory_used_bytes,
                                     (double)m->memory_total_bytes,
                                     (double)m->disk_used_bytes,
                                     (double)m->disk_total_bytes};

            add_point(points, m, values[k]);
        }
        json_array_append_new(
            series, json_pack("{s:s, s:o}", "metricName", names[k], "dataPoints", points));
    }
    api_reply_json(call, 200, json_pack("{s:o}", "series", series));
}

/* Whether it is a time, or absent: *out_ms 0. A time before 1970 is taken for 1 ms after its begin,
 * as 0 says that there is none. */
static bool query_time(struct api_call *call, const char *name, int64_t *out_ms)
{
    char text[64];
    int64_t at_ms;

    if (!api_call_query(call, name, text, sizeof(text)))
        return false;
    if (!text[0]) {
        *out_ms = 0;
        return true;
    }
    if (clock_parse_rfc3339(text, &at_ms) < 0) {
        api_fail(call, 400, "%s must be a time as of RFC 3339", name);
        return false;
    }
    *out_ms = at_ms > 0 ? at_ms : 1;
    return true;
}

void daytona_metrics(struct api_call *call)
{
    const struct sandbox *s = daytona_find(call);
    int64_t from, to;

    if (s && query_time(call, "from", &from) && query_time(call, "to", &to))
        core_sandbox_metrics(call->core, call->who.tenant, s->id, from, to, got_metrics, call);
}
