#include "egress/control/allows.h"

#include "http/json.h"

#include <jansson.h>

static bool add(void *arg, const char *text)
{
    json_t *out = arg;

    json_array_append_new(out, json_string(text));
    return json_array_size(out) < ALLOWS_MAX;
}

char *allows_list(const struct policy *policy)
{
    json_t *out;
    char *text;

    (void)json_was_cut(); /* of another value */
    out = json_array();
    policy_offers(policy, add, out);
    text = json_was_cut() ? NULL : json_text(out, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(out);
    return text;
}
