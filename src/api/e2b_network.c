/* E2B's network object, from a create's body or from PUT .../network (e2b_network_put.c): checked
 * here by E2B's own rules first; header values of its rules are sealed as credentials before
 * anything is stored, and hidden from it; the rest is kept as the client sent it for the listings,
 * and split into core's own setting, policy and credentials (e2b_policy.c). */

#include "api/daytona_network.h"
#include "api/e2b.h"
#include "base/port.h"
#include "http/json.h"
#include "policy/policy.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Limits of E2B's own validation. */
#define ADDRESSES_MAX     1024u
#define ADDRESS_MAX_BYTES 253u
#define RULE_DOMAINS_MAX  10u
#define RULE_DOMAIN_BYTES 128u
#define RULE_HEADERS_MAX  20u
#define RULE_NAME_BYTES   64u
#define RULE_VALUE_BYTES  2048u
#define PROXY_TEXT_BYTES  255u

static bool is_address_or_cidr(const char *text)
{
    char host[64];
    unsigned char raw[16];
    const char *slash = strchr(text, '/');
    size_t n = slash ? (size_t)(slash - text) : strlen(text);
    bool v4;

    if (n == 0 || n >= sizeof(host))
        return false;
    memcpy(host, text, n);
    host[n] = '\0';
    v4 = inet_pton(AF_INET, host, raw) == 1;
    if (!v4 && inet_pton(AF_INET6, host, raw) != 1)
        return false;
    if (!slash)
        return true;
    n = strlen(slash + 1);
    if (n < 1 || n > 3 || strspn(slash + 1, "0123456789") != n)
        return false;
    return atoi(slash + 1) <= (v4 ? 32 : 128);
}

/* "example.com", "*.example.com", "*": labels of letters, digits, - and _. */
static bool is_domain(const char *text)
{
    size_t len = strlen(text), label = 0;

    if (strncmp(text, "*.", 2) == 0)
        text += 2;
    else if (strcmp(text, "*") == 0)
        return true;
    if (len == 0 || len > ADDRESS_MAX_BYTES)
        return false;
    for (; *text; text++) {
        if (*text == '.') {
            if (label == 0)
                return false;
            label = 0;
        } else if (isalnum((unsigned char)*text) || *text == '-' || *text == '_') {
            if (++label > 63)
                return false;
        } else {
            return false;
        }
    }
    return label > 0;
}

static enum err_code check_list(const json_t *network, const char *name, bool domains_too,
                                bool *saw_domain, bool *saw_all, struct err *e)
{
    json_t *list = NULL, *item;
    enum err_code rc = json_get_arr(network, name, NULL, JSON_OPTIONAL, &list, e);
    size_t i;

    if (rc != ERR_OK || !list)
        return rc;
    if (json_array_size(list) > ADDRESSES_MAX)
        return err_set(e, ERR_INVALID, "%s has more than %u entries", name, ADDRESSES_MAX);
    json_array_foreach (list, i, item) {
        const char *text = json_string_value(item);

        if (!text)
            return err_set(e, ERR_INVALID, "%s[%zu] must be a string", name, i);
        if (is_address_or_cidr(text))
            *saw_all |= strcmp(text, "0.0.0.0/0") == 0;
        else if (domains_too && is_domain(text))
            *saw_domain = true;
        else
            return err_set(e, ERR_INVALID,
                           "%s[%zu]: \"%.64s\" is not an IP address or CIDR block%s", name, i, text,
                           domains_too ? " or domain name" : "");
    }
    return ERR_OK;
}

static enum err_code check_transform(const char *domain, const json_t *rule, struct err *e)
{
    json_t *transform = NULL, *headers = NULL, *value;
    const char *name;
    enum err_code rc = json_get_obj(rule, "transform", NULL, JSON_OPTIONAL, &transform, e);

    if (rc == ERR_OK && transform)
        rc = json_get_obj(transform, "headers", NULL, JSON_OPTIONAL, &headers, e);
    if (rc != ERR_OK || !headers)
        return rc;
    if (json_object_size(headers) > RULE_HEADERS_MAX)
        return err_set(e, ERR_INVALID, "rules for \"%.128s\" have more than %u headers", domain,
                       RULE_HEADERS_MAX);
    json_object_foreach (headers, name, value) {
        const char *text = json_string_value(value);

        if (!*name || strlen(name) > RULE_NAME_BYTES || strpbrk(name, " \t\r\n:"))
            return err_set(e, ERR_INVALID, "rules for \"%.128s\": \"%.64s\" is not a header name",
                           domain, name);
        if (text && strcmp(text, E2B_HIDDEN) == 0)
            return err_set(e, ERR_INVALID,
                           "rules for \"%.128s\": %s is how the value of %.64s is shown, not the "
                           "value: it has to be sent again",
                           domain, E2B_HIDDEN, name);
        if (!text || strlen(text) > RULE_VALUE_BYTES || strpbrk(text, "\r\n"))
            return err_set(
                e, ERR_INVALID,
                "rules for \"%.128s\": the value of %.64s must be one line of at most %u bytes",
                domain, name, RULE_VALUE_BYTES);
    }
    return ERR_OK;
}

static enum err_code check_rules(const json_t *network, struct err *e)
{
    json_t *rules = NULL, *list;
    const char *domain;
    enum err_code rc = json_get_obj(network, "rules", NULL, JSON_OPTIONAL, &rules, e);

    if (rc != ERR_OK || !rules)
        return rc;
    if (json_object_size(rules) > RULE_DOMAINS_MAX)
        return err_set(e, ERR_INVALID, "rules name more than %u domains", RULE_DOMAINS_MAX);
    json_object_foreach (rules, domain, list) {
        if (strlen(domain) > RULE_DOMAIN_BYTES || !is_domain(domain) || strcmp(domain, "*") == 0)
            return err_set(e, ERR_INVALID, "rules: \"%.128s\" is not a domain name", domain);
        if (!json_is_array(list) || json_array_size(list) > 1)
            return err_set(e, ERR_INVALID,
                           "rules for \"%.128s\" must be a list of at most one rule", domain);
        if (json_array_size(list) == 0)
            continue;
        if (!json_is_object(json_array_get(list, 0)))
            return err_set(e, ERR_INVALID, "rules for \"%.128s\": a rule must be an object",
                           domain);
        rc = check_transform(domain, json_array_get(list, 0), e);
        if (rc != ERR_OK)
            return rc;
    }
    return ERR_OK;
}

/* The proxy is dialled by cay-egress: by an address in digits, so that it is the one that was
 * checked, and a public one, so that no client gets into the operator's network by naming it. */
static enum err_code check_proxy_address(const char *address, const char *colon, struct err *e)
{
    struct policy_address a;
    char host[64];

    (void)snprintf(host, sizeof(host), "%.*s", (int)MIN(colon - address, 63), address);
    if (policy_address_parse(host, &a) < 0)
        return err_set(e, ERR_INVALID,
                       "egressProxy.address: this server takes an address in digits, as "
                       "203.0.113.7:1080, not a name");
    if (!policy_address_is_public(&a))
        return err_set(e, ERR_INVALID, "egressProxy.address: %s is not a public address", host);
    return ERR_OK;
}

static enum err_code check_proxy(const json_t *network, struct err *e)
{
    json_t *proxy = NULL;
    const char *address = NULL, *user = NULL, *password = NULL;
    const char *colon;
    enum err_code rc = json_get_obj(network, "egressProxy", NULL, JSON_OPTIONAL, &proxy, e);

    if (rc != ERR_OK || !proxy)
        return rc;
    if ((rc = json_get_str(proxy, "address", NULL, JSON_REQUIRED, PROXY_TEXT_BYTES, &address, e)) ||
        (rc = json_get_str(proxy, "username", NULL, JSON_OPTIONAL, PROXY_TEXT_BYTES, &user, e)) ||
        (rc = json_get_str(proxy, "password", NULL, JSON_OPTIONAL, PROXY_TEXT_BYTES, &password, e)))
        return rc;
    colon = strrchr(address, ':');
    if (!colon || colon == address || !port_from_text(colon + 1))
        return err_set(e, ERR_INVALID, "egressProxy.address must be host:port");
    if (password && *password)
        return err_set(e, ERR_INVALID,
                       "egressProxy.password: not supported by this server, which would have to "
                       "store it in clear; use a proxy that knows this machine by its address");
    return check_proxy_address(address, colon, e);
}

/* A host name with optional port, in ASCII; ${PORT} stands for the port that is asked for. */
static enum err_code check_mask(const json_t *network, struct err *e)
{
    const char *mask = NULL;
    enum err_code rc = json_get_str(network, E2B_MASK_KEY, NULL, JSON_OPTIONAL, 253, &mask, e);

    if (rc != ERR_OK || !mask)
        return rc;
    for (const char *at = mask; *at; at++) {
        if (strncmp(at, "${PORT}", 7) == 0)
            at += 6;
        else if (!isalnum((unsigned char)*at) && !strchr(".-_:[]", *at))
            return err_set(e, ERR_INVALID, "mask request host is not valid: %s", mask);
    }
    return *mask ? ERR_OK : err_set(e, ERR_INVALID, "mask request host is not valid: it is empty");
}

enum err_code e2b_network_check(const json_t *network, struct err *e)
{
    bool saw_domain = false, saw_all = false, ignored = false, public_traffic;
    enum err_code rc;

    if ((rc = check_list(network, "denyOut", false, &ignored, &saw_all, e)) ||
        (rc = check_list(network, "allowOut", true, &saw_domain, &ignored, e)) ||
        (rc = check_rules(network, e)) || (rc = check_proxy(network, e)) ||
        (rc = check_mask(network, e)) ||
        (rc = json_get_bool(network, E2B_PUBLIC_KEY, NULL, JSON_OPTIONAL, &public_traffic, e)))
        return rc;
    if (saw_domain && !saw_all)
        return err_set(e, ERR_INVALID,
                       "When specifying allowed domains in allow out, you must include "
                       "'ALL_TRAFFIC' in deny out to block all other traffic.");
    return ERR_OK;
}

enum err_code e2b_network_keep(const json_t *network, const json_t *body, json_t **out,
                               struct err *e)
{
    json_t *internet = json_object_get(body, E2B_INTERNET_KEY);
    json_t *kept;
    enum err_code rc = network ? e2b_network_check(network, e) : ERR_OK;

    if (rc != ERR_OK)
        return rc;
    if (internet && !json_is_boolean(internet) && !json_is_null(internet))
        return err_set(e, ERR_INVALID, "\"%s\" must be true or false", E2B_INTERNET_KEY);
    if (!network && !json_is_boolean(internet)) {
        *out = NULL;
        return ERR_OK;
    }
    kept = network ? json_deep_copy(network) : json_object();
    json_object_del(kept, E2B_INTERNET_KEY);
    json_object_del(kept,
                    DAYTONA_NETWORK_KEY); /* only what Daytona's calls have checked is there */
    if (json_is_boolean(internet))
        json_object_set(kept, E2B_INTERNET_KEY, internet);
    *out = kept;
    return ERR_OK;
}

enum err_code e2b_network_update(const json_t *before, const json_t *body, json_t **out,
                                 struct err *e)
{
    static const char *const egress[] = {"allowOut", "denyOut", "rules", "egressProxy"};
    static const char *const ingress[] = {E2B_PUBLIC_KEY, E2B_MASK_KEY, "httpsPorts"};
    json_t *next = json_object(), *value;
    enum err_code rc;

    for (size_t i = 0; i < ARRAY_SIZE(ingress); i++)
        if ((value = json_object_get(before, ingress[i])))
            json_object_set(next, ingress[i], value);
    for (size_t i = 0; i < ARRAY_SIZE(egress); i++)
        if ((value = json_object_get(body, egress[i])) && !json_is_null(value))
            json_object_set(next, egress[i], value);
    rc = e2b_network_keep(next, body, out, e);
    json_decref(next);
    return rc;
}

enum err_code e2b_network_ingress(const json_t *before, json_t **out, struct err *e)
{
    json_t *nothing = json_object();
    enum err_code rc = e2b_network_update(before, nothing, out, e);

    json_decref(nothing);
    return rc;
}

/* -- header transforms ------------------------------------------------------------------------- */

static json_t *headers_of(const json_t *list)
{
    json_t *transform = json_object_get(json_array_get(list, 0), "transform");

    return json_object_get(transform, "headers");
}

json_t *e2b_network_secrets(const json_t *network)
{
    json_t *out = json_array(), *list;
    const char *domain;
    unsigned i = 0;

    json_object_foreach (json_object_get(network, "rules"), domain, list) {
        char name[E2B_RULE_NAME_SIZE];

        e2b_rule_name(i++, name);
        if (json_object_size(headers_of(list)) > 0)
            json_array_append_new(out, json_pack("{s:s, s:{s:s, s:[s]}, s:o}", "name", name, "bind",
                                                 "kind", "headers", "domains", domain, "value",
                                                 json_deep_copy(headers_of(list))));
    }
    return out;
}

void e2b_network_hide(json_t *network)
{
    json_t *list;
    const char *domain;

    json_object_foreach (json_object_get(network, "rules"), domain, list) {
        json_t *headers = headers_of(list);

        for (void *at = json_object_iter(headers); at; at = json_object_iter_next(headers, at))
            json_object_iter_set_new(headers, at, json_string(E2B_HIDDEN));
    }
}

json_t *e2b_network_shown(const json_t *network)
{
    json_t *shown, *proxy;

    if (!network)
        return NULL;
    shown = json_deep_copy(network);
    json_object_del(shown, E2B_INTERNET_KEY);
    json_object_del(shown, DAYTONA_NETWORK_KEY);
    proxy = json_object_get(shown, "egressProxy");
    if (json_is_object(proxy))
        json_object_del(proxy, "password");
    if (json_object_size(shown) == 0) {
        json_decref(shown);
        return NULL;
    }
    return shown;
}

/* -- what core reads of it --------------------------------------------------------------------- */

enum err_code e2b_network_setting(json_t *network, struct network **out, struct err *e)
{
    const json_t *proxy = json_object_get(network, "egressProxy");
    const struct network_fields f = {
        .private_ports = json_is_false(json_object_get(network, E2B_PUBLIC_KEY)),
        .masked_host = json_string_value(json_object_get(network, E2B_MASK_KEY)),
        .proxy_address = json_string_value(json_object_get(proxy, "address")),
        .proxy_user = json_string_value(json_object_get(proxy, "username")),
        .shown = network};
    struct network *n = network ? network_new(&f) : NULL;

    if (network && !n)
        return err_set(e, ERR_UNAVAILABLE, "memory is out");
    *out = n;
    return ERR_OK;
}

enum err_code e2b_network_split(json_t *network, bool internet, struct network **setting,
                                json_t **policy, json_t **secrets, struct err *e)
{
    *policy = e2b_policy(network, internet);
    *secrets = e2b_network_secrets(network);
    e2b_network_hide(network);
    if (!*policy || !*secrets)
        return err_set(e, ERR_UNAVAILABLE, "memory is out");
    return e2b_network_setting(network, setting, e);
}
