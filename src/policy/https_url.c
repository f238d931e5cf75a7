#include "policy/https_url.h"

#include "base/port.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define HTTPS_PORT 443

/* HOST or HOST:PORT of n bytes. */
static bool take_authority(const char *text, size_t n, struct https_url *out)
{
    char host[POLICY_NAME_MAX + 2];
    const char *colon = memchr(text, ':', n);
    size_t len = colon ? (size_t)(colon - text) : n;
    uint16_t port = colon ? port_from_digits(colon + 1, n - len - 1) : HTTPS_PORT;
    struct policy_address ignored;

    if (len == 0 || len >= sizeof(host) || port == 0)
        return false;
    memcpy(host, text, len);
    host[len] = '\0';
    if (policy_name_normalize(host, out->host) < 0 ||
        policy_address_parse(out->host, &ignored) == 0)
        return false;
    out->port = port;
    if (port == HTTPS_PORT)
        (void)snprintf(out->authority, sizeof(out->authority), "%s", out->host);
    else
        (void)snprintf(out->authority, sizeof(out->authority), "%s:%u", out->host, port);
    return true;
}

bool https_url_parse(const char *text, struct https_url *out)
{
    static const char scheme[] = "https://";
    const char *authority = text + sizeof(scheme) - 1, *rest;

    if (strncasecmp(text, scheme, sizeof(scheme) - 1) != 0)
        return false;
    rest = authority + strcspn(authority, "/?#");
    if (*rest == '?' || strchr(rest, '#') || strlen(rest) >= sizeof(out->target))
        return false;
    for (const char *p = rest; *p; p++)
        if (*p <= ' ' || *p > '~')
            return false;
    (void)snprintf(out->target, sizeof(out->target), "%s", *rest ? rest : "/");
    return take_authority(authority, (size_t)(rest - authority), out);
}

void https_url_path(const struct https_url *url, char out[static HTTPS_URL_TARGET_MAX])
{
    (void)snprintf(out, HTTPS_URL_TARGET_MAX, "%.*s", (int)strcspn(url->target, "?"), url->target);
}

bool https_url_is_host(const char *text)
{
    struct https_url url;

    return take_authority(text, strlen(text), &url) && strcmp(url.authority, text) == 0;
}
