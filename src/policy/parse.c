/* JSON to struct policy. Refused whole at the first mistake, with its place. Parses in one pass
 * over the object: each key has a reader, and a key without one is a mistake. After a mistake the
 * policy is freed with all that was read, and its caller never gets it. */
#include "policy/internal.h"
#include "policy/pattern.h"
#include "policy/preset.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define JSON_PATH_SIZE 96

struct parser {
    struct policy *policy;
    size_t n_patterns, n_stars, text_bytes;
    struct err *e;
    char json_path[JSON_PATH_SIZE]; /* "rules[3].ports[0]" */

    struct rule *rule; /* the one that is read, or the injection */
    bool is_injection;
    char where[24]; /* "rules[3]" */
};

PRINTF(2, 3)
static enum err_code bad(struct parser *p, const char *fmt, ...)
{
    char text[256];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return err_set(p->e, ERR_INVALID, "policy: %s: %s",
                   p->json_path[0] ? p->json_path : "the whole", text);
}

static enum err_code out_of_memory(struct parser *p)
{
    return err_set(p->e, ERR_EXHAUSTED, "policy: out of memory");
}

PRINTF(2, 3)
static void at(struct parser *p, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(p->json_path, sizeof(p->json_path), fmt, ap);
    va_end(ap);
}

/* A policy is read again with each change of its sandbox's, and compared with its ceilings. */
static enum err_code count_text(struct parser *p, const json_t *json)
{
    p->text_bytes += json_string_length(json);
    if (p->text_bytes > POLICY_TEXT_MAX)
        return bad(p, "the policy's names, addresses, methods and paths have more than %u bytes",
                   POLICY_TEXT_MAX);
    return ERR_OK;
}

/* -- conditions -------------------------------------------------------------------------------- */

static enum err_code read_entry(struct parser *p, const struct condition *c, const json_t *json,
                                union entry *out)
{
    int rc = c->read(json, out);

    if (rc == -ENOMEM)
        return out_of_memory(p);
    if (rc < 0 && json_is_string(json))
        return bad(p, "found \"%.80s\", allowed is %s", json_string_value(json), c->allowed);
    return rc < 0 ? bad(p, "allowed is %s", c->allowed) : ERR_OK;
}

/* Each request is compared with all of them, on the loop that all sandboxes share. */
static enum err_code count_star(struct parser *p, const struct condition *c, const union entry *e)
{
    if (c != &conditions[CONDITION_PATHS] || !pattern_path_has_inner_star(e->text))
        return ERR_OK;
    if (++p->n_stars > POLICY_STARS_MAX)
        return bad(p, "the policy has more than %u paths with a * that something follows",
                   POLICY_STARS_MAX);
    return ERR_OK;
}

/* An empty list would match nothing in one reading and everything in another: refused. */
static enum err_code read_condition(struct parser *p, const struct condition *c, const json_t *json)
{
    struct list *list = &p->rule->lists[c - conditions];
    size_t n = json_array_size(json);

    at(p, "%s.%s", p->where, c->key);
    if (list->entries)
        return bad(p, "is there twice");
    if (!json_is_array(json) || n == 0)
        return bad(p, "must be a list with at least one entry; leave it out to match any");
    p->n_patterns += n;
    if (p->n_patterns > POLICY_PATTERNS_MAX)
        return bad(p, "the policy has more than %u patterns", POLICY_PATTERNS_MAX);
    list->entries = calloc(n, sizeof(list->entries[0]));
    if (!list->entries)
        return out_of_memory(p);
    for (size_t i = 0; i < n; i++) {
        enum err_code code;

        at(p, "%s.%s[%zu]", p->where, c->key, i);
        code = count_text(p, json_array_get(json, i));
        if (code == ERR_OK)
            code = read_entry(p, c, json_array_get(json, i), &list->entries[i]);
        if (code != ERR_OK)
            return code;
        list->n = i + 1; /* the part that rule_clear has to look at */
        if (count_star(p, c, &list->entries[i]) != ERR_OK)
            return p->e->code;
    }
    return ERR_OK;
}

/* -- rules and injections ---------------------------------------------------------------------- */

/* Names are shown in logs, headers and answers. */
static bool is_plain_name(const char *text, size_t max)
{
    size_t n = text ? strlen(text) : 0;

    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr("-_. ", text[i]))
            return false;
    return n > 0 && n <= max;
}

static enum err_code read_name(struct parser *p, const char *field, const json_t *json, size_t max,
                               char **out)
{
    const char *text = json_string_value(json);

    at(p, "%s.%s", p->where, field);
    if (count_text(p, json) != ERR_OK)
        return p->e->code;
    if (!is_plain_name(text, max))
        return bad(p, "must be 1 to %zu letters, digits, blanks, '-', '_' or '.'", max);
    free(*out);
    *out = strdup(text);
    return *out ? ERR_OK : out_of_memory(p);
}

static enum err_code read_action(struct parser *p, const json_t *json)
{
    const char *text = json_string_value(json);

    at(p, "%s.action", p->where);
    if (!text || (strcmp(text, "allow") != 0 && strcmp(text, "deny") != 0))
        return bad(p, "must be \"allow\" or \"deny\"");
    p->rule->action = strcmp(text, "allow") == 0 ? POLICY_ALLOW : POLICY_DENY;
    return ERR_OK;
}

static enum err_code read_field(struct parser *p, const char *key, const json_t *value)
{
    const struct condition *c = condition_find(key);
    char keys[128];

    if (!p->is_injection && strcmp(key, "action") == 0)
        return read_action(p, value);
    if (!p->is_injection && strcmp(key, "name") == 0)
        return read_name(p, key, value, POLICY_RULE_NAME_MAX, &p->rule->name);
    if (p->is_injection && strcmp(key, "credential") == 0)
        return read_name(p, key, value, POLICY_CREDENTIAL_MAX, &p->rule->credential);
    if (c)
        return read_condition(p, c, value);
    condition_keys(p->is_injection, keys, sizeof(keys));
    at(p, "%s", p->where);
    return bad(p, "no such key: \"%.40s\"; there are %s, %s", key,
               p->is_injection ? "credential" : "name, action", keys);
}

static enum err_code check_rule(struct parser *p, const json_t *json)
{
    at(p, "%s", p->where);
    if (!p->is_injection)
        return json_object_get(json, "action") ? ERR_OK : bad(p, "has no action");
    if (!p->rule->credential)
        return bad(p, "has no credential");
    for (size_t i = 0; i < CONDITION_COUNT; i++)
        if (p->rule->lists[i].n > 0 && !conditions[i].in_injections)
            return bad(p, "must name the domains that may see the credential, and no %s",
                       conditions[i].key);
    if (p->rule->lists[CONDITION_DOMAINS].n == 0)
        return bad(p, "must name the domains that may see the credential");
    p->rule->action = POLICY_ALLOW; /* for its paths: an ambiguous one is not met */
    return ERR_OK;
}

static enum err_code read_rule(struct parser *p, size_t i, const json_t *json)
{
    const char *key;
    json_t *value;
    char name[24];

    at(p, "%s", p->where);
    if (!json_is_object(json))
        return bad(p, "must be an object");
    (void)snprintf(name, sizeof(name), "rule %zu", i);
    p->rule->name = strdup(name);
    if (!p->rule->name)
        return out_of_memory(p);
    json_object_foreach ((json_t *)(uintptr_t)json, key, value) {
        enum err_code code = read_field(p, key, value);

        if (code != ERR_OK)
            return code;
    }
    return check_rule(p, json);
}

static enum err_code read_rule_list(struct parser *p, const char *field, const json_t *json,
                                    size_t max, struct rule **out, size_t *count)
{
    size_t n = json_array_size(json);
    enum err_code code = ERR_OK;

    at(p, "%s", field);
    if (!json_is_array(json) || n > max)
        return bad(p, "must be a list of at most %zu", max);
    *out = calloc(n + 1, sizeof(**out));
    if (!*out)
        return out_of_memory(p);
    for (size_t i = 0; code == ERR_OK && i < n; i++) {
        *count = i + 1;
        p->rule = &(*out)[i];
        (void)snprintf(p->where, sizeof(p->where), "%s[%zu]", field, i);
        code = read_rule(p, i, json_array_get(json, i));
    }
    return code;
}

static enum err_code read_rules(struct parser *p, const json_t *json)
{
    p->is_injection = false;
    return read_rule_list(p, "rules", json, POLICY_RULES_MAX, &p->policy->rules,
                          &p->policy->n_rules);
}

static enum err_code read_inject(struct parser *p, const json_t *json)
{
    p->is_injection = true;
    return read_rule_list(p, "inject", json, POLICY_INJECT_MAX, &p->policy->injections,
                          &p->policy->n_injections);
}

/* -- the rest ---------------------------------------------------------------------------------- */

static enum err_code read_default(struct parser *p, const json_t *json)
{
    const char *text = json_string_value(json);

    at(p, "default");
    if (!text || !preset_fallback(text, &p->policy->fallback))
        return bad(p, "found \"%.40s\", allowed are \"deny\", \"public\" and \"allow\"",
                   text ? text : "(no string)");
    return ERR_OK;
}

static enum err_code read_mode(struct parser *p, const json_t *json)
{
    const char *text = json_string_value(json);

    at(p, "mode");
    if (!text ||
        (strcmp(text, "enforce") != 0 && strcmp(text, "warn") != 0 && strcmp(text, "ask") != 0))
        return bad(p, "found \"%.40s\", allowed are \"enforce\", \"warn\" and \"ask\"",
                   text ? text : "(no string)");
    p->policy->warns = strcmp(text, "warn") == 0;
    p->policy->asks = strcmp(text, "ask") == 0;
    return ERR_OK;
}

static enum err_code read_refusal(struct parser *p, const json_t *json)
{
    const char *text = json_string_value(json);

    at(p, "refusal");
    if (!text || (strcmp(text, "explain") != 0 && strcmp(text, "close") != 0))
        return bad(p, "found \"%.40s\", allowed are \"explain\" and \"close\"",
                   text ? text : "(no string)");
    p->policy->closes = strcmp(text, "close") == 0;
    return ERR_OK;
}

static int read_reroute_name(const char *text, struct policy_reroute *out)
{
    char name[POLICY_NAME_MAX + 1];

    if (policy_name_normalize(text, name) < 0)
        return -EINVAL;
    out->to_name = strdup(name);
    return out->to_name ? 0 : -ENOMEM;
}

/* "ADDRESS", "NAME", or one with ":PORT"; IPv6 with a port in brackets. 0, -EINVAL or -ENOMEM. */
static int read_reroute_target(const char *text, struct policy_reroute *out)
{
    const char *colon = strrchr(text, ':'), *digits = colon ? colon + 1 : "";
    char host[POLICY_NAME_MAX + 3];
    size_t n = colon ? (size_t)(colon - text) : 0;

    if (policy_address_parse(text, &out->to) == 0)
        return 0;
    if (!colon)
        return read_reroute_name(text, out);
    if (n == 0 || n >= sizeof(host) || !condition_port_from_text(&digits, &out->port) || *digits)
        return -EINVAL;
    memcpy(host, text, n);
    host[n] = '\0';
    if ((strchr(host, ':') != NULL) != (host[0] == '['))
        return -EINVAL;
    return policy_address_parse(host, &out->to) == 0 ? 0 : read_reroute_name(host, out);
}

static enum err_code read_reroute(struct parser *p, const json_t *json, struct policy_reroute *out)
{
    const char *domain = json_string_value(json_object_get(json, "domain")),
               *to = json_string_value(json_object_get(json, "to"));
    char name[POLICY_NAME_MAX + 3];
    int rc;

    if (json_object_size(json) != 2 || !domain || !to)
        return bad(p, "must be an object with domain and to");
    if (pattern_domain_normalize(domain, name) < 0)
        return bad(p, "domain: found \"%.80s\", allowed is a host name or *.suffix, in ASCII",
                   domain);
    rc = read_reroute_target(to, out);
    if (rc == -ENOMEM)
        return out_of_memory(p);
    if (rc < 0)
        return bad(
            p, "to: found \"%.80s\", allowed is an IP address or a host's name, or one with :port",
            to);
    out->domain = strdup(name);
    return out->domain ? ERR_OK : out_of_memory(p);
}

static enum err_code read_reroutes(struct parser *p, const json_t *json)
{
    size_t n = json_array_size(json);
    enum err_code code = ERR_OK;

    at(p, "reroute");
    if (!json_is_array(json) || n > POLICY_REROUTES_MAX)
        return bad(p, "must be a list of at most %u", POLICY_REROUTES_MAX);
    p->policy->reroutes = calloc(n + 1, sizeof(*p->policy->reroutes));
    if (!p->policy->reroutes)
        return out_of_memory(p);
    for (size_t i = 0; code == ERR_OK && i < n; i++) {
        at(p, "reroute[%zu]", i);
        code = read_reroute(p, json_array_get(json, i),
                            &p->policy->reroutes[p->policy->n_reroutes++]);
    }
    return code;
}

static enum err_code read_presets(struct parser *p, const json_t *json)
{
    size_t n = json_array_size(json);

    at(p, "presets");
    if (!json_is_array(json) || n > PRESETS_MAX)
        return bad(p, "must be a list of at most %d names", PRESETS_MAX);
    for (size_t i = 0; i < n; i++) {
        const char *name = json_string_value(json_array_get(json, i));
        const struct rule *preset = name ? preset_find(name) : NULL;

        at(p, "presets[%zu]", i);
        if (!preset)
            return bad(p, "found \"%.40s\", there are %s", name ? name : "(no string)",
                       preset_names((char[PRESET_NAMES_SIZE]){0}));
        p->policy->presets[p->policy->n_presets++] = preset;
    }
    return ERR_OK;
}

static enum err_code read_limit(struct parser *p, const char *key, const json_t *value)
{
    struct policy_limits *l = &p->policy->limits;
    json_int_t n = json_integer_value(value);
    const struct {
        const char *name;
        uint32_t *small;
    } fields[] = {{"connections", &l->connections},
                  {"connections_per_second", &l->connections_per_second},
                  {"requests_per_second", &l->requests_per_second}};

    at(p, "limits.%.40s", key);
    if (!json_is_integer(value) || n < 1)
        return bad(p, "must be a whole number, at least 1");
    if (strcmp(key, "bytes") == 0) {
        l->bytes = (uint64_t)n;
        return ERR_OK;
    }
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
        if (strcmp(key, fields[i].name) != 0)
            continue;
        *fields[i].small = (uint32_t)MIN(n, (json_int_t)UINT32_MAX);
        return ERR_OK;
    }
    return bad(p, "no such limit; there are connections, connections_per_second, "
                  "requests_per_second, bytes");
}

static enum err_code read_limits(struct parser *p, const json_t *json)
{
    enum err_code code = ERR_OK;
    const char *key;
    json_t *value;

    at(p, "limits");
    if (!json_is_object(json))
        return bad(p, "must be an object");
    json_object_foreach ((json_t *)(uintptr_t)json, key, value) {
        code = read_limit(p, key, value);
        if (code != ERR_OK)
            break;
    }
    return code;
}

static enum err_code read_whole(struct parser *p, const json_t *json)
{
    static const struct {
        const char *name;
        enum err_code (*read)(struct parser *p, const json_t *json);
    } fields[] = {{"default", read_default},  {"mode", read_mode},      {"presets", read_presets},
                  {"rules", read_rules},      {"inject", read_inject},  {"limits", read_limits},
                  {"reroute", read_reroutes}, {"refusal", read_refusal}};
    const char *key;
    json_t *value;

    if (!json_is_object(json))
        return bad(p, "must be an object");
    json_object_foreach ((json_t *)(uintptr_t)json, key, value) {
        enum err_code code;
        size_t i = 0;

        p->json_path[0] = '\0'; /* that of the field before says nothing of this one */
        while (i < ARRAY_SIZE(fields) && strcmp(key, fields[i].name) != 0)
            i++;
        code = i < ARRAY_SIZE(fields) ? fields[i].read(p, value)
                                      : bad(p,
                                            "no such key: \"%.40s\"; there are default, mode, "
                                            "presets, rules, inject, limits, reroute, "
                                            "refusal",
                                            key);
        if (code != ERR_OK)
            return code;
    }
    return ERR_OK;
}

enum err_code policy_new(const json_t *json, struct policy **out, struct err *e)
{
    struct err scratch = {.code = ERR_OK};
    struct parser p = {.e = e ? e : &scratch};
    enum err_code code = ERR_OK;

    p.policy = calloc(1, sizeof(*p.policy));
    if (!p.policy)
        return out_of_memory(&p);
    if (json && !json_is_null(json))
        code = read_whole(&p, json);
    if (code != ERR_OK) {
        policy_free(p.policy);
        return code;
    }
    *out = p.policy;
    return ERR_OK;
}

static void free_rules(struct rule *rules, size_t n)
{
    for (size_t i = 0; i < n; i++)
        rule_clear(&rules[i]);
    free(rules);
}

void policy_free(struct policy *p)
{
    if (!p || p->shared)
        return;
    free_rules(p->rules, p->n_rules);
    free_rules(p->injections, p->n_injections);
    for (size_t i = 0; i < p->n_reroutes; i++) {
        free(p->reroutes[i].domain);
        free(p->reroutes[i].to_name);
    }
    free(p->reroutes);
    free(p);
}
