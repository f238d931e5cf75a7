#include "api/daytona_later.h"

#include "api/daytona_build_spec.h"
#include "http/digest.h"
#include "http/json.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* -- buildInfo --------------------------------------------------------------------------------- */

/* Of what decides about the template: the Dockerfile and the archives, each by its hash. */
static enum err_code hash_of(const json_t *info, uint8_t out[static CORE_IMAGE_HASH_SIZE],
                             struct err *e)
{
    const json_t *hashes = json_object_get(info, "contextHashes");
    json_t *both = json_pack("[O, O*]", json_object_get(info, "dockerfileContent"),
                             json_array_size(hashes) > 0 ? hashes : NULL);
    CLEANUP_FREE char *text = json_text(both, JSON_COMPACT);

    json_decref(both);
    if (!text)
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    digest_sha256(text, strlen(text), out);
    return ERR_OK;
}

enum err_code daytona_build_info_take(json_t *body, struct build_spec *spec,
                                      uint8_t hash[static CORE_IMAGE_HASH_SIZE], struct err *e)
{
    json_t *info = NULL;

    if (json_get_obj(body, "buildInfo", NULL, JSON_REQUIRED, &info, e) != ERR_OK ||
        daytona_build_spec_read(info, spec, e) != ERR_OK)
        return e->code;
    if (hash_of(info, hash, e) != ERR_OK) {
        build_spec_free(spec);
        return e->code;
    }
    json_object_del(body, "buildInfo");
    return ERR_OK;
}

/* -- as clients see it ------------------------------------------------------------------------- */

static const char *state_name(const struct core_create_later *l)
{
    static const char *const names[] = {[LATER_BUILDING] = "building_snapshot",
                                        [LATER_CREATING] = "creating",
                                        [LATER_BUILD_FAILED] = "build_failed",
                                        [LATER_FAILED] = "error"};

    return (size_t)l->state < ARRAY_SIZE(names) ? names[l->state] : "error";
}

/* As the sandbox that it will be, so far as that is known. */
static struct sandbox as_sandbox(struct api_call *call, const struct core_create_later *l)
{
    const struct sandbox_request *r = &l->request;
    const struct privsep_limits *d = &api_config_of(call->api)->limits;
    struct sandbox s = {.tenant = call->who.tenant,
                        .state = SANDBOX_CREATING,
                        .on_timeout = r->on_timeout,
                        .idle_ms = r->idle_ms,
                        .auto_archive_ms = r->auto_archive_ms,
                        .auto_delete_ms = r->auto_delete_ms,
                        .destroy_real_ms = r->destroy_ms ? l->made_real_ms + r->destroy_ms : 0,
                        .started_real_ms = l->made_real_ms,
                        .end_real_ms = l->made_real_ms + MAX(r->ttl_ms, r->idle_ms),
                        .metadata = r->metadata,
                        .network = r->network,
                        .policy = r->policy,
                        .limits = r->limits};

    memcpy(s.id, l->id, sizeof(s.id));
    memcpy(s.name, l->name, sizeof(s.name));
    (void)snprintf(s.template_requested, sizeof(s.template_requested), "%s", l->template_id);
    if (!s.limits.memory_bytes)
        s.limits.memory_bytes = d->memory_bytes;
    if (!s.limits.cpu_milli)
        s.limits.cpu_milli = d->cpu_milli;
    if (!s.limits.disk_bytes)
        s.limits.disk_bytes = d->disk_bytes;
    return s;
}

json_t *daytona_later_json(struct api_call *call, const struct core_create_later *l, bool item)
{
    const struct sandbox s = as_sandbox(call, l);
    json_t *out = daytona_sandbox_json(call, &s, item);

    json_object_set_new(out, "state", json_string(state_name(l)));
    if (*l->reason)
        json_object_set_new(out, "errorReason", api_json_text(l->reason));
    return out;
}

struct listing {
    struct api_call *call;
    const json_t *labels;
    json_t *items;
    bool item;
    size_t n;
};

static bool has_labels(const json_t *metadata, const json_t *labels)
{
    const char *name;
    json_t *value;

    json_object_foreach ((json_t *)(uintptr_t)labels, name, value)
        if (!json_equal(json_object_get(metadata, name), value))
            return false;
    return true;
}

static void list_one(void *arg, const struct core_create_later *l)
{
    struct listing *all = arg;

    if (!has_labels(l->request.metadata, all->labels))
        return;
    json_array_append_new(all->items, daytona_later_json(all->call, l, all->item));
    all->n++;
}

size_t daytona_later_list(struct api_call *call, const json_t *labels, bool item, json_t *items)
{
    struct listing all = {.call = call, .labels = labels, .items = items, .item = item};

    core_later_each(call->core, call->who.tenant, list_one, &all);
    return all.n;
}

/* -- what is asked of one ---------------------------------------------------------------------- */

const struct core_create_later *daytona_later_find(struct api_call *call)
{
    return core_later_find(call->core, call->who.tenant, call->params[0]);
}

/* As upstream: 409 while a change is under way, 400 for one that has failed. */
void daytona_later_refuse(struct api_call *call, const struct core_create_later *l)
{
    bool made = l->state == LATER_BUILDING || l->state == LATER_CREATING;

    api_fail(call, made ? 409 : 400, "Sandbox %s is %s: %s", l->id, state_name(l),
             made ? "wait until it is started, or delete it" : "delete it, and create it anew");
}

/* Its build goes on: the template is there for the next create. */
void daytona_later_remove(struct api_call *call, const struct core_create_later *l)
{
    json_t *last = daytona_later_json(call, l, false);

    json_object_set_new(last, "state", json_string("destroyed"));
    core_later_drop(call->core, l);
    api_reply_json(call, 200, last);
}
