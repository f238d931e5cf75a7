/* E2B's network object as a policy (policy/policy.h). Sources: the SDK's network types and upstream's
 * firewall: an allowed destination beats a denied one; what no list names is the internet, or nothing
 * where everything is denied or internet access is off. */
#include "api/e2b.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

/* All of the internet in one entry. */
static bool is_everything(const char *text)
{
    return strcmp(text, "*") == 0 || strcmp(text, "0.0.0.0/0") == 0 || strcmp(text, "::/0") == 0;
}

/* 10.0.0.1/8 is taken as 10.0.0.0/8, as upstream does; a policy takes only the latter. */
static json_t *plain_range(const char *text)
{
    char host[INET6_ADDRSTRLEN], out[INET6_ADDRSTRLEN + 4];
    unsigned char raw[sizeof(struct in6_addr)];
    const char *slash = strchr(text, '/');
    size_t n = slash ? (size_t)(slash - text) : strlen(text);
    int family;
    unsigned bits;

    if (!slash || n >= sizeof(host))
        return json_string(text);
    memcpy(host, text, n);
    host[n] = '\0';
    family = strchr(host, ':') ? AF_INET6 : AF_INET;
    bits = (unsigned)atoi(slash + 1);
    if (inet_pton(family, host, raw) != 1)
        return json_string(text); /* the policy's own check refuses it */
    for (unsigned bit = bits; bit < (family == AF_INET ? 32u : 128u); bit++)
        raw[bit / 8] &= (unsigned char)~(0x80u >> bit % 8);
    inet_ntop(family, raw, host, sizeof(host));
    (void)snprintf(out, sizeof(out), "%s/%u", host, bits);
    return json_string(out);
}

static bool is_name(const char *text)
{
    unsigned char raw[sizeof(struct in6_addr)];

    return !strchr(text, '/') && inet_pton(AF_INET, text, raw) != 1 &&
           inet_pton(AF_INET6, text, raw) != 1;
}

/* One rule of a list, or NULL when it is empty. *everything: the list names all of the internet. */
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

json_t *e2b_policy(const json_t *network, bool allow_internet)
{
    bool allow_all, deny_all;
    json_t *allow = rule_of(network, "allowOut", "allow", &allow_all);
    json_t *deny = rule_of(network, "denyOut", "deny", &deny_all);
    json_t *rules = json_array();

    if (allow)
        json_array_append(rules, allow);
    if (deny && !allow_all)
        json_array_append(rules, deny);
    json_decref(allow);
    json_decref(deny);
    return json_pack("{s:s, s:o}", "default",
                     allow_all || (allow_internet && !deny_all) ? "public" : "deny", "rules",
                     rules);
}
