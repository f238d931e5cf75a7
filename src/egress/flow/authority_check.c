#include "egress/flow/authority_check.h"

#include "base/util.h"
#include "egress/flow/authority.h"
#include "egress/flow/sandbox.h"
#include "egress/flow/target.h"
#include "policy/policy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* "host" or "host:port" -> target; port is what it is without one. 0 or -EINVAL. */
static int parse_authority(const char *text, uint16_t port, struct target *out,
                           char name_buffer[static POLICY_NAME_MAX + 1])
{
    char with_port[300];
    const char *bracket = strrchr(text, ']'), *colon = strrchr(text, ':');
    struct policy_address a = {0};

    if (colon && (!bracket || colon > bracket))
        snprintf(with_port, sizeof(with_port), "%s", text);
    else
        snprintf(with_port, sizeof(with_port), "%s:%u", text, port);
    if (authority_parse(with_port, name_buffer, &a, &out->port) < 0)
        return -EINVAL;
    out->name = name_buffer[0] ? name_buffer : NULL;
    out->address = a;
    return 0;
}

bool authority_check_same(const struct target *a, const struct target *b)
{
    if (a->name || b->name)
        return a->name && b->name && strcmp(a->name, b->name) == 0;
    return memcmp(&a->address, &b->address, sizeof(a->address)) == 0;
}

const char *authority_check_text(const struct target *t, char out[static INET6_ADDRSTRLEN + 2])
{
    char address[INET6_ADDRSTRLEN];

    if (t->name)
        return t->name;
    policy_address_format(&t->address, address);
    snprintf(out, INET6_ADDRSTRLEN + 2, strchr(address, ':') ? "[%s]" : "%s", address);
    return out;
}

const char *authority_check_canonical(const char *text, uint16_t scheme_port, struct arena *a)
{
    char name[POLICY_NAME_MAX + 1], address[INET6_ADDRSTRLEN + 2];
    struct target t = {0};
    const char *host;

    if (parse_authority(text, scheme_port, &t, name) < 0)
        return NULL;
    host = authority_check_text(&t, address);
    return t.port == scheme_port ? arena_strdup(a, host) : arena_printf(a, "%s:%u", host, t.port);
}

int authority_check_proxy(const struct sandbox *s, const struct http_head *h, struct target *out,
                          char name_buffer[static POLICY_NAME_MAX + 1])
{
    struct target host = {0};
    char other[POLICY_NAME_MAX + 1];

    *out = (struct target){0}; /* nothing of the request before is this one's */
    if (parse_authority(h->authority, 80, out, name_buffer) < 0)
        return 400;
    if (h->host[0] && (parse_authority(h->host, 80, &host, other) < 0 ||
                       !authority_check_same(&host, out) || host.port != out->port))
        return 421;
    if (out->name)
        return 0;
    if (target_of_own(s, out) < 0)
        return 421;
    if (out->name) {
        snprintf(name_buffer, POLICY_NAME_MAX + 1, "%s", out->name);
        out->name = name_buffer;
    }
    return 0;
}

static int one_agrees(const char *text, struct target *dialed,
                      char name_buffer[static POLICY_NAME_MAX + 1])
{
    char name[POLICY_NAME_MAX + 1];
    struct target t = {0};

    if (parse_authority(text, dialed->port, &t, name) < 0)
        return 400;
    if (t.port != dialed->port)
        return 421;
    if (authority_check_same(&t, dialed))
        return 0;
    if (dialed->name || !t.name)
        return 421;
    if (dialed->said)
        return strcmp(dialed->said, t.name) == 0 ? 0 : 421;
    memcpy(name_buffer, name, sizeof(name));
    dialed->said = name_buffer;
    return 0;
}

int authority_check_origin(const struct http_head *h, struct target *dialed,
                           char name_buffer[static POLICY_NAME_MAX + 1])
{
    int status = h->host[0] ? one_agrees(h->host, dialed, name_buffer) : 0;

    return status == 0 && h->authority[0] ? one_agrees(h->authority, dialed, name_buffer) : status;
}
