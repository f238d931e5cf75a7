/* policy learned: a policy that would allow what a sandbox has tried, made of its records in the
 * audit log. Where its policy only warns ("mode": "warn") that is all that it needs.
 *
 * The programs inside choose what is tried, so the policy that the owner has set is not widened by
 * them: its deny rules come first, and its limits and credentials stay. A host whose paths are too
 * many for rules is opened as a whole, which is said on standard error. */
#include "cli/commands.h"
#include "policy/policy.h"

#include <string.h>

#define RECORDS   "10000" /* the most that the server gives at a time */
#define PATHS_MAX 64u     /* of one host and port; more: any path */

/* Attempts on one host and port are kept as {"methods": {METHOD: {PATH: true}}, "addresses": {},
 * "port": n, "name": or "address"}; objects are sets. The path "" stands for any. */

static bool is_decision(const json_t *r)
{
    const char *event = cli_text(r, "event");

    return strcmp(event, "connection") == 0 || strcmp(event, "request") == 0;
}

/* A refusal gives a rule to learn only where the policy's default decided. Refusals by a rule, by
 * the operator's ceiling or of addresses that no rule opens are intended, and no rule would lift a
 * limit or make names agree. */
static bool is_wanted(const json_t *r)
{
    const char *source = cli_text(r, "source");
    bool denied = strcmp(cli_text(r, "verdict"), "deny") == 0 ||
                  json_is_true(json_object_get(r, "warned"));

    return !denied || strcmp(source, "default") == 0;
}

static json_t *rule_of(json_t *all, const json_t *r)
{
    bool by_name = *cli_text(r, "name") != 0;
    const char *host = cli_text(r, by_name ? "name" : "address");
    int port = (int)json_integer_value(json_object_get(r, "port"));
    char key[300];
    json_t *rule;

    snprintf(key, sizeof(key), "%.255s:%d", host, port);
    rule = json_object_get(all, key);
    if (!rule && *host) {
        rule = json_pack("{s:s, s:i, s:{}, s:{}}", by_name ? "name" : "address", host, "port", port,
                         "methods", "addresses");
        json_object_set_new(all, key, rule);
    }
    return rule;
}

/* Paths that a policy cannot have as they are: cut in the log, or of two readings. */
static bool is_plain_path(const char *path)
{
    json_t *json = json_pack("{s:[{s:s, s:[s]}]}", "rules", "action", "allow", "paths", path);
    struct policy *p = NULL;
    bool plain = !strchr(path, '*') && policy_new(json, &p, NULL) == ERR_OK;

    policy_free(p);
    json_decref(json);
    return plain;
}

static void learn_request(json_t *methods, const char *method, const char *path)
{
    json_t *paths = json_object_get(methods, method);

    if (!paths) {
        paths = json_object();
        json_object_set_new(methods, method, paths);
    }
    json_object_set_new(paths, is_plain_path(path) ? path : "", json_true());
}

static void learn(json_t *all, const json_t *r)
{
    json_t *rule = is_decision(r) && is_wanted(r) ? rule_of(all, r) : NULL;
    const char *method = cli_text(r, "method"), *path = cli_text(r, "path"),
               *address = cli_text(r, "address");
    struct policy_address a;

    if (!rule)
        return;
    if (*method)
        learn_request(json_object_get(rule, "methods"), method, path);
    /* Only a rule that has it opens an address that is not public. */
    if (*address && policy_address_parse(address, &a) == 0 && !policy_address_is_public(&a))
        json_object_set_new(json_object_get(rule, "addresses"), address, json_true());
}

static json_t *keys(const json_t *set)
{
    json_t *list = json_array(), *value;
    const char *key;

    json_object_foreach ((json_t *)(uintptr_t)set, key, value)
        json_array_append_new(list, json_string(key));
    return list;
}

static json_t *destination_of(const json_t *learned)
{
    const json_t *addresses = json_object_get(learned, "addresses");
    json_t *rule = json_pack("{s:s, s:[O]}", "action", "allow", "ports",
                             json_object_get(learned, "port"));

    if (json_object_get(learned, "name"))
        json_object_set_new(rule, "domains", json_pack("[O]", json_object_get(learned, "name")));
    if (json_object_size(addresses) > 0)
        json_object_set_new(rule, "addresses", keys(addresses));
    else if (json_object_get(learned, "address"))
        json_object_set_new(rule, "addresses",
                            json_pack("[O]", json_object_get(learned, "address")));
    return rule;
}

static bool is_any(const json_t *paths)
{
    return json_object_size(paths) > PATHS_MAX || json_object_get(paths, "");
}

static bool are_alike(const json_t *a, const json_t *b)
{
    return (is_any(a) && is_any(b)) || json_equal(a, b);
}

static json_t *methods_like(json_t *methods, const json_t *paths)
{
    json_t *list = json_array(), *other;
    const char *method;

    json_object_foreach (methods, method, other)
        if (are_alike(paths, other))
            json_array_append_new(list, json_string(method));
    return list;
}

/* Methods that were tried with the same paths share a rule; others do not: a path that was only
 * read is not to be written. */
static void add_rules(json_t *rules, const json_t *learned)
{
    json_t *methods = json_object_get(learned, "methods"), *paths;
    const char *method;

    if (json_object_size(methods) == 0)
        json_array_append_new(rules, destination_of(learned));
    json_object_foreach (methods, method, paths) {
        json_t *list = methods_like(methods, paths), *rule;

        if (strcmp(json_string_value(json_array_get(list, 0)), method) != 0) {
            json_decref(list); /* the first of them makes the rule */
            continue;
        }
        rule = destination_of(learned);
        json_object_set_new(rule, "methods", list);
        if (!is_any(paths))
            json_object_set_new(rule, "paths", keys(paths));
        json_array_append_new(rules, rule);
    }
}

static void say_widened(const struct cli *c, const char *host, const json_t *learned)
{
    json_t *methods = json_object_get(learned, "methods"), *paths;
    const char *method;

    json_object_foreach (methods, method, paths)
        if (is_any(paths))
            cli_note(c,
                     "cay: any path of %s for %s: more than %u were tried, or one that a rule "
                     "cannot have",
                     host, method, PATHS_MAX);
}

/* The deny rules of the policy that was in force while all was tried. */
static json_t *denied_by(const json_t *owners)
{
    json_t *rules = json_array(), *rule;
    size_t i;

    json_array_foreach (json_object_get(owners, "rules"), i, rule)
        if (strcmp(cli_text(rule, "action"), "deny") == 0)
            json_array_append(rules, rule);
    return rules;
}

static json_t *policy_of(const struct cli *c, const json_t *owners, const json_t *records)
{
    static const char *const kept[] = {"inject", "limits", "reroute", "refusal"};
    json_t *all = json_object(), *rules = denied_by(owners), *value, *r;
    json_t *policy = json_pack("{s:s, s:o}", "default", "deny", "rules", rules);
    const char *key;
    size_t i;

    json_array_foreach (records, i, r)
        learn(all, r);
    json_object_foreach (all, key, value) {
        add_rules(rules, value);
        say_widened(c, key, value);
    }
    json_decref(all);
    for (i = 0; i < ARRAY_SIZE(kept); i++)
        if (json_object_get(owners, kept[i]))
            json_object_set(policy, kept[i], json_object_get(owners, kept[i]));
    return policy;
}

static void print(const struct cli *c, json_t *policy)
{
    if (c->json) {
        cli_print_json(policy);
        return;
    }
    json_dumpf(policy, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII);
    putchar('\n');
    json_decref(policy);
}

int cmd_policy_learned(struct cli *c)
{
    struct err e = {.code = ERR_OK};
    struct policy *checked = NULL;
    struct api_sandbox s;
    json_t *records = NULL, *owners = NULL, *policy = NULL;
    char path[200];
    struct api a;

    if (api_open(&a, c, &e) != ERR_OK)
        return cli_fail(c, &e);
    if (api_sandbox_open(&a, c->operands[0], &s, &e) == ERR_OK) {
        snprintf(path, sizeof(path), "/cay/v1/sandboxes/%s/policy", s.id);
        if (api_call(&a, "GET", path, NULL, &owners, &e) == ERR_OK) {
            snprintf(path, sizeof(path), "/cay/v1/audit?sandbox=%s&limit=" RECORDS, s.id);
            if (api_call(&a, "GET", path, NULL, &records, &e) == ERR_OK)
                policy = policy_of(c, owners, records);
        }
    }
    api_close(&a);
    json_decref(records);
    json_decref(owners);
    if (policy && policy_new(policy, &checked, &e) == ERR_OK)
        print(c, json_incref(policy));
    policy_free(checked);
    json_decref(policy);
    return e.code == ERR_OK ? CLI_OK : cli_fail(c, &e);
}
