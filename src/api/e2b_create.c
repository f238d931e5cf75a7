/* Creates, of E2B's dialect and of cay's own. The steps: body, idempotency key (answered from the
 * first create's row where there is one), fields, secrets of the network object sealed, core,
 * reply; the state of a call is freed with it. */
#include "api/e2b.h"

#include "api/cay_v1.h"
#include "api/mounts.h"
#include "core/create_key.h"
#include "core/credential.h"
#include "http/digest.h"
#include "http/json.h"

#include <stdio.h>
#include <string.h>

#define LEVEL_NAME_MAX 16
#define TIER_NAME_MAX  32

/* The fields of the body; strings and objects are borrowed from it, the rest is ours. Kept as the
 * call's state while header values are being sealed. */
struct creation {
    struct sandbox_request r;
    uint8_t hash[CORE_HASH_SIZE]; /* of the body, where there is an Idempotency-Key */
    struct network *network;
    json_t *policy, *secrets, *credentials;
    json_t *volume_mounts, *host_mounts; /* read into mounts when all fields are read */
    struct mounts mounts;
    bool is_cays; /* by /cay/v1 */
};

enum creation_kind { CREATE_V1, CREATE_V2, CREATE_CAY };

static void creation_free(void *state)
{
    struct creation *c = state;

    network_unref(c->network);
    json_decref(c->policy);
    json_decref(c->secrets);
    json_decref(c->credentials);
    free(c);
}

#define TIMEOUT_OVER "\"timeout\" cannot be greater than "

enum err_code e2b_read_timeout(const json_t *body, int64_t initial_ms, int64_t *out_ms,
                               struct err *e)
{
    int64_t seconds = 0;
    enum err_code rc = json_get_int(body, "timeout", NULL, JSON_OPTIONAL, INT32_MIN, INT32_MAX,
                                    &seconds, e);

    if (rc != ERR_OK)
        return rc;
    if (!json_object_get(body, "timeout") || json_is_null(json_object_get(body, "timeout")))
        *out_ms = initial_ms;
    else if (seconds <= 0)
        return err_set(e, ERR_INVALID, "\"timeout\" must be greater than 0");
    else
        *out_ms = seconds * 1000;
    return ERR_OK;
}

enum err_code e2b_check_max(struct api_call *call, int64_t ttl_ms, struct err *e)
{
    uint64_t max_ms = api_config_of(call->api)->max_ttl_ms;
    unsigned long long s = max_ms / 1000, h = s / 3600, m = s / 60;

    if (!max_ms || (uint64_t)ttl_ms <= max_ms)
        return ERR_OK;
    if (s == h * 3600)
        return err_set(e, ERR_INVALID, TIMEOUT_OVER "%llu seconds (%lluh)", s, h);
    if (s == m * 60)
        return err_set(e, ERR_INVALID, TIMEOUT_OVER "%llu seconds (%llum)", s, m);
    return err_set(e, ERR_INVALID, TIMEOUT_OVER "%llu seconds", s);
}

/* "autoPauseTier" and "autoPauseOrFiles" are cay's own; E2B's "autoPauseMemory" false means its
 * files alone. */
static enum err_code read_pause_tier(const json_t *body, bool pause, bool keep_memory,
                                     enum sandbox_tier *out, struct err *e)
{
    const char *name = NULL;
    bool or_files = false;

    if (json_get_str(body, "autoPauseTier", NULL, JSON_OPTIONAL, TIER_NAME_MAX, &name, e) !=
            ERR_OK ||
        json_get_bool(body, "autoPauseOrFiles", NULL, JSON_OPTIONAL, &or_files, e) != ERR_OK)
        return e->code;
    if (name && !pause)
        return err_set(e, ERR_INVALID, "autoPauseTier only applies when autoPause is true.");
    if (!core_tier_find(name ? name : keep_memory ? "frozen" : "files", or_files, out))
        return err_set(e, ERR_INVALID,
                       "autoPauseTier: \"%.40s\" is none of frozen, memory and files", name);
    if (!keep_memory && *out != SANDBOX_TIER_FILES)
        return err_set(e, ERR_INVALID,
                       "autoPauseMemory=false is autoPauseTier=\"files\": give one of the two.");
    if (or_files && *out != SANDBOX_TIER_MEMORY_OR_FILES)
        return err_set(e, ERR_INVALID,
                       "autoPauseOrFiles only applies when autoPauseTier is \"memory\".");
    return ERR_OK;
}

/* Cay's own, in seconds: 0 is never. */
static enum err_code read_to_disk(const json_t *body, int64_t *out_ms, struct err *e)
{
    int64_t seconds = 0;
    enum err_code rc = json_get_int(body, "toDiskAfter", NULL, JSON_OPTIONAL, 0,
                                    CORE_TO_DISK_MAX_MS / 1000, &seconds, e);

    if (rc == ERR_OK && json_object_get(body, "toDiskAfter"))
        *out_ms = seconds > 0 ? seconds * 1000 : -1;
    return rc;
}

static enum err_code read_lifecycle(const json_t *body, struct sandbox_request *r, struct err *e)
{
    bool pause = false, keep_memory = true, resume = false;
    json_t *auto_resume = NULL;
    enum err_code rc;

    if ((rc = json_get_bool(body, "autoPause", NULL, JSON_OPTIONAL, &pause, e)) ||
        (rc = json_get_bool(body, "autoPauseMemory", NULL, JSON_OPTIONAL, &keep_memory, e)) ||
        (rc = json_get_obj(body, "autoResume", NULL, JSON_OPTIONAL, &auto_resume, e)))
        return rc;
    if ((rc = read_to_disk(body, &r->to_disk_ms, e)) != ERR_OK)
        return rc;
    if (auto_resume &&
        (rc = json_get_bool(auto_resume, "enabled", NULL, JSON_REQUIRED, &resume, e)))
        return rc;
    if (!keep_memory && !pause)
        return err_set(e, ERR_INVALID,
                       "autoPauseMemory=false only applies when autoPause is true.");
    if ((rc = read_pause_tier(body, pause, keep_memory, &r->timeout_tier, e)) != ERR_OK)
        return rc;
    if (r->timeout_tier == SANDBOX_TIER_FILES && resume)
        return err_set(e, ERR_INVALID,
                       "autoPauseMemory=false (filesystem-only auto-pause) cannot be combined with "
                       "autoResume: it must be resumed explicitly.");
    r->on_timeout = pause ? SANDBOX_ON_TIMEOUT_PAUSE : SANDBOX_ON_TIMEOUT_KILL;
    r->auto_resume = resume;
    return ERR_OK;
}

/* Fields that ask for what is not there: refused rather than ignored. mcp is not among them: the
 * SDK itself starts the gateway, as a program of the template, and says when there is none. */
static enum err_code refuse_missing(const json_t *body, struct err *e)
{
    static const struct {
        const char *name, *what;
    } fields[] = {
        {"iam",
         "workload identity tokens (keys stay outside: `cay secret set`, or E2B's secrets with "
         "network.rules, put them on allowed requests)"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
        const json_t *value = json_object_get(body, fields[i].name);

        if (value && !json_is_null(value) && (json_array_size(value) || json_object_size(value)))
            return err_set(e, ERR_INVALID, "%s: not supported yet by this server: %s",
                           fields[i].name, fields[i].what);
    }
    return ERR_OK;
}

static enum err_code read_network(const json_t *body, struct creation *c, struct err *e)
{
    json_t *network = NULL, *kept = NULL;
    enum err_code rc;

    c->r.allow_internet = true;
    if ((rc = json_get_obj(body, "network", NULL, JSON_OPTIONAL, &network, e)) ||
        (rc = json_get_bool(body, E2B_INTERNET_KEY, NULL, JSON_OPTIONAL, &c->r.allow_internet, e)))
        return rc;
    if (!c->r.secure && json_is_false(json_object_get(network, E2B_PUBLIC_KEY)))
        return err_set(e, ERR_INVALID,
                       "You cannot create a sandbox without public access unless you enable secure "
                       "envd access via 'secure' flag.");
    rc = e2b_network_keep(network, body, &kept, e);
    if (rc != ERR_OK)
        return rc;
    rc = e2b_network_split(kept, c->r.allow_internet, &c->network, &c->policy, &c->secrets, e);
    json_decref(kept);
    c->r.network = c->network;
    c->r.policy = c->policy;
    return rc;
}

/* iam and mcp: read_creation tells what there is of them. */
static enum err_code check_cay_keys(const json_t *body, struct err *e)
{
    static const char *const instead[] = {"network", E2B_INTERNET_KEY};

    for (size_t i = 0; i < ARRAY_SIZE(instead); i++)
        if (json_object_get(body, instead[i]))
            return err_set(e, ERR_INVALID, "%s: this call takes a \"policy\" instead", instead[i]);
    return api_check_keys(body,
                          "templateID timeout idle metadata envVars policy secure level "
                          "seccompFilters startCommand volumeMounts hostMounts autoPause "
                          "autoPauseMemory autoPauseTier autoPauseOrFiles autoResume toDiskAfter",
                          "iam mcp", e);
}

_Static_assert(PRIVSEP_LEVEL_COUNT == 3, "a new level: name it in the error below");

static enum err_code read_level(const json_t *body, uint32_t *out, struct err *e)
{
    const char *name = privsep_level_name(PRIVSEP_LEVEL_PROCESS);
    enum err_code rc = json_get_str(body, "level", NULL, JSON_OPTIONAL, LEVEL_NAME_MAX, &name, e);
    int level = rc == ERR_OK ? privsep_level_from_name(name) : 0;

    if (rc != ERR_OK)
        return rc;
    if (level < 0)
        return err_set(e, ERR_INVALID,
                       "\"level\": there is no isolation level \"%s\"; process, gvisor and vm are "
                       "those that cay knows",
                       name);
    *out = (uint32_t)level;
    return ERR_OK;
}

/* cay's own create: nothing leaves but what a policy allows. */
static enum err_code read_policy(struct api_call *call, struct creation *c, struct err *e)
{
    const json_t *body = call->body;
    bool filters = false, start = true;
    enum err_code rc = check_cay_keys(body, e);

    if (rc == ERR_OK)
        rc = json_get_bool(body, "seccompFilters", NULL, JSON_OPTIONAL, &filters, e);
    if (rc == ERR_OK)
        rc = json_get_bool(body, "startCommand", NULL, JSON_OPTIONAL, &start, e);
    if (rc == ERR_OK)
        rc = read_level(body, &c->r.level, e);
    if (rc == ERR_OK)
        rc = cay_v1_idle_read(body, api_config_of(call->api)->max_ttl_ms, &c->r, e);
    if (rc == ERR_OK)
        rc = json_get_arr(body, "hostMounts", NULL, JSON_OPTIONAL, &c->host_mounts, e);
    if (rc != ERR_OK)
        return rc;
    c->r.limits.filters = filters ? PRIVSEP_FILTERS : 0;
    c->r.no_start_command = !start;
    return json_get_obj(body, "policy", NULL, JSON_OPTIONAL, &c->r.policy, e);
}

static enum err_code read_creation(struct api_call *call, enum creation_kind kind,
                                   struct creation *c, struct err *e)
{
    const json_t *body = call->body;
    const bool v2 = kind != CREATE_V1;
    static const int64_t initial_ms[] = {[CREATE_V1] = E2B_TIMEOUT_V1_MS,
                                         [CREATE_V2] = E2B_TIMEOUT_V2_MS,
                                         [CREATE_CAY] = 0 /* [sandbox] default_ttl */};
    enum err_code rc;

    c->r.tenant = call->who.tenant;
    c->r.secure = v2;
    if ((rc = json_get_str(body, "templateID", NULL, JSON_REQUIRED, CORE_NAME_SIZE - 1,
                           &c->r.template_name, e)) ||
        (rc = e2b_read_timeout(body, initial_ms[kind], &c->r.ttl_ms, e)) ||
        (rc = e2b_check_max(call, c->r.ttl_ms, e)) ||
        (rc = api_read_maps(body, "metadata", "envVars", &c->r, e)) ||
        (rc = read_lifecycle(body, &c->r, e)) ||
        (rc = json_get_arr(body, "volumeMounts", NULL, JSON_OPTIONAL, &c->volume_mounts, e)) ||
        (rc = refuse_missing(body, e)))
        return rc;
    if (kind != CREATE_V2 &&
        (rc = json_get_bool(body, "secure", NULL, JSON_OPTIONAL, &c->r.secure, e)))
        return rc;
    rc = kind == CREATE_CAY ? read_policy(call, c, e) : read_network(body, c, e);
    if (rc == ERR_OK)
        rc = mounts_read(&c->mounts, c->volume_mounts, c->host_mounts, kind == CREATE_CAY, e);
    c->r.mounts = c->mounts.list;
    c->r.n_mounts = c->mounts.n;
    return rc;
}

/* cay's own create tells also what of the policy can never have an effect. */
static json_t *answer_json(struct api_call *call, const struct sandbox *s)
{
    const struct creation *c = call->state;
    json_t *o = e2b_sandbox_json(call, s),
           *warnings = c->is_cays ? cay_v1_policy_warnings(call, s) : NULL;

    if (o && warnings)
        json_object_set(o, "warnings", warnings);
    json_decref(warnings);
    return o;
}

static void created(void *arg, const struct sandbox *s, const struct err *why)
{
    struct api_call *call = arg;

    if (s)
        api_reply_json(call, 201, answer_json(call, s));
    else
        api_fail_err(call, why);
}

static void creation_sealed(void *arg, json_t *sealed, const struct err *why)
{
    struct api_call *call = arg;
    struct creation *c = call->state;

    if (why) {
        api_fail_err(call, why);
        return;
    }
    c->r.credentials = c->credentials = json_incref(sealed);
    core_sandbox_create(call->core, &c->r, created, call);
}

/* True: the call was answered, with what an earlier call of the same key made, or why not. */
static bool answered_by_key(struct api_call *call, struct creation *c)
{
    const char *key = call->request->idempotency_key;
    const struct sandbox *s = NULL;
    struct err e;

    if (!key)
        return false;
    digest_sha256(call->request->body, call->request->body_len, c->hash);
    c->r.create_key = key;
    c->r.create_hash = c->hash;
    if (core_sandbox_of_create_key(call->core, call->who.tenant, key, c->hash, &s, &e) != ERR_OK)
        api_fail_err(call, &e);
    else if (s)
        api_reply_json(call, 201, answer_json(call, s));
    else
        return false;
    return true;
}

static void create(struct api_call *call, enum creation_kind kind)
{
    struct creation *c;
    struct err e;

    c = api_call_state(call, sizeof(*c), creation_free);
    if (!c)
        return;
    c->is_cays = kind == CREATE_CAY;
    if (answered_by_key(call, c))
        return;
    if (read_creation(call, kind, c, &e) != ERR_OK)
        api_fail_err(call, &e);
    else if (json_array_size(c->secrets) > 0)
        core_credentials_seal(call->core, call->who.tenant, c->secrets, creation_sealed, call);
    else
        core_sandbox_create(call->core, &c->r, created, call);
}

void e2b_sandbox_create_v1(struct api_call *call)
{
    create(call, CREATE_V1);
}

void e2b_sandbox_create_v2(struct api_call *call)
{
    create(call, CREATE_V2);
}

void e2b_sandbox_create_cay(struct api_call *call)
{
    create(call, CREATE_CAY);
}
