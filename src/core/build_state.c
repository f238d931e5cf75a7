#include "core/build_state.h"

#include "http/json.h"

#include <stdio.h>
#include <string.h>

json_t *build_state(const struct build_run *r)
{
    return json_pack("{s:O, s:s, s:s}", "env", r->env, "user", r->user, "cwd", r->cwd);
}

char *build_state_text(const struct build_run *r)
{
    json_t *state = build_state(r);
    char *text = json_text(state, JSON_COMPACT);

    json_decref(state);
    return text;
}

static void copy_text(const json_t *file, const char *key, char *out, size_t size)
{
    const char *text = json_string_value(json_object_get(file, key));

    if (text && *text && strlen(text) < size)
        (void)snprintf(out, size, "%s", text);
}

/* The settings of the base template stay in force. A start file is the sandbox's: unknown fields
 * are left out. */
bool build_state_take(struct build_run *r, const char *text, size_t len)
{
    json_t *file = json_load_answer(text, len), *value;
    const char *name;
    bool whole = file || !json_memory_was_out();

    json_object_foreach (json_object_get(file, "env"), name, value)
        if (json_is_string(value) && json_object_set(r->env, name, value) < 0)
            whole = false;
    copy_text(file, "user", r->user, sizeof(r->user));
    copy_text(file, "cwd", r->cwd, sizeof(r->cwd));
    json_decref(file);
    return whole;
}

void build_state_name_step(struct build_run *r, const char *before)
{
    char shown[256];

    (void)snprintf(r->step_text, sizeof(r->step_text), "%zu", r->at + 1);
    r->step = r->step_text;
    build_spec_show(&r->spec.steps[r->at], shown, sizeof(shown));
    build_log_add(&r->o->log, "info", r->step, "%s[%zu/%zu] %s", before, r->at + 1, r->spec.n,
                  shown);
}
