/* The grammar is that of distribution/reference: a first part with a dot or a colon, or localhost,
 * is a host. Lower case alone, so that one image has one name. Addresses as hosts are refused:
 * policies name hosts, and no certificate stands for most addresses. */
#include "image/reference.h"

#include "base/port.h"
#include "base/util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HUB        "docker.io"
#define LOWER      "abcdefghijklmnopqrstuvwxyz0123456789"
#define WORD       LOWER "ABCDEFGHIJKLMNOPQRSTUVWXYZ_"
#define PORT_HTTPS 443

/* -- parts ------------------------------------------------------------------------------------- */

/* A DNS name of lower case, with a letter in its last part, and ":PORT" or not. */
static bool is_host(const char *text, size_t len)
{
    const char *colon = memchr(text, ':', len);
    size_t name = colon ? (size_t)(colon - text) : len, last = name;

    if (len == 0 || len >= IMAGE_HOST_SIZE || name == 0 || text[0] == '.' || text[0] == '-' ||
        text[name - 1] == '.' || text[name - 1] == '-' || strspn(text, LOWER ".-") < name)
        return false;
    for (size_t i = 1; i < name; i++)
        if (text[i] == '.' && text[i - 1] == '.')
            return false;
    while (last > 0 && text[last - 1] != '.')
        last--;
    if (strspn(text + last, "0123456789") >= name - last)
        return false;
    return !colon || port_from_digits(colon + 1, len - name - 1) > 0;
}

/* Parts of lower case between slashes, that begin and end with a letter or digit. */
static bool is_repository(const char *text, size_t len)
{
    if (len == 0 || len >= IMAGE_REPOSITORY_SIZE || strspn(text, LOWER "._-/") < len)
        return false;
    for (size_t i = 0; i < len; i++) {
        bool begins = i == 0 || text[i - 1] == '/';
        bool ends = i + 1 == len || text[i + 1] == '/';

        if ((begins || ends) && !strchr(LOWER, text[i]))
            return false;
    }
    return true;
}

static bool is_tag(const char *text)
{
    size_t len = strlen(text);

    return len > 0 && len < IMAGE_REFERENCE_TAG_SIZE && strspn(text, WORD ".-") == len &&
           strchr(WORD, text[0]);
}

static bool first_is_host(const char *text, size_t first)
{
    return memchr(text, '.', first) || memchr(text, ':', first) ||
           (first == 9 && memcmp(text, "localhost", 9) == 0);
}

/* -- the whole --------------------------------------------------------------------------------- */

static enum err_code wrong(const char *text, const char *what, struct err *e)
{
    return err_set(e, ERR_INVALID,
                   "\"%.200s\" is no name of an image: %s; it is as debian:12, "
                   "registry.example.com/team/app:1 or NAME@sha256:...",
                   text, what);
}

/* Reads the tag or digest that follows the repository. */
static enum err_code read_version(const char *text, const char *rest, struct image_reference *out,
                                  struct err *e)
{
    const char *at = strchr(rest, '@');
    char tag[IMAGE_REFERENCE_TAG_SIZE] = "latest";

    if (at && !image_digest_is_valid(at + 1))
        return wrong(text, "its '@' is followed by no SHA-256 digest", e);
    if (rest[0] == ':') {
        size_t n = at ? (size_t)(at - rest) - 1 : strlen(rest) - 1;

        (void)snprintf(tag, sizeof(tag), "%.*s", (int)MIN(n, sizeof(tag) - 1), rest + 1);
        if (n >= sizeof(tag) || !is_tag(tag))
            return wrong(text, "its tag is none", e);
    }
    if (at)
        memcpy(out->digest, at + 1, sizeof(out->digest));
    else
        memcpy(out->tag, tag, sizeof(out->tag));
    return ERR_OK;
}

enum err_code image_reference_parse(const char *text, struct image_reference *out, struct err *e)
{
    struct image_reference r = {.host = HUB};
    size_t first = strcspn(text, "/"), len;
    const char *path = text, *library = "";

    if (text[first] == '/' && first_is_host(text, first)) {
        if (!is_host(text, first))
            return wrong(text, "its registry is none that can be named", e);
        memcpy(r.host, text, first);
        r.host[first] = '\0';
        path = text + first + 1;
        if (strcmp(r.host, "index.docker.io") == 0)
            memcpy(r.host, HUB, sizeof(HUB));
    }
    len = strcspn(path, ":@");
    if (!is_repository(path, len))
        return wrong(text, "its repository is of lower case letters, digits, '.', '_', '-'", e);
    if (strcmp(r.host, HUB) == 0 && !memchr(path, '/', len))
        library = "library/";
    if (strlen(library) + len >= sizeof(r.repository))
        return wrong(text, "its repository is too long", e);
    (void)snprintf(r.repository, sizeof(r.repository), "%s%.*s", library, (int)len, path);
    if (read_version(text, path + len, &r, e) != ERR_OK)
        return e->code;
    *out = r;
    return ERR_OK;
}

void image_reference_source(const struct image_reference *r, const char *digest,
                            char out[static IMAGE_SOURCE_SIZE])
{
    const char *d = digest && *digest ? digest : r->digest;

    (void)snprintf(out, IMAGE_SOURCE_SIZE, "docker://%s/%s%s%s", r->host, r->repository,
                   *d ? "@" : ":", *d ? d : r->tag);
}

/* -- lists ------------------------------------------------------------------------------------- */

/* The next entry of a list, without the blanks around it; *len 0 at its end. */
static const char *next_entry(const char **rest, size_t *len)
{
    const char *at = *rest + strspn(*rest, ", \t");

    *len = strcspn(at, ",");
    *rest = at + *len;
    while (*len > 0 && strchr(" \t", at[*len - 1]))
        --*len;
    return at;
}

static bool has_prefix(const char *repository, const char *prefix, size_t n)
{
    return strncmp(repository, prefix, n) == 0 && (!repository[n] || repository[n] == '/');
}

bool image_reference_is_allowed(const char *registries, const struct image_reference *r)
{
    const char *rest = registries ? registries : "", *one;
    size_t n, host;

    while (one = next_entry(&rest, &n), n > 0) {
        host = MIN(strcspn(one, "/"), n);
        if (strlen(r->host) != host || memcmp(r->host, one, host) != 0)
            continue;
        if (host == n || has_prefix(r->repository, one + host + 1, n - host - 1))
            return true;
    }
    return false;
}

static const char *list_wrong(const char *list, bool may_have_prefix)
{
    const char *rest = list ? list : "", *one;
    size_t n, host, count = 0;

    while (one = next_entry(&rest, &n), n > 0) {
        host = MIN(strcspn(one, "/"), n);
        if (!is_host(one, host))
            return "each of them is a host name in lower case, with :PORT or not, no address";
        if (host < n && (!may_have_prefix || !is_repository(one + host + 1, n - host - 1)))
            return may_have_prefix ? "a '/' is followed by the beginning of a repository's name"
                                   : "they are hosts, without a path";
        if (++count > IMAGE_LIST_MAX)
            return "there are more than 64";
    }
    return NULL;
}

const char *image_registries_wrong(const char *registries)
{
    return list_wrong(registries, true);
}

const char *image_hosts_wrong(const char *hosts)
{
    return list_wrong(hosts, false);
}

/* -- the policy -------------------------------------------------------------------------------- */

static int port_of(const char *host, size_t len)
{
    const char *colon = memchr(host, ':', len);

    return colon ? (int)strtol(colon + 1, NULL, 10) : PORT_HTTPS;
}

static int add_host(json_t *rules, json_t *ports, const char *host, size_t len)
{
    const char *colon = memchr(host, ':', len);
    size_t name = colon ? (size_t)(colon - host) : len;

    return json_array_append_new(rules,
                                 json_pack("{s:s, s:[s%], s:[i]}", "action", "allow", "domains",
                                           host, name, "ports", port_of(host, len))) |
           json_array_append_new(ports, json_integer(port_of(host, len)));
}

/* A name alone opens no private address: a rule has to have the address too. */
static int add_addresses(json_t *rules, json_t *ports, const char *addresses)
{
    const char *rest = addresses ? addresses : "", *one;
    json_t *list = json_array();
    int bad = list ? 0 : -1;
    size_t n;

    while (one = next_entry(&rest, &n), n > 0)
        bad |= json_array_append_new(list, json_stringn(one, n));
    if (json_array_size(list) > 0)
        bad |= json_array_append_new(rules, json_pack("{s:s, s:O, s:O}", "action", "allow",
                                                      "addresses", list, "ports", ports));
    json_decref(list);
    return bad;
}

static int add_hosts(json_t *rules, json_t *ports, const struct image_reference *r,
                     const char *hosts)
{
    static const char *const hub[] = {"registry-1.docker.io", "auth.docker.io"};
    const char *rest = hosts ? hosts : "", *one;
    size_t n;
    int bad = 0;

    if (strcmp(r->host, HUB) == 0)
        for (size_t i = 0; i < ARRAY_SIZE(hub); i++)
            bad |= add_host(rules, ports, hub[i], strlen(hub[i]));
    else
        bad = add_host(rules, ports, r->host, strlen(r->host));
    while (one = next_entry(&rest, &n), n > 0)
        bad |= add_host(rules, ports, one, n);
    return bad;
}

json_t *image_reference_policy(const struct image_reference *r, const char *hosts,
                               const char *addresses)
{
    json_t *rules = json_array(), *ports = json_array();
    int bad = add_hosts(rules, ports, r, hosts);

    bad |= add_addresses(rules, ports, addresses);
    json_decref(ports);
    if (bad == 0)
        return json_pack("{s:o}", "rules", rules);
    json_decref(rules);
    return NULL;
}
