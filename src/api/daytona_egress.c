/* Changes of a running sandbox's egress: Daytona's network settings (daytona_network.h) and the
 * secrets that are mounted (daytona_mount.h). Both are kept in one object, and each change makes
 * the whole policy again; the last one is in force, from whichever dialect it came. */
#include "api/daytona.h"
#include "api/daytona_mount.h"
#include "api/daytona_network.h"
#include "api/e2b.h"
#include "core/environment.h"

/* -- the policy that becomes of the settings --------------------------------------------------- */

/* The ingress part of E2B's network object stays; the rest concerned egress. */
static enum err_code next_network(struct api_call *call, const struct sandbox *s, json_t *settings,
                                  bool lenient, struct core_network *n, struct err *e)
{
    json_t *network = NULL;
    const json_t *mounted = json_object_get(settings, DAYTONA_MOUNTED_KEY);
    enum err_code rc = e2b_network_ingress(network_shown(s->network), &network, e);

    if (rc != ERR_OK)
        return rc;
    n->policy = daytona_network_policy(settings);
    n->allow_internet = !json_is_true(json_object_get(settings, "networkBlockAll"));
    if (!n->policy || json_object_set(network, DAYTONA_NETWORK_KEY, settings) < 0)
        rc = err_set(e, ERR_UNAVAILABLE, "memory is out");
    else if ((rc = daytona_mounted_inject(call, mounted, lenient, n->policy, e)) == ERR_OK)
        rc = e2b_network_setting(network, &n->network, e);
    json_decref(network);
    return rc;
}

/* The settings after this body, with what is mounted; NULL: nothing is to be changed. */
static enum err_code next_settings(const struct sandbox *s, const json_t *body, json_t **out,
                                   struct err *e)
{
    const json_t *before = daytona_network_of(network_shown(s->network));
    json_t *mounted = json_object_get(before, DAYTONA_MOUNTED_KEY);
    enum err_code rc = daytona_network_update(before, body, out, e);

    if (rc == ERR_OK && *out && mounted && json_object_set(*out, DAYTONA_MOUNTED_KEY, mounted) < 0)
        rc = err_set(e, ERR_UNAVAILABLE, "memory is out");
    return rc;
}

/* -- network settings -------------------------------------------------------------------------- */

void daytona_set_network(struct api_call *call)
{
    const struct sandbox *s = daytona_find(call);
    struct core_network n = {.network = NULL};
    json_t *settings = NULL;
    struct err e;

    if (!s || !api_call_body(call))
        return;
    if (next_settings(s, call->body, &settings, &e) != ERR_OK)
        api_fail_err(call, &e);
    else if (!settings)
        api_reply_json(call, 200, daytona_sandbox_json(call, s, false));
    else if (next_network(call, s, settings, true, &n, &e) != ERR_OK)
        api_fail_err(call, &e);
    else
        core_sandbox_set_network(call->core, call->who.tenant, s->id, &n, daytona_sandbox_done,
                                 call);
    json_decref(settings);
    network_unref(n.network);
    json_decref(n.policy);
}

/* -- secrets ----------------------------------------------------------------------------------- */

/* Of calls at once about one sandbox each begins anew when another was done meanwhile; at most. */
#define MOUNT_ROUNDS_MAX 8u

/* PUT .../secrets: its state. */
struct mounting {
    json_t *mounted; /* from now on; ours, NULL: none */
    json_t *env;     /* their variables with the placeholders */
    json_t *before;  /* the mounts when the agent was told; NULL: none */
    json_t *unset;   /* its names: variables that are mounted no more */
    unsigned rounds;
};

static void mounting_free(void *state)
{
    struct mounting *m = state;

    json_decref(m->mounted);
    json_decref(m->env);
    json_decref(m->before);
    json_decref(m->unset);
    free(m);
}

/* The settings with what is to be mounted: a new object. Another dialect's policy stays its own. */
static enum err_code mounted_settings(const struct sandbox *s, json_t *mounted, json_t **out,
                                      struct err *e)
{
    const json_t *before = daytona_network_of(network_shown(s->network));

    if (!before)
        return err_set(e, ERR_CONFLICT,
                       "secrets: another API than Daytona's has set last what may leave this "
                       "sandbox: set it by network-settings first");
    *out = json_deep_copy(before);
    (void)json_object_del(*out, DAYTONA_MOUNTED_KEY);
    if (!*out || (mounted && json_object_set(*out, DAYTONA_MOUNTED_KEY, mounted) < 0))
        return err_set(e, ERR_UNAVAILABLE, "memory is out");
    return ERR_OK;
}

static enum err_code mounted_network(struct api_call *call, const struct sandbox *s,
                                     struct core_network *n, struct err *e)
{
    const struct mounting *m = call->state;
    json_t *settings = NULL;
    enum err_code rc = mounted_settings(s, m->mounted, &settings, e);

    if (rc == ERR_OK)
        rc = next_network(call, s, settings, false, n, e);
    json_decref(settings);
    return rc;
}

static json_t *mounted_now(const struct sandbox *s)
{
    return json_object_get(daytona_network_of(network_shown(s->network)), DAYTONA_MOUNTED_KEY);
}

static bool is_before(const struct mounting *m, const struct sandbox *s)
{
    json_t *now = mounted_now(s);

    return now == m->before || (now && m->before && json_equal(now, m->before));
}

/* Notes what is mounted now. */
static enum err_code note_before(const struct sandbox *s, struct mounting *m, struct err *e)
{
    const char *variable;
    json_t *name;

    json_decref(m->before);
    json_decref(m->unset);
    m->before = mounted_now(s) ? json_deep_copy(mounted_now(s)) : NULL;
    m->unset = json_array();
    if (mounted_now(s) && !m->before)
        return err_set(e, ERR_UNAVAILABLE, "memory is out");
    json_object_foreach (m->before, variable, name)
        if (json_array_append_new(m->unset, json_string(variable)) < 0)
            return err_set(e, ERR_UNAVAILABLE, "memory is out");
    return ERR_OK;
}

static void on_env(void *arg, const struct err *why);

/* Another call was done since the agent was told: what that has mounted goes, and these come. */
static void begin_anew(struct api_call *call, const struct sandbox *s)
{
    struct mounting *m = call->state;
    struct err e;

    if (++m->rounds > MOUNT_ROUNDS_MAX || !core_admits(call->core))
        api_fail(call, 409,
                 "secrets: this sandbox's secrets are being changed by others; try again");
    else if (note_before(s, m, &e) != ERR_OK)
        api_fail_err(call, &e);
    else
        core_sandbox_change_env(call->core, call->who.tenant, s->id, m->env, m->unset, on_env,
                                call);
}

/* Its agent has the variables: requests with their placeholders are let out now. */
static void on_env(void *arg, const struct err *why)
{
    struct api_call *call = arg;
    const struct sandbox *s = why ? NULL : daytona_find(call);
    struct core_network n = {.network = NULL};
    struct err e;

    if (why)
        api_fail_err(call, why);
    else if (!s) /* answered */
        return;
    else if (!is_before(call->state, s))
        begin_anew(call, s);
    else if (mounted_network(call, s, &n, &e) != ERR_OK)
        api_fail_err(call, &e);
    else
        core_sandbox_set_network(call->core, call->who.tenant, s->id, &n, daytona_sandbox_done,
                                 call);
    network_unref(n.network);
    json_decref(n.policy);
}

static enum err_code read_mounting(const struct sandbox *s, const json_t *body, struct mounting *m,
                                   struct err *e)
{
    enum err_code rc;

    if (!json_is_array(json_object_get(body, "secrets")))
        return err_set(e, ERR_INVALID, "secrets must be an array");
    if ((rc = daytona_mounted_read(body, &m->mounted, e)) ||
        (rc = daytona_mounted_env(NULL, m->mounted, &m->env, e)))
        return rc;
    return note_before(s, m, e);
}

/* All is checked before the first step: a wrong request changes nothing. */
void daytona_set_secrets(struct api_call *call)
{
    const struct sandbox *s = daytona_find(call);
    struct mounting *m = s ? api_call_state(call, sizeof(*m), mounting_free) : NULL;
    struct core_network n = {.network = NULL};
    struct err e;

    if (!m)
        return;
    if (read_mounting(s, call->body, m, &e) != ERR_OK || mounted_network(call, s, &n, &e) != ERR_OK)
        api_fail_err(call, &e);
    else
        core_sandbox_change_env(call->core, call->who.tenant, s->id, m->env, m->unset, on_env,
                                call);
    network_unref(n.network);
    json_decref(n.policy);
}
