/* Combinations of settings that `cay up` refuses though each setting is right by itself: keys that
 * would go over a network in clear, ranges of users that do not fit, a domain below which there can
 * be no names. */

#include "base/settings.h"

#include "base/ids.h"
#include "base/port.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <string.h>

static bool is_loopback(const char *address)
{
    struct in_addr v4;
    struct in6_addr v6;

    if (strcmp(address, "localhost") == 0)
        return true;
    if (inet_pton(AF_INET, address, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == IN_LOOPBACKNET;
    return inet_pton(AF_INET6, address, &v6) == 1 &&
           (IN6_IS_ADDR_LOOPBACK(&v6) ||
            (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == IN_LOOPBACKNET));
}

/* Keys would go over a network in clear: only where that was asked for by name. */
static enum err_code check_outside(const struct settings *s, struct err *e)
{
    if (is_loopback(s->listen_address) || strcmp(s->listen_tls, "only") == 0 ||
        s->listen_plain_outside)
        return ERR_OK;
    err_set(
        e, ERR_INVALID,
        "[listen] address = %.64s is reached by other machines, and with tls = %.32s API keys and "
        "all contents may go there as plain HTTP",
        s->listen_address, s->listen_tls);
    err_hint(e,
             "Set tls = only in [listen] (--listen-tls=only); or, in a network that is trusted or "
             "behind a proxy that speaks TLS, plain_outside = true.");
    return e->code;
}

/* RFC 1123 section 2.1: letters, digits and '-', which neither begins nor ends one. */
static bool is_label(const char *label, size_t len)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-";

    return len > 0 && len <= 63 && strspn(label, good) >= len && label[0] != '-' &&
           label[len - 1] != '-';
}

/* Below it stand PORT-ID, so that a name as a whole stays within DNS' 253 bytes. */
#define DOMAIN_MAX 225
_Static_assert(DOMAIN_MAX == 253 - 6 - IDS_SANDBOX_LEN - 1, "65535-ID.DOMAIN");

/* NULL, or its fault. */
static const char *wrong_with_domain(const char *domain)
{
    size_t host = strcspn(domain, ":"), at = 0, len = 0;
    const char *port = domain[host] ? domain + host + 1 : NULL;

    if (strstr(domain, "//") || strchr(domain, '/'))
        return "it is a name, without https:// and without a path";
    if (host == 0 || host > DOMAIN_MAX)
        return "a name of 1 to 225 characters is needed";
    for (; at <= host; at += len + 1) {
        len = MIN(strcspn(domain + at, "."), host - at);
        if (!is_label(domain + at, len))
            return "its parts, between the dots, are of 1 to 63 letters, digits and '-', which "
                   "neither begins nor ends one";
    }
    at = host;
    while (at > 0 && domain[at - 1] != '.')
        at--;
    if (strspn(domain + at, "0123456789") == host - at)
        return "it looks like an address, and below an address there are no names, which each "
               "port of a sandbox needs one of";
    if (port && !port_from_text(port))
        return "its ':' is followed by a port, 1 to 65535";
    return NULL;
}

static enum err_code check_domain(const struct settings *s, struct err *e)
{
    const char *wrong = wrong_with_domain(s->server_domain);

    if (!wrong)
        return ERR_OK;
    err_set(e, ERR_INVALID, "[server] domain: found \"%.100s\": %s", s->server_domain, wrong);
    err_hint(e,
             "A domain is as sandboxes.example.org, or sandboxes.example.org:8443, with DOMAIN and "
             "*.DOMAIN leading to this server; without one it is cay.localhost.");
    return e->code;
}

static enum err_code check_uids(const struct settings *s, struct err *e)
{
    int64_t end = s->sandbox_first_uid + s->sandbox_slots_max * SETTINGS_UID_RANGE;

    if (s->sandbox_first_uid % SETTINGS_UID_RANGE == 0 && end <= UINT32_MAX - SETTINGS_UID_RANGE)
        return ERR_OK;
    return err_set(e, ERR_INVALID,
                   "[sandbox] first_uid: found %" PRId64
                   ", allowed is a multiple of 65536 with room "
                   "for slots_max (%" PRId64 ") ranges of 65536 ids below %" PRId64,
                   s->sandbox_first_uid, s->sandbox_slots_max, UINT32_MAX - SETTINGS_UID_RANGE);
}

enum err_code settings_check_start(const struct settings *s, struct err *e)
{
    enum err_code code = check_outside(s, e);

    if (code == ERR_OK)
        code = check_uids(s, e);

    return code == ERR_OK ? check_domain(s, e) : code;
}
