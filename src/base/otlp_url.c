#include "base/otlp_url.h"

#include "base/port.h"
#include "base/util.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

static const char scheme[] = "http://";
static const char form[] = "allowed is http://ADDRESS:PORT/PATH, with ADDRESS in digits or "
                           "localhost, without a user, a query or a fragment";

/* ":" and 1 to 65535, or nothing. 0 where it is neither. */
static uint16_t port_of(const char *text, size_t n)
{
    if (n == 0)
        return OTLP_URL_PORT;
    return text[0] == ':' ? port_from_digits(text + 1, n - 1) : 0;
}

static bool take_host(const char *host, uint16_t port, struct otlp_url *u)
{
    if (strcmp(host, "localhost") == 0)
        host = "127.0.0.1";
    if (inet_pton(AF_INET, host, &u->to.v4.sin_addr) == 1) {
        u->to.v4.sin_family = AF_INET;
        u->to.v4.sin_port = htons(port);
        u->to_len = sizeof(u->to.v4);
        return true;
    }
    if (inet_pton(AF_INET6, host, &u->to.v6.sin6_addr) != 1)
        return false;
    u->to.v6.sin6_family = AF_INET6;
    u->to.v6.sin6_port = htons(port);
    u->to_len = sizeof(u->to.v6);
    return true;
}

/* ADDRESS, [ADDRESS] or localhost, with or without :PORT; n bytes. */
static bool take_authority(const char *text, size_t n, struct otlp_url *u)
{
    const bool bracketed = n > 0 && text[0] == '[';
    const char *end = memchr(text, bracketed ? ']' : ':', n);
    size_t len = end ? (size_t)(end - text) : n;
    char host[INET6_ADDRSTRLEN];
    uint16_t port;

    if ((bracketed && !end) || len - bracketed >= sizeof(host) || n >= sizeof(u->authority))
        return false;
    memcpy(host, text + bracketed, len - bracketed);
    host[len - bracketed] = '\0';
    len += bracketed;
    port = port_of(text + len, n - len);
    if (port == 0 || !take_host(host, port, u) || bracketed != (u->to.any.sa_family == AF_INET6))
        return false;
    memcpy(u->authority, text, n);
    u->authority[n] = '\0';
    return true;
}

const char *otlp_url_parse(const char *text, struct otlp_url *out)
{
    struct otlp_url u = {.to_len = 0};
    const char *at = text + strlen(scheme), *path;

    if (strncmp(text, scheme, strlen(scheme)) != 0)
        return form;
    path = at + strcspn(at, "/");
    if (strlen(path) > OTLP_URL_PATH_MAX)
        return "its path is too long";
    for (const char *p = path; *p; p++)
        if (*p <= ' ' || *p > '~' || *p == '?' || *p == '#')
            return form;
    if (!take_authority(at, (size_t)(path - at), &u))
        return form;
    (void)snprintf(u.path, sizeof(u.path), "%s", path[0] && path[1] ? path : "/v1/traces");
    *out = u;
    return NULL;
}
