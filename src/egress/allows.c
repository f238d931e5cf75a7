#include "egress/allows.h"

#include "base/util.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct text {
    char out[ALLOWS_TEXT_MAX];
    size_t used;
};

PRINTF(2, 3) static void add(struct text *t, const char *fmt, ...)
{
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(t->out + t->used, sizeof(t->out) - t->used, fmt, ap);
    va_end(ap);
    if (n > 0)
        t->used = MIN(t->used + (size_t)n, sizeof(t->out) - 1);
}

/* "; ports 443, 8000-8100", where the rule asks for any. */
static void add_condition(struct text *t, const json_t *rule, const char *key)
{
    const json_t *list = json_object_get(rule, key), *item;
    size_t i;

    if (json_array_size(list) > 0)
        add(t, "; %s ", key);
    json_array_foreach (list, i, item) {
        if (i > 0)
            add(t, ", ");
        if (json_is_string(item))
            add(t, "%s", json_string_value(item));
        else
            add(t, "%d", (int)json_integer_value(item));
    }
}

static void add_rule(json_t *out, const json_t *rule, const char *key)
{
    const json_t *item;
    size_t i;

    json_array_foreach (json_object_get(rule, key), i, item) {
        struct text t = {.used = 0};

        if (json_array_size(out) >= ALLOWS_MAX)
            return;
        add(&t, "%s", json_string_value(item));
        add_condition(&t, rule, "ports");
        add_condition(&t, rule, "methods");
        add_condition(&t, rule, "paths");
        json_array_append_new(out, json_string(t.out));
    }
}

char *allows_list(const json_t *policy)
{
    json_t *out = json_array();
    const json_t *rule, *preset;
    const char *fallback = json_string_value(json_object_get(policy, "default"));
    char *text;
    size_t i;

    json_array_foreach (json_object_get(policy, "rules"), i, rule) {
        const char *action = json_string_value(json_object_get(rule, "action"));

        if (action && strcmp(action, "deny") == 0)
            continue;
        add_rule(out, rule, "domains");
        add_rule(out, rule, "addresses");
    }
    json_array_foreach (json_object_get(policy, "presets"), i, preset)
        json_array_append(out, (json_t *)(uintptr_t)preset);
    if (fallback && strcmp(fallback, "deny") != 0)
        json_array_append_new(out,
                              json_string(strcmp(fallback, "public") == 0 ? "every public address"
                                                                          : "everything else"));
    text = json_dumps(out, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(out);
    return text;
}
