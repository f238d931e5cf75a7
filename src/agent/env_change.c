/* POST /cay/envs: a change of the environment that processes are started with. It is made in one
 * turn of the loop, so that of two at once none is lost; /init replaces the whole. */

#include "agent/common/agent.h"

#include "http/json.h"

#include <string.h>

#define CHANGE_BODY_MAX (2u * 1024u * 1024u)
#define CHANGE_VARS_MAX 4096
#define CHANGE_BYTES \
    (256u * 1024u) /* of all together, as in a create; the sandbox's own not counted */

/* {"set": {"NAME": "value"}, "unset": ["NAME"], "unsetValuePrefix": "text"}, each optional:
 * variables to unset go first, and the prefix takes none that is set. */
struct change {
    json_t *set, *unset;
    const char *prefix;
};

/* These tell a program where it is: they are the sandbox's own. */
static bool is_own(const char *name)
{
    static const char *const own[] = {"E2B_SANDBOX", "E2B_SANDBOX_ID", "E2B_TEMPLATE_ID"};

    for (size_t i = 0; i < ARRAY_SIZE(own); i++)
        if (strcmp(own[i], name) == 0)
            return true;
    return false;
}

static enum err_code read_change(const json_t *body, struct change *ch, struct err *e)
{
    const json_t *name;
    size_t i;

    if (json_get_obj(body, "set", NULL, JSON_OPTIONAL, &ch->set, e) != ERR_OK ||
        json_get_arr(body, "unset", NULL, JSON_OPTIONAL, &ch->unset, e) != ERR_OK ||
        json_get_str(body, "unsetValuePrefix", NULL, JSON_OPTIONAL, CHANGE_BYTES, &ch->prefix, e) !=
            ERR_OK)
        return e->code;
    json_array_foreach (ch->unset, i, name)
        if (!json_is_string(name))
            return err_set(e, ERR_INVALID, "unset[%zu]: must be the name of a variable", i);
    return ch->set ? json_check_program_env(ch->set, "set", CHANGE_VARS_MAX, CHANGE_BYTES, e)
                   : ERR_OK;
}

static void take_away(json_t *env, const struct change *ch)
{
    size_t n = ch->prefix ? strlen(ch->prefix) : 0, i;
    const char *name;
    json_t *value;
    void *next;

    json_array_foreach (ch->unset, i, value)
        if (!is_own(json_string_value(value)))
            json_object_del(env, json_string_value(value));
    json_object_foreach_safe(env, next, name,
                             value) if (n > 0 && !is_own(name) && !json_object_get(ch->set, name) &&
                                        strncmp(json_string_value(value), ch->prefix, n) == 0)
        json_object_del(env, name);
}

static enum err_code check_all(const json_t *env, struct err *e)
{
    json_t *counted = json_copy((json_t *)(uintptr_t)env);
    enum err_code code = ERR_OK;
    const char *name;
    json_t *value;

    if (!counted)
        return err_set(e, ERR_EXHAUSTED, "out of memory in the agent");
    json_object_foreach ((json_t *)(uintptr_t)env, name, value)
        if (is_own(name))
            json_object_del(counted, name);
    code = json_check_env(counted, "the environment", CHANGE_VARS_MAX, CHANGE_BYTES, e);
    json_decref(counted);
    return code;
}

/* The environment after the change: a new object. */
static enum err_code changed(const json_t *before, const struct change *ch, json_t **out,
                             struct err *e)
{
    json_t *env = json_copy((json_t *)(uintptr_t)before), *value;
    const char *name;
    int rc = env ? 0 : -1;

    if (env)
        take_away(env, ch);
    json_object_foreach (ch->set, name, value)
        if (rc == 0 && !is_own(name))
            rc = json_object_set(env, name, value);
    *out = env;
    return rc < 0 ? err_set(e, ERR_EXHAUSTED, "out of memory in the agent") : check_all(env, e);
}

static void on_body(struct http_exchange *x, char *text, size_t len)
{
    struct agent *a = http_exchange_get(x);
    struct change ch = {.set = NULL};
    json_t *body = NULL, *env = NULL;
    struct err e;

    if (json_parse(text, len, true, &body, &e) != ERR_OK || read_change(body, &ch, &e) != ERR_OK ||
        changed(a->env, &ch, &env, &e) != ERR_OK) {
        http_respond_error(x, e.code == ERR_EXHAUSTED ? 500 : 400, "%s", e.text);
    } else {
        json_decref(a->env);
        a->env = json_incref(env);
        http_respond(x, 204, NULL, 0, NULL, 0);
    }
    json_decref(env);
    json_decref(body);
}

void envs_change(struct http_exchange *x, struct agent *a UNUSED)
{
    http_body_collect(x, CHANGE_BODY_MAX, on_body);
}
