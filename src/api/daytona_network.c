/* The three fields are kept as they were sent (settings, inside the sandbox's network object),
 * and are made into a policy each time they change; both ways are pure functions of one body.
 * Order: read or update the settings (checked whole, so that a mistake changes nothing), make
 * the policy, give both to core; show them from what is stored. */

#include "api/daytona_network.h"

#include "api/daytona_fields.h"
#include "base/util.h"
#include "http/json.h"
#include "policy/policy.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define BLOCK_ALL "networkBlockAll"
#define NETWORKS  "networkAllowList"
#define DOMAINS   "domainAllowList"

#define LABEL_MAX 63

/* The network settings of a body; strings are the body's. */
struct requested {
    bool has_block, block;
    const char *networks, *domains; /* NULL: absent. Empty or blank: to be cleared */
};

/* -- entries ----------------------------------------------------------------------------------- */

/* The next entry of a list without the blanks around it, from *at on, which moves behind it. The
 * length may be 0. False: there is none. */
static bool next_entry(const char **at, const char **entry, size_t *len)
{
    static const char blank[] = " \t\r\n";
    const char *from = *at;
    size_t n;

    if (!from)
        return false;
    n = strcspn(from, ",");
    *at = from[n] ? from + n + 1 : NULL;
    while (n > 0 && strchr(blank, from[n - 1]))
        n--;
    while (n > 0 && strchr(blank, *from)) {
        from++;
        n--;
    }
    *entry = from;
    *len = n;
    return true;
}

static size_t count_entries(const char *list)
{
    const char *entry;
    size_t n, count = 0;

    while (next_entry(&list, &entry, &n))
        count += n > 0;
    return count;
}

static enum err_code check_network(const char *text, struct err *e)
{
    char host[INET_ADDRSTRLEN];
    struct in_addr address;
    const char *slash = strchr(text, '/');
    size_t n = slash ? (size_t)(slash - text) : strlen(text), digits;

    (void)snprintf(host, sizeof(host), "%.*s", (int)MIN(n, sizeof(host) - 1), text);
    if (n >= sizeof(host) || inet_pton(AF_INET, host, &address) != 1)
        return err_set(e, ERR_INVALID,
                       "Invalid IP address: \"%.*s\" in network \"%.64s\". Must be a valid IPv4 "
                       "address",
                       (int)MIN(n, 64u), text, text);
    if (!slash || !slash[1])
        return err_set(e, ERR_INVALID,
                       "Invalid network format: \"%.64s\". Missing CIDR prefix length (e.g., /24)",
                       text);
    digits = strspn(slash + 1, "0123456789");
    if (slash[1 + digits] || digits > 3 || atoi(slash + 1) > 32)
        return err_set(e, ERR_INVALID,
                       "Invalid CIDR prefix length: %.64s. Prefix must be an integer between 0 and "
                       "32",
                       text);
    return ERR_OK;
}

/* Letters, digits and, inside, '-'; the last label letters alone, two of them at least. */
static bool is_label(const char *text, size_t n, bool last)
{
    if (n == 0 || n > LABEL_MAX || text[0] == '-' || text[n - 1] == '-' || (last && n < 2))
        return false;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];

        if (!(c < 0x80 && (isalpha(c) || (!last && (isdigit(c) || c == '-')))))
            return false;
    }
    return true;
}

static bool is_domain(const char *text)
{
    size_t labels = 0;

    if (strncmp(text, "*.", 2) == 0)
        text += 2;
    if (strlen(text) > POLICY_NAME_MAX)
        return false;
    for (;;) {
        size_t n = strcspn(text, ".");

        if (!is_label(text, n, text[n] == '\0'))
            return false;
        labels++;
        if (text[n] == '\0')
            return labels > 1;
        text += n + 1;
    }
}

static enum err_code check_domain(const char *text, struct err *e)
{
    if (is_domain(text))
        return ERR_OK;
    return err_set(e, ERR_INVALID,
                   "Invalid domain: \"%.64s\". Must be a valid ASCII domain (optional leading *.) "
                   "with an alphabetic top-level domain",
                   text);
}

static enum err_code check_list(const char *list,
                                enum err_code (*check)(const char *, struct err *), struct err *e)
{
    char text[POLICY_NAME_MAX + 4];
    const char *entry;
    enum err_code rc = ERR_OK;
    size_t n;

    while (rc == ERR_OK && next_entry(&list, &entry, &n)) {
        (void)snprintf(text, sizeof(text), "%.*s", (int)MIN(n, sizeof(text) - 1), entry);
        if (n > 0)
            rc = check(text, e); /* a text that was cut is too long for either */
    }
    return rc;
}

/* -- bodies ------------------------------------------------------------------------------------ */

static bool says_something(const char *list)
{
    return list && count_entries(list) > 0;
}

static enum err_code check_requested(const struct requested *a, struct err *e)
{
    bool networks = says_something(a->networks), domains = says_something(a->domains);
    enum err_code rc;

    if (networks && domains)
        return err_set(e, ERR_INVALID,
                       NETWORKS " and " DOMAINS " are mutually exclusive and cannot be set at the "
                                "same time. Provide only one of them.");
    if (a->block && (networks || domains))
        return err_set(e, ERR_INVALID,
                       BLOCK_ALL ": true cannot be combined with a non-empty " NETWORKS
                                 " or " DOMAINS ". Remove the allow-list(s) or set " BLOCK_ALL
                                 " to false.");
    if ((networks && (rc = check_list(a->networks, check_network, e))) ||
        (domains && (rc = check_list(a->domains, check_domain, e))))
        return rc;
    if (networks && count_entries(a->networks) > DAYTONA_NETWORKS_MAX)
        return err_set(e, ERR_INVALID, "Network allow list cannot contain more than %u networks",
                       DAYTONA_NETWORKS_MAX);
    if (domains && count_entries(a->domains) > DAYTONA_DOMAINS_MAX)
        return err_set(e, ERR_INVALID, "Domain allow list cannot contain more than %u domains",
                       DAYTONA_DOMAINS_MAX);
    return ERR_OK;
}

static enum err_code read_requested(const json_t *body, struct requested *a, struct err *e)
{
    enum err_code rc;

    *a = (struct requested){.has_block = json_is_boolean(json_object_get(body, BLOCK_ALL))};
    if ((rc = json_get_bool(body, BLOCK_ALL, NULL, JSON_OPTIONAL, &a->block, e)) ||
        (rc = json_get_str(body, NETWORKS, NULL, JSON_OPTIONAL, DAYTONA_LIST_MAX_BYTES,
                           &a->networks, e)) ||
        (rc = json_get_str(body, DOMAINS, NULL, JSON_OPTIONAL, DAYTONA_LIST_MAX_BYTES, &a->domains,
                           e)))
        return rc;
    return check_requested(a, e);
}

/* At most one of the three is there. */
static json_t *settings_of(const struct requested *a)
{
    if (a->block)
        return json_pack("{s:b}", BLOCK_ALL, true);
    if (says_something(a->networks))
        return json_pack("{s:s}", NETWORKS, a->networks);
    if (says_something(a->domains))
        return json_pack("{s:s}", DOMAINS, a->domains);
    return json_object();
}

static enum err_code give(json_t *settings, json_t **out, struct err *e)
{
    if (!settings)
        return err_set(e, ERR_UNAVAILABLE, "memory is out");
    *out = settings;
    return ERR_OK;
}

enum err_code daytona_network_read(const json_t *body, json_t **settings, struct err *e)
{
    struct requested a;
    enum err_code rc = read_requested(body, &a, e);

    return rc == ERR_OK ? give(settings_of(&a), settings, e) : rc;
}

/* null is no way to clear a field, and a client that sends it means something: not taken for
 * absent. Nor is what is not known passed over. */
static enum err_code check_update(const json_t *body, struct err *e)
{
    static const struct daytona_field known[] = {
        {BLOCK_ALL, NULL}, {NETWORKS, NULL}, {DOMAINS, NULL}};
    const char *name;
    json_t *value;

    if (json_object_size(body) == 0)
        return err_set(e, ERR_INVALID,
                       "At least one of " BLOCK_ALL ", " NETWORKS " or " DOMAINS
                       " must be provided");
    enum err_code rc = daytona_fields_check(body, known, ARRAY_SIZE(known), e);
    if (rc != ERR_OK)
        return rc;
    json_object_foreach ((json_t *)body, name, value)
        if (json_is_null(value))
            return err_set(e, ERR_INVALID, "%s must be a %s", name,
                           strcmp(name, BLOCK_ALL) == 0 ? "boolean value"
                                                        : "string; \"\" clears it");
    return ERR_OK;
}

static json_t *without_cleared(const json_t *before, const struct requested *a)
{
    json_t *settings = json_deep_copy(before);

    if (a->networks)
        json_object_del(settings, NETWORKS);
    if (a->domains)
        json_object_del(settings, DOMAINS);
    return settings;
}

enum err_code daytona_network_update(const json_t *before, const json_t *body, json_t **settings,
                                     struct err *e)
{
    struct requested a;
    enum err_code rc = check_update(body, e);

    if (rc == ERR_OK)
        rc = read_requested(body, &a, e);
    if (rc != ERR_OK)
        return rc;
    if (a.has_block || says_something(a.networks) || says_something(a.domains))
        return give(settings_of(&a), settings, e);
    /* Lists that are not there are cleared: that must not open what another call has closed. */
    if (before)
        return give(without_cleared(before, &a), settings, e);
    *settings = NULL;
    return ERR_OK;
}

/* -- as a policy ------------------------------------------------------------------------------- */

static json_t *networks_of(const char *list, bool *everything)
{
    json_t *out = json_array();
    const char *entry;
    size_t n;

    while (next_entry(&list, &entry, &n)) {
        char text[POLICY_RANGE_SIZE], plain[POLICY_RANGE_SIZE];

        (void)snprintf(text, sizeof(text), "%.*s", (int)MIN(n, sizeof(text) - 1), entry);
        if (n == 0 || !policy_range_plain(text, plain))
            continue;
        if (strcmp(plain, "0.0.0.0/0") == 0)
            *everything = true;
        else
            json_array_append_new(out, json_string(plain));
    }
    return out;
}

/* "*.example.org" in a policy is only what is below that name. */
static json_t *domains_of(const char *list)
{
    json_t *out = json_array();
    const char *entry;
    size_t n;

    while (next_entry(&list, &entry, &n)) {
        if (n == 0)
            continue;
        json_array_append_new(out, json_stringn(entry, n));
        if (n > 2 && strncmp(entry, "*.", 2) == 0)
            json_array_append_new(out, json_stringn(entry + 2, n - 2));
    }
    return out;
}

static json_t *policy_of(const char *preset, const char *name, const char *what, json_t *entries)
{
    if (json_array_size(entries) > 0)
        return json_pack("{s:s, s:[{s:s, s:s, s:o}]}", "default", preset, "rules", "name", name,
                         "action", "allow", what, entries);
    json_decref(entries);
    return json_pack("{s:s}", "default", preset);
}

/* Upstream drops what it blocks, so that connections fail and programs with them. With names there
 * is a program that works by them, as a rule an agent: it is told what is allowed instead. */
static json_t *closing(json_t *policy)
{
    if (policy)
        json_object_set_new(policy, "refusal", json_string("close"));
    return policy;
}

json_t *daytona_network_policy(const json_t *settings)
{
    const char *networks = json_string_value(json_object_get(settings, NETWORKS));
    const char *domains = json_string_value(json_object_get(settings, DOMAINS));
    bool everything = false;
    json_t *entries;

    if (json_is_true(json_object_get(settings, BLOCK_ALL)))
        return closing(json_pack("{s:s}", "default", "deny"));
    if (networks) {
        entries = networks_of(networks, &everything);
        if (everything)
            return policy_of("public", NETWORKS, "addresses", entries);
        return closing(policy_of("deny", NETWORKS, "addresses", entries));
    }
    if (domains)
        return policy_of("deny", DOMAINS, "domains", domains_of(domains));
    return json_pack("{s:s}", "default", "public");
}

/* -- as it is shown ---------------------------------------------------------------------------- */

const json_t *daytona_network_of(const json_t *network)
{
    return json_object_get(network, DAYTONA_NETWORK_KEY);
}

static bool allows_nothing(const json_t *policy)
{
    const char *preset = json_string_value(json_object_get(policy, "default"));
    const json_t *rule;
    size_t i;

    if (preset && strcmp(preset, "deny") != 0)
        return false;
    json_array_foreach (json_object_get(policy, "rules"), i, rule) {
        const char *action = json_string_value(json_object_get(rule, "action"));

        if (!action || strcmp(action, "deny") != 0)
            return false;
    }
    return json_array_size(json_object_get(policy, "presets")) == 0;
}

void daytona_network_show(const json_t *network, const json_t *policy, json_t *out)
{
    static const char *const lists[] = {NETWORKS, DOMAINS};
    const json_t *settings = daytona_network_of(network);
    json_t *list;

    json_object_set_new(out, BLOCK_ALL, json_boolean(allows_nothing(policy)));
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
        if ((list = json_object_get(settings, lists[i])))
            json_object_set(out, lists[i], list);
}
