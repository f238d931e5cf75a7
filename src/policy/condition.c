/* Each condition's functions, then the table: see condition.h. */
#include "base/port.h"
#include "policy/address.h"
#include "policy/internal.h"
#include "policy/pattern.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define METHOD_MAX     32
#define PATH_MAX_BYTES 1024

static int take_text(const char *text, union entry *out)
{
    out->text = strdup(text);
    return out->text ? 0 : -ENOMEM;
}

static void print_text(const union entry *e, char *out, size_t size)
{
    (void)snprintf(out, size, "%s", e->text);
}

static void clear_text(union entry *e)
{
    free((char *)(uintptr_t)e->text);
}

static void clear_nothing(union entry *e)
{
}

/* -- domains ----------------------------------------------------------------------------------- */

#define condition_domains_allowed                              \
    "a host name or *.suffix, in ASCII, and nothing besides: " \
    "ports, paths and addresses have keys of their own"
#define condition_domains_print print_text
#define condition_domains_clear clear_text

static int condition_domains_read(const json_t *json, union entry *out)
{
    char name[POLICY_NAME_MAX + 3];
    const char *text = json_string_value(json);

    if (!text || pattern_domain_normalize(text, name) < 0)
        return -EINVAL;
    return take_text(name, out);
}

static bool condition_domains_matches(const union entry *e, const struct subject *s, bool denies)
{
    return pattern_domain(e->text, s->name);
}

static bool condition_domains_overlaps(const union entry *a, const union entry *b)
{
    return pattern_domains_overlap(a->text, b->text);
}

static void condition_domains_describe(const struct subject *s, char *out, size_t size)
{
    (void)snprintf(out, size, "this host");
}

/* -- addresses --------------------------------------------------------------------------------- */

#define condition_addresses_allowed \
    "an IP address or a range such as 203.0.113.0/24, with no bits set after the prefix"
#define condition_addresses_clear clear_nothing

static int condition_addresses_read(const json_t *json, union entry *out)
{
    const char *text = json_string_value(json);

    return text ? address_range_parse(text, &out->range) : -EINVAL;
}

static bool condition_addresses_matches(const union entry *e, const struct subject *s, bool denies)
{
    return denies ? address_reaches(&e->range, s->a) : address_in(&e->range, s->a);
}

static bool condition_addresses_overlaps(const union entry *a, const union entry *b)
{
    return address_ranges_overlap(&a->range, &b->range);
}

static void condition_addresses_describe(const struct subject *s, char *out, size_t size)
{
    (void)snprintf(out, size, "this address");
}

static void condition_addresses_print(const union entry *e, char *out, size_t size)
{
    address_range_format(&e->range, out, size);
}

/* -- ports ------------------------------------------------------------------------------------- */

#define condition_ports_allowed "a port, 1 to 65535, or a range such as \"8000-8100\""
#define condition_ports_clear   clear_nothing

bool condition_port_from_text(const char **text, uint16_t *out)
{
    size_t n = strspn(*text, "0123456789");

    *out = port_from_digits(*text, n);
    *text += n;
    return *out > 0;
}

static int condition_ports_read(const json_t *json, union entry *out)
{
    const char *text = json_string_value(json);
    json_int_t v = json_integer_value(json);
    struct ports *p = &out->ports;

    if (json_is_integer(json) && v >= 1 && v <= 65535) {
        *p = (struct ports){(uint16_t)v, (uint16_t)v};
        return 0;
    }
    if (!text || !condition_port_from_text(&text, &p->first))
        return -EINVAL;
    p->last = p->first;
    if (*text == '-' && (text++, !condition_port_from_text(&text, &p->last)))
        return -EINVAL;
    return *text == '\0' && p->first <= p->last ? 0 : -EINVAL;
}

static bool condition_ports_matches(const union entry *e, const struct subject *s, bool denies)
{
    return s->port >= e->ports.first && s->port <= e->ports.last;
}

static bool condition_ports_overlaps(const union entry *a, const union entry *b)
{
    return a->ports.first <= b->ports.last && b->ports.first <= a->ports.last;
}

static void condition_ports_describe(const struct subject *s, char *out, size_t size)
{
    (void)snprintf(out, size, "port %u", s->port);
}

static void condition_ports_print(const union entry *e, char *out, size_t size)
{
    const struct ports *p = &e->ports;

    (void)snprintf(out, size, p->first == p->last ? "%u" : "%u-%u", p->first, p->last);
}

/* -- methods ----------------------------------------------------------------------------------- */

#define condition_methods_allowed "a method in capitals, such as \"GET\""
#define condition_methods_print   print_text
#define condition_methods_clear   clear_text

static int condition_methods_read(const json_t *json, union entry *out)
{
    const char *text = json_string_value(json);
    size_t n = text ? strlen(text) : 0;

    for (size_t k = 0; k < n; k++)
        if (!isupper((unsigned char)text[k]) && text[k] != '-')
            return -EINVAL;
    return n == 0 || n > METHOD_MAX ? -EINVAL : take_text(text, out);
}

static bool condition_methods_matches(const union entry *e, const struct subject *s, bool denies)
{
    return strcmp(e->text, s->method) == 0 || (denies && strcasecmp(e->text, s->method) == 0);
}

static bool condition_methods_overlaps(const union entry *a, const union entry *b)
{
    return strcmp(a->text, b->text) == 0;
}

static void condition_methods_describe(const struct subject *s, char *out, size_t size)
{
    (void)snprintf(out, size, "this method");
}

/* -- paths ------------------------------------------------------------------------------------- */

#define condition_paths_allowed                                                            \
    "a path that begins with /, without query, empty or dot parts or needless escapes; * " \
    "stands for anything in one part, at the end for the rest"
#define condition_paths_print print_text
#define condition_paths_clear clear_text

/* The pattern itself has to be what a plain path can match. */
static int condition_paths_read(const json_t *json, union entry *out)
{
    const char *text = json_string_value(json);

    if (!text || strlen(text) > PATH_MAX_BYTES || strchr(text, '?') ||
        pattern_path_is_ambiguous(text))
        return -EINVAL;
    return take_text(text, out);
}

/* A path that can be read in two ways is allowed by no condition and denied by every one. */
static bool condition_paths_matches(const union entry *e, const struct subject *s, bool denies)
{
    if (!s->path || s->is_ambiguous)
        return denies;
    return denies ? pattern_path_denied(e->text, s->path) : pattern_path(e->text, s->path);
}

/* Two patterns are compared as far as both are plain text. */
static bool condition_paths_overlaps(const union entry *a, const union entry *b)
{
    size_t n = strcspn(a->text, "*"), m = strcspn(b->text, "*");

    if (!a->text[n])
        return pattern_path(b->text, a->text);
    if (!b->text[m])
        return pattern_path(a->text, b->text);
    return strncmp(a->text, b->text, MIN(n, m)) == 0;
}

static void condition_paths_describe(const struct subject *s, char *out, size_t size)
{
    (void)snprintf(out, size, "this path%s",
                   s->is_ambiguous ? " (it can be read in two ways)" : "");
}

/* -- the table --------------------------------------------------------------------------------- */

#define ROW(id, name, when, injections)                          \
    [CONDITION_##id] = {.key = #name,                            \
                        .stage = CONDITION_##when,               \
                        .in_injections = (injections),           \
                        .allowed = condition_##name##_allowed,   \
                        .read = condition_##name##_read,         \
                        .matches = condition_##name##_matches,   \
                        .overlaps = condition_##name##_overlaps, \
                        .describe = condition_##name##_describe, \
                        .print = condition_##name##_print,       \
                        .clear = condition_##name##_clear},

const struct condition conditions[CONDITION_COUNT] = {CONDITIONS(ROW)};

const struct condition *condition_find(const char *key)
{
    for (size_t i = 0; i < CONDITION_COUNT; i++)
        if (strcmp(conditions[i].key, key) == 0)
            return &conditions[i];
    return NULL;
}

void condition_keys(bool injection, char *out, size_t size)
{
    size_t used = 0;

    for (size_t i = 0; i < CONDITION_COUNT && used < size; i++)
        if (!injection || conditions[i].in_injections)
            used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "",
                                     conditions[i].key);
}

const char *policy_binding_key(size_t i)
{
    for (size_t c = 0; c < CONDITION_COUNT; c++)
        if (conditions[c].in_injections && i-- == 0)
            return conditions[c].key;
    return NULL;
}
