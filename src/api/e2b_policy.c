/* E2B's network object as a policy (policy/policy.h). Sources: the SDK's network types and
 * upstream's firewall: an allowed destination beats a denied one; what no list names is the
 * internet, or nothing where everything is denied or internet access is off. */
#include "api/e2b.h"

#include "core/credential.h"
#include "policy/policy.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

/* All of the internet in one entry. */
static bool is_everything(const char *text)
{
    return strcmp(text, "*") == 0 || strcmp(text, "0.0.0.0/0") == 0 || strcmp(text, "::/0") == 0;
}

/* 10.0.0.1/8 is taken as 10.0.0.0/8, as upstream does. */
static json_t *plain_range(const char *text)
{
    char plain[POLICY_RANGE_SIZE];

    /* The policy's own check refuses what is no range. */
    return json_string(policy_range_plain(text, plain) ? plain : text);
}

static bool is_name(const char *text)
{
    unsigned char raw[sizeof(struct in6_addr)];

    return !strchr(text, '/') && inet_pton(AF_INET, text, raw) != 1 &&
           inet_pton(AF_INET6, text, raw) != 1;
}

/* Upstream cuts what it refuses, and programs rely on the exit status of curl and its like. With
 * names in allowOut there is a program that works by them, as a rule an agent: it is told what is
 * allowed instead. */
static bool closes(const json_t *allow, bool denies)
{
    return denies && !json_object_get(allow, "domains");
}

/* The rule of a list, or NULL when it is empty. *everything: the list names all of the internet. */
static json_t *rule_of(const json_t *network, const char *list_name, const char *action,
                       bool *everything)
{
    json_t *domains = json_array(), *addresses = json_array(), *item, *rule;
    size_t i;

    *everything = false;
    json_array_foreach (json_object_get(network, list_name), i, item) {
        const char *text = json_string_value(item);

        if (is_everything(text))
            *everything = true;
        else if (is_name(text))
            json_array_append_new(domains, json_string(text));
        else
            json_array_append_new(addresses, plain_range(text));
    }
    rule = json_pack("{s:s, s:s}", "name", list_name, "action", action);
    if (json_array_size(domains))
        json_object_set(rule, "domains", domains);
    if (json_array_size(addresses))
        json_object_set(rule, "addresses", addresses);
    if (!json_array_size(domains) && !json_array_size(addresses)) {
        json_decref(rule);
        rule = NULL;
    }
    json_decref(domains);
    json_decref(addresses);
    return rule;
}

/* -- header transforms ------------------------------------------------------------------------- */

void e2b_rule_name(unsigned i, char out[static E2B_RULE_NAME_SIZE])
{
    (void)snprintf(out, E2B_RULE_NAME_SIZE, E2B_RULE_NAME "%u", i);
}

static void inject(json_t *list, const char *credential, const char *domain)
{
    json_array_append_new(list,
                          json_pack("{s:s, s:[s]}", "credential", credential, "domains", domain));
}

/* Secrets that the headers' values name, so that cay-egress is given them; which is put on a
 * request is the first's. */
static void inject_named(json_t *list, const json_t *headers, const char *domain)
{
    static const char begin[] = "${e2b.secrets.";
    const char *header;
    json_t *value;

    json_object_foreach ((json_t *)headers, header, value) {
        const char *at = json_string_value(value);

        while (at && (at = strstr(at, begin))) {
            size_t n = strcspn(at += strlen(begin), "}");
            char name[CORE_CREDENTIAL_NAME_MAX + 1];

            if (n > 0 && n < sizeof(name) && at[n] == '}') {
                (void)snprintf(name, sizeof(name), "%.*s", (int)n, at);
                inject(list, name, domain);
            }
        }
    }
}

/* The injections into requests; they allow none. Exact names before suffixes, as in a policy. */
static json_t *injections(const json_t *network)
{
    json_t *out = json_array(), *rules = json_object_get(network, "rules"), *list;
    const char *domain;
    unsigned i = 0;

    json_object_foreach (rules, domain, list) {
        json_t *transform = json_object_get(json_array_get(list, 0), "transform");
        json_t *headers = json_object_get(transform, "headers");
        char name[E2B_RULE_NAME_SIZE];

        e2b_rule_name(i++, name);
        if (json_object_size(headers) == 0)
            continue;
        inject(out, name, domain);
        inject_named(out, headers, domain);
    }
    return out;
}

json_t *e2b_policy(const json_t *network, bool allow_internet)
{
    bool allow_all, deny_all;
    json_t *allow = rule_of(network, "allowOut", "allow", &allow_all);
    json_t *deny = rule_of(network, "denyOut", "deny", &deny_all);
    json_t *rules = json_array(), *inject_list = injections(network);
    bool is_closing = closes(allow, !allow_all && (deny || deny_all || !allow_internet));
    json_t *policy;

    if (allow)
        json_array_append(rules, allow);
    if (deny && !allow_all)
        json_array_append(rules, deny);
    json_decref(allow);
    json_decref(deny);
    policy = json_pack("{s:s, s:o}", "default",
                       allow_all || (allow_internet && !deny_all) ? "public" : "deny", "rules",
                       rules);
    if (policy && is_closing)
        json_object_set_new(policy, "refusal", json_string("close"));
    if (policy && json_array_size(inject_list) > 0)
        json_object_set(policy, "inject", inject_list);
    json_decref(inject_list);
    return policy;
}
