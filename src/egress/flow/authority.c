#include "egress/flow/authority.h"

#include "http/gate.h"

#include <errno.h>
#include <string.h>

static int parse_port(const char *text, uint16_t *out)
{
    unsigned value = 0;
    size_t n = strspn(text, "0123456789");

    if (n == 0 || n > 5 || text[n])
        return -EINVAL;
    for (size_t i = 0; i < n; i++)
        value = value * 10 + (unsigned)(text[i] - '0');
    if (value == 0 || value > 65535)
        return -EINVAL;
    *out = (uint16_t)value;
    return 0;
}

int authority_parse(const char *text, char name[static POLICY_NAME_MAX + 1],
                    struct policy_address *address, uint16_t *port)
{
    char host[POLICY_NAME_MAX + 3];
    const char *colon = strrchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : 0;

    if (!gate_is_authority(text) || n == 0 || n >= sizeof(host) || parse_port(colon + 1, port) < 0)
        return -EINVAL;
    memcpy(host, text, n);
    host[n] = '\0';
    name[0] = '\0';
    if (policy_address_parse(host, address) == 0)
        return 0;
    return policy_name_normalize(host, name);
}
