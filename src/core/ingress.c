#include "core/ingress.h"

#include "contract/agent_boot.h"
#include "http/digest.h"

#include <errno.h>
#include <openssl/crypto.h>
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
    unsigned char digest[DIGEST_SHA256_SIZE];

    snprintf(text, sizeof(text), "traffic:%s", agent_token);
    digest_sha256(text, strlen(text), digest);
    ids_hex(digest, sizeof(digest), out);
}

/* -- signed addresses -------------------------------------------------------------------------- */

bool ingress_may_sign(uint16_t port)
{
    return port != AGENT_PORT;
}

static void put_until(int64_t until_s, char out[static INGRESS_UNTIL_LEN])
{
    for (int i = INGRESS_UNTIL_LEN - 1; i >= 0; i--) {
        out[i] = "0123456789abcdefghijklmnopqrstuvwxyz"[until_s % 36];
        until_s /= 36;
    }
}

int64_t ingress_signed_until(const char *text)
{
    int64_t value = 0;

    for (size_t i = 0; i < INGRESS_UNTIL_LEN; i++) {
        char c = text[i];

        if (c >= '0' && c <= '9')
            value = value * 36 + (c - '0');
        else if (c >= 'a' && c <= 'z')
            value = value * 36 + (c - 'a' + 10);
        else
            return -1;
    }
    return value;
}

void ingress_sign_port(const char *agent_token, uint16_t port, int64_t until_s,
                       char out[static INGRESS_SIGNED_LEN + 1])
{
    unsigned char mac[DIGEST_SHA256_SIZE];
    char text[64];
    int n;

    put_until(until_s, out);
    n = snprintf(text, sizeof(text), "preview:%u:%.*s", port, INGRESS_UNTIL_LEN, out);
    digest_hmac_sha256(agent_token, strlen(agent_token), text, (size_t)n, mac);
    for (size_t i = 0; i < INGRESS_MAC_LEN; i++) {
        unsigned bit = (unsigned)i * 5, two = (unsigned)(mac[bit / 8] << 8 | mac[bit / 8 + 1]);

        out[INGRESS_UNTIL_LEN + i] = "abcdefghijklmnopqrstuvwxyz234567"[two >> (11 - bit % 8) & 31];
    }
    out[INGRESS_SIGNED_LEN] = '\0';
}

int ingress_check_signed(const char *agent_token, uint16_t port, const char *given, int64_t now_s)
{
    char right[INGRESS_SIGNED_LEN + 1];
    int64_t until_s;

    if (!ingress_may_sign(port) || strlen(given) != INGRESS_SIGNED_LEN)
        return -EPERM;
    until_s = ingress_signed_until(given);
    if (until_s < 0)
        return -EPERM;
    ingress_sign_port(agent_token, port, until_s, right);
    if (!ids_equal_secret(given, right, INGRESS_SIGNED_LEN))
        return -EPERM;
    return until_s < now_s ? -ETIMEDOUT : 0;
}
