/* "idle" of a create: how long it lives on without being used, and what counts as use
 * (docs/idle.md). */
#include "api/cay_v1.h"

#include "http/json.h"

#include <string.h>

/* The field in a field is named with it. */
static enum err_code name_idle(struct err *e)
{
    char text[sizeof(e->text)];

    (void)snprintf(text, sizeof(text), "%s", e->text);
    return err_set(e, ERR_INVALID, "\"idle\": %s", text);
}

enum err_code cay_v1_idle_read(const json_t *body, uint64_t most_ms, struct sandbox_request *r,
                               struct err *e)
{
    int64_t most_s = (int64_t)(most_ms / 1000), seconds = 0;
    bool traffic = true, processes = true;
    const char *key;
    json_t *idle = NULL, *value;
    enum err_code rc = json_get_obj(body, "idle", NULL, JSON_OPTIONAL, &idle, e);

    if (rc != ERR_OK || !idle)
        return rc;
    json_object_foreach (idle, key, value)
        if (strcmp(key, "timeout") != 0 && strcmp(key, "traffic") != 0 &&
            strcmp(key, "processes") != 0)
            return err_set(e, ERR_INVALID,
                           "\"idle\": there is no \"%.40s\": timeout (seconds), traffic and "
                           "processes are what it takes",
                           key);
    if ((rc = json_get_int(idle, "timeout", NULL, JSON_REQUIRED, 1, most_s, &seconds, e)) ||
        (rc = json_get_bool(idle, "traffic", NULL, JSON_OPTIONAL, &traffic, e)) ||
        (rc = json_get_bool(idle, "processes", NULL, JSON_OPTIONAL, &processes, e)))
        return name_idle(e);
    if (!traffic && !processes)
        return err_set(e, ERR_INVALID,
                       "\"idle\": neither traffic nor processes count: it would end after its "
                       "time whatever happens, as it does by \"timeout\" alone");
    r->idle_ms = seconds * 1000;
    r->idle_counts = (traffic ? SANDBOX_IDLE_TRAFFIC : 0u) |
                     (processes ? SANDBOX_IDLE_PROCESSES : 0u);
    return ERR_OK;
}

json_t *cay_v1_idle_json(const struct sandbox *s)
{
    if (s->idle_ms == 0)
        return json_null();
    return json_pack("{s:I, s:b, s:b}", "timeout", (json_int_t)(s->idle_ms / 1000), "traffic",
                     (s->idle_counts & SANDBOX_IDLE_TRAFFIC) != 0, "processes",
                     (s->idle_counts & SANDBOX_IDLE_PROCESSES) != 0);
}
