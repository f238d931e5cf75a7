#include "core/ingress.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

bool ingress_is_public(const struct network *network)
{
    return !network || !network->f.private_ports;
}

size_t ingress_masked_host(const struct network *network, uint16_t port, char *out, size_t size)
{
    const char *mask = network ? network->f.masked_host : NULL;
    const char *hole = mask ? strstr(mask, "${PORT}") : NULL;
    int n;

    if (!mask || !*mask)
        return 0;
    if (hole)
        n = snprintf(out, size, "%.*s%u%s", (int)(hole - mask), mask, port, hole + 7);
    else
        n = snprintf(out, size, "%s", mask);
    return n > 0 && (size_t)n < size ? (size_t)n : 0;
}

void ingress_traffic_token(const char *agent_token, char out[static CORE_TOKEN_SIZE + 1])
{
    char text[CORE_TOKEN_SIZE + 16];
    unsigned char digest[32];
    unsigned n = 0;

    snprintf(text, sizeof(text), "traffic:%s", agent_token);
    if (!EVP_Digest(text, strlen(text), digest, &n, EVP_sha256(), NULL) || n != sizeof(digest))
        abort(); /* SHA-256 of a few bytes fails only in a broken library */
    ids_hex(digest, sizeof(digest), out);
}
