#include "egress/flow/authority.h"

#include "base/port.h"
#include "http/gate.h"

#include <errno.h>
#include <string.h>

int authority_parse(const char *text, char name[static POLICY_NAME_MAX + 1],
                    struct policy_address *address, uint16_t *port)
{
    char host[POLICY_NAME_MAX + 3];
    const char *colon = strrchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : 0;

    if (!gate_is_authority(text) || n == 0 || n >= sizeof(host))
        return -EINVAL;
    *port = port_from_text(colon + 1);
    if (*port == 0)
        return -EINVAL;
    memcpy(host, text, n);
    host[n] = '\0';
    name[0] = '\0';
    if (policy_address_parse(host, address) == 0)
        return 0;
    return policy_name_normalize(host, name);
}
