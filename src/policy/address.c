/* Addresses: their text, and which of them are never reached, private or public.
 * Sources: IANA's special-purpose address registries (RFC 6890 and its updates); the documentation
 * of the cloud providers for their metadata services. */
#include "policy/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define V4_BITS 96 /* of the prefix ::ffff:0:0/96 */

/* -- text -------------------------------------------------------------------------------------- */

static void map_v4(const struct in_addr *v4, struct in6_addr *out)
{
    memset(out, 0, sizeof(*out));
    out->s6_addr[10] = out->s6_addr[11] = 0xff;
    memcpy(&out->s6_addr[12], v4, sizeof(*v4));
}

/* inet_pton takes dotted IPv4 in its one strict form only, but inside IPv6 too: both spellings come
 * out as the same sixteen bytes. */
int policy_address_parse(const char *text, struct policy_address *out)
{
    char unbracketed[INET6_ADDRSTRLEN];
    struct in_addr v4;
    struct in6_addr v6;
    size_t n = strlen(text);

    if (inet_pton(AF_INET, text, &v4) == 1) {
        map_v4(&v4, &out->in6);
        return 0;
    }
    if (n > 2 && text[0] == '[' && text[n - 1] == ']' && n - 2 < sizeof(unbracketed)) {
        memcpy(unbracketed, text + 1, n - 2);
        unbracketed[n - 2] = '\0';
        text = unbracketed;
    }
    if (inet_pton(AF_INET6, text, &v6) != 1)
        return -EINVAL;
    out->in6 = v6;
    return 0;
}

void policy_address_from(const struct sockaddr *sa, struct policy_address *out)
{
    if (sa->sa_family == AF_INET6)
        out->in6 = ((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr;
    else
        map_v4(&((const struct sockaddr_in *)(const void *)sa)->sin_addr, &out->in6);
}

void policy_address_format(const struct policy_address *a, char out[static INET6_ADDRSTRLEN])
{
    if (IN6_IS_ADDR_V4MAPPED(&a->in6))
        inet_ntop(AF_INET, &a->in6.s6_addr[12], out, INET6_ADDRSTRLEN);
    else
        inet_ntop(AF_INET6, &a->in6, out, INET6_ADDRSTRLEN);
}

/* -- ranges ------------------------------------------------------------------------------------ */

bool address_in(const struct range *r, const struct policy_address *a)
{
    unsigned whole = r->bits / 8, rest = r->bits % 8;

    if (memcmp(r->in6.s6_addr, a->in6.s6_addr, whole) != 0)
        return false;
    return rest == 0 || (r->in6.s6_addr[whole] ^ a->in6.s6_addr[whole]) >> (8 - rest) == 0;
}

static bool contains(const struct range *outer, const struct range *inner)
{
    const struct policy_address a = {.in6 = inner->in6};

    return outer->bits <= inner->bits && address_in(outer, &a);
}

bool address_ranges_overlap(const struct range *a, const struct range *b)
{
    return contains(a, b) || contains(b, a);
}

static int parse_bits(const char *text, unsigned max, unsigned *out)
{
    size_t n = strspn(text, "0123456789");

    if (n == 0 || n > 3 || text[n] != '\0' || (n > 1 && text[0] == '0'))
        return -EINVAL;
    *out = (unsigned)atoi(text);
    return *out <= max ? 0 : -EINVAL;
}

/* 10.0.0.1/8 is a mistake of its author: which of both was meant is not for us to guess. */
static bool has_host_bits(const struct range *r)
{
    struct range whole = *r;

    for (unsigned bit = r->bits; bit < 128; bit++)
        whole.in6.s6_addr[bit / 8] &= (uint8_t) ~(0x80u >> bit % 8);
    return memcmp(&whole.in6, &r->in6, sizeof(r->in6)) != 0;
}

int address_range_parse(const char *text, struct range *out)
{
    char host[INET6_ADDRSTRLEN];
    const char *slash = strchr(text, '/');
    size_t n = slash ? (size_t)(slash - text) : strlen(text);
    struct policy_address a;
    unsigned bits = 128, base = 0;
    struct range r;

    if (n == 0 || n >= sizeof(host))
        return -EINVAL;
    memcpy(host, text, n);
    host[n] = '\0';
    if (policy_address_parse(host, &a) < 0)
        return -EINVAL;
    if (!strchr(host, ':'))
        base = V4_BITS;
    if (slash && parse_bits(slash + 1, 128 - base, &bits) < 0)
        return -EINVAL;
    r = (struct range){.in6 = a.in6, .bits = (uint8_t)(slash ? base + bits : 128)};
    if (has_host_bits(&r))
        return -EINVAL;
    *out = r;
    return 0;
}

void address_range_format(const struct range *r, char *out, size_t size)
{
    const struct policy_address a = {.in6 = r->in6};
    bool is_v4 = IN6_IS_ADDR_V4MAPPED(&a.in6) && r->bits >= V4_BITS;
    char host[INET6_ADDRSTRLEN];

    if (is_v4)
        policy_address_format(&a, host);
    else
        inet_ntop(AF_INET6, &a.in6, host, sizeof(host));
    if (r->bits == 128)
        (void)snprintf(out, size, "%s", host);
    else
        (void)snprintf(out, size, "%s/%u", host, r->bits - (is_v4 ? V4_BITS : 0u));
}

bool policy_range_plain(const char *text, char out[static POLICY_RANGE_SIZE])
{
    char host[INET6_ADDRSTRLEN];
    uint8_t raw[sizeof(struct in6_addr)];
    const char *slash = strchr(text, '/');
    size_t n = slash ? (size_t)(slash - text) : strlen(text);
    int family = memchr(text, ':', n) ? AF_INET6 : AF_INET;
    unsigned long bits, max = family == AF_INET ? 32 : 128;

    if (strlen(text) >= POLICY_RANGE_SIZE)
        return false;
    (void)snprintf(out, POLICY_RANGE_SIZE, "%s", text);
    if (!slash || n >= sizeof(host) || strspn(slash + 1, "0123456789") != strlen(slash + 1))
        return true;
    memcpy(host, text, n);
    host[n] = '\0';
    bits = strtoul(slash + 1, NULL, 10);
    if (inet_pton(family, host, raw) != 1 || !slash[1] || bits > max)
        return true;
    for (unsigned long bit = bits; bit < max; bit++)
        raw[bit / 8] &= (uint8_t) ~(0x80u >> bit % 8);
    inet_ntop(family, raw, host, sizeof(host));
    (void)snprintf(out, POLICY_RANGE_SIZE, "%s/%lu", host, bits);
    return true;
}

/* -- addresses that are never reached, and public ones ----------------------------------------- */

/* An address of version 4 in its mapped form, and one of version 6 by its bytes (those that are not
 * written are 0); n: the bits of the prefix. */
#define V4(a, b, c, d, n)                                                     \
    {                                                                         \
        .in6.s6_addr = {[10] = 0xff, 0xff, a, b, c, d}, .bits = V4_BITS + (n) \
    }
#define V6(n, ...)                                \
    {                                             \
        .in6.s6_addr = {__VA_ARGS__}, .bits = (n) \
    }

static const struct range never[] = {
    V4(0, 0, 0, 0, 8),          /* "this network": the host itself on Linux */
    V4(127, 0, 0, 0, 8),        /* loopback */
    V4(169, 254, 0, 0, 16),     /* link-local; metadata of most clouds */
    V4(100, 100, 100, 200, 32), /* metadata: Alibaba */
    V4(168, 63, 129, 16, 32),   /* metadata: Azure */
    V4(192, 0, 0, 192, 32),     /* metadata: Oracle */
    V4(224, 0, 0, 0, 4),        /* multicast */
    V4(255, 255, 255, 255, 32), /* broadcast */
    V6(128, 0),                 /* ::: unspecified */
    V6(128, [15] = 1),          /* ::1: loopback */
    V6(10, 0xfe, 0x80),         /* fe80::/10: link-local */
    V6(8, 0xff),                /* ff00::/8: multicast */
    V6(128, 0xfd, 0x00, 0x0e, 0xc2, [14] = 0x02, 0x54), /* fd00:ec2::254: metadata: AWS */
    V6(128, 0xfd, 0x20, 0x00, 0xce, [14] = 0x02, 0x54), /* fd20:ce::254: metadata: Google */
};

static const struct range not_public[] = {
    V4(10, 0, 0, 0, 8),                   /* RFC 1918 */
    V4(172, 16, 0, 0, 12),                /* RFC 1918 */
    V4(192, 168, 0, 0, 16),               /* RFC 1918 */
    V4(100, 64, 0, 0, 10),                /* shared with carriers, RFC 6598 */
    V4(192, 0, 0, 0, 24),                 /* protocol assignments */
    V4(192, 0, 2, 0, 24),                 /* documentation */
    V4(198, 51, 100, 0, 24),              /* documentation */
    V4(203, 0, 113, 0, 24),               /* documentation */
    V4(192, 88, 99, 0, 24),               /* 6to4 relays, deprecated */
    V4(198, 18, 0, 0, 15),                /* benchmarking; names inside sandboxes live here */
    V4(240, 0, 0, 0, 4),                  /* reserved */
    V6(7, 0xfc),                          /* fc00::/7: unique local */
    V6(10, 0xfe, 0xc0),                   /* fec0::/10: site-local, deprecated */
    V6(48, 0, 0x64, 0xff, 0x9b, 0, 0x01), /* 64:ff9b:1::/48: local NAT64 */
    V6(64, 0x01),                         /* 100::/64: discard */
    V6(23, 0x20, 0x01),                   /* 2001::/23: protocol assignments, Teredo */
    V6(32, 0x20, 0x01, 0x0d, 0xb8),       /* 2001:db8::/32: documentation */
    V6(20, 0x3f, 0xff),                   /* 3fff::/20: documentation */
    V6(16, 0x20, 0x02),                   /* 2002::/16: 6to4 */
    V6(16, 0x5f),                         /* 5f00::/16: segment routing */
    V6(96, 0),                            /* ::/96: IPv4-compatible, deprecated */
};

/* The only state of this folder. The host's own addresses are one fact of the process, which dials
 * from one network namespace, and hold for each question about each policy and ceiling of every
 * tenant: handed down as an argument, they could be left out by one caller, which would reach the
 * host. A single thread sets and reads them (egress/flow/hostaddr.c); cayd, which dials nothing,
 * has none. */
static struct range own[POLICY_NEVER_OWN_MAX];
static size_t n_own;

static bool in_list(const struct range *ranges, size_t n, const struct policy_address *a)
{
    for (size_t i = 0; i < n; i++)
        if (address_in(&ranges[i], a))
            return true;
    return false;
}

static bool has_prefix(const struct policy_address *a, const char *hex, size_t n)
{
    return memcmp(a->in6.s6_addr, hex, n) == 0;
}

/* The i-th IPv4 address that a gateway or a tunnel would make of an IPv6 one, -1 behind the last:
 * NAT64 (RFC 6052, RFC 8215 with its prefix of 96 bits), 6to4 (RFC 3056), Teredo (RFC 4380: its
 * server, and its client's address, inverted), IPv4-compatible, IPv4-translated (RFC 2765); and
 * ISATAP (RFC 5214) within any prefix. 0: here is none. */
static int embedded_v4(const struct policy_address *a, unsigned i, struct policy_address *out)
{
    static const struct {
        const char *prefix;
        size_t n, at;
        bool inverted;
    } forms[] = {{"\x00\x64\xff\x9b\0\0\0\0\0\0\0", 12, 12, false},
                 {"\x00\x64\xff\x9b\0\1\0\0\0\0\0", 12, 12, false},
                 {"\0\0\0\0\0\0\0\0\0\0\0", 12, 12, false},
                 {"\0\0\0\0\0\0\0\0\xff\xff\0", 12, 12, false},
                 {"\x20\x02", 2, 2, false},
                 {"\x20\x01\0\0", 4, 4, false},
                 {"\x20\x01\0\0", 4, 12, true}};
    const uint8_t *b = a->in6.s6_addr;
    struct in_addr v4;

    if (i > ARRAY_SIZE(forms))
        return -1;
    if (i == ARRAY_SIZE(forms)) {
        if ((b[8] & ~3) != 0 || memcmp(b + 9, "\0\x5e\xfe", 3) != 0)
            return 0;
        memcpy(&v4, b + 12, sizeof(v4));
    } else {
        if (!has_prefix(a, forms[i].prefix, forms[i].n))
            return 0;
        memcpy(&v4, b + forms[i].at, sizeof(v4));
        if (forms[i].inverted)
            v4.s_addr = ~v4.s_addr;
    }
    map_v4(&v4, &out->in6);
    return 1;
}

/* Is it, or an address that it carries, in the list? */
static bool reaches_list(const struct range *ranges, size_t n, const struct policy_address *a)
{
    struct policy_address inner;

    if (in_list(ranges, n, a))
        return true;
    for (unsigned i = 0; embedded_v4(a, i, &inner) >= 0; i++)
        if (embedded_v4(a, i, &inner) > 0 && in_list(ranges, n, &inner))
            return true;
    return false;
}

static bool list_contains(const struct range *ranges, size_t n, const struct range *r)
{
    for (size_t i = 0; i < n; i++)
        if (contains(&ranges[i], r))
            return true;
    return false;
}

bool address_range_is_never(const struct range *r)
{
    return list_contains(never, ARRAY_SIZE(never), r);
}

bool address_range_is_private(const struct range *r)
{
    return list_contains(never, ARRAY_SIZE(never), r) ||
           list_contains(not_public, ARRAY_SIZE(not_public), r);
}

bool address_reaches(const struct range *r, const struct policy_address *a)
{
    return reaches_list(r, 1, a);
}

bool policy_address_is_never(const struct policy_address *a)
{
    return reaches_list(never, ARRAY_SIZE(never), a) || reaches_list(own, n_own, a);
}

bool policy_address_is_public(const struct policy_address *a)
{
    return !policy_address_is_never(a) && !reaches_list(not_public, ARRAY_SIZE(not_public), a);
}

static unsigned common_bits(const struct in6_addr *a, const struct in6_addr *b)
{
    unsigned n = 0;

    while (n < 128 && ((a->s6_addr[n / 8] ^ b->s6_addr[n / 8]) >> (7 - n % 8) & 1) == 0)
        n++;
    return n;
}

/* The range that needs the least more to hold r, as one that holds both. */
static void widen(const struct range *r)
{
    struct range *best = &own[0];
    unsigned most = 0;

    for (size_t i = 0; i < n_own; i++) {
        unsigned n = MIN(common_bits(&own[i].in6, &r->in6), MIN(own[i].bits, r->bits));

        if (n >= most) {
            best = &own[i];
            most = n;
        }
    }
    best->bits = (uint8_t)most;
    for (unsigned bit = most; bit < 128; bit++)
        best->in6.s6_addr[bit / 8] &= (uint8_t) ~(0x80u >> bit % 8);
}

bool policy_never_add(const struct policy_address *a, unsigned prefix_bits)
{
    struct range r = {.in6 = a->in6, .bits = (uint8_t)MIN(prefix_bits, 128u)};

    if (n_own < POLICY_NEVER_OWN_MAX) {
        own[n_own++] = r;
        return false;
    }
    widen(&r);
    return true;
}

void policy_never_clear(void)
{
    n_own = 0;
}
