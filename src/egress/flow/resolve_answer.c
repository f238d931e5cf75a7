#include "egress/flow/resolve_answer.h"

#include "base/util.h"
#include "egress/flow/resolve_channel.h"

#include <ares.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#define TC_BIT     0x02 /* of the third byte: the answer was cut */
#define HEAD_BYTES 12

int resolve_answer_status(int ares_status)
{
    switch (ares_status) {
    case ARES_SUCCESS: return 0;
    case ARES_ENODATA:
    case ARES_ENOTFOUND: return -ENOENT;
    case ARES_ETIMEOUT: return -ETIMEDOUT;
    case ARES_ENOMEM: return -EAGAIN;
    default: return -EPROTO;
    }
}

/* c-ares itself cuts a datagram that has more than was asked for, without a word. */
bool resolve_answer_is_cut(const unsigned char *message, int len)
{
    return message && len >= HEAD_BYTES &&
           (message[2] & TC_BIT || len == RESOLVE_CHANNEL_PLAIN_BYTES ||
            len >= RESOLVE_CHANNEL_EDNS_BYTES);
}

static void add(struct resolve_answer *a, const struct sockaddr *sa, int ttl_s)
{
    policy_address_from(sa, &a->addresses[a->n]);
    a->ttl_s = a->n == 0 ? MAX(ttl_s, 0) : MIN(a->ttl_s, MAX(ttl_s, 0));
    a->n++;
}

static int read_six(const unsigned char *message, int len, struct resolve_answer *a)
{
    struct ares_addr6ttl found[RESOLVE_ADDRESSES_MAX];
    struct sockaddr_in6 sa = {.sin6_family = AF_INET6};
    int n = RESOLVE_ADDRESSES_MAX, status = ares_parse_aaaa_reply(message, len, NULL, found, &n);

    for (int i = 0; status == ARES_SUCCESS && i < n; i++) {
        memcpy(&sa.sin6_addr, &found[i].ip6addr, sizeof(sa.sin6_addr));
        add(a, (struct sockaddr *)&sa, found[i].ttl);
    }
    return status;
}

static int read_four(const unsigned char *message, int len, struct resolve_answer *a)
{
    struct ares_addrttl found[RESOLVE_ADDRESSES_MAX];
    struct sockaddr_in sa = {.sin_family = AF_INET};
    int n = RESOLVE_ADDRESSES_MAX, status = ares_parse_a_reply(message, len, NULL, found, &n);

    for (int i = 0; status == ARES_SUCCESS && i < n; i++) {
        sa.sin_addr = found[i].ipaddr;
        add(a, (struct sockaddr *)&sa, found[i].ttl);
    }
    return status;
}

int resolve_answer_read(const unsigned char *message, int len, int family, struct resolve_answer *a)
{
    struct resolve_answer found = {0};
    int status = family == AF_INET6 ? read_six(message, len, &found)
                                    : read_four(message, len, &found);

    if (status != ARES_SUCCESS)
        return resolve_answer_status(status);
    if (found.n == 0)
        return -ENOENT;
    *a = found;
    return 0;
}

bool resolve_answer_here(const char *name, int *status, struct resolve_answer *a)
{
    const char *dot = strrchr(name, '.'), *top = dot ? dot + 1 : name;
    const struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    const struct sockaddr_in four = {.sin_family = AF_INET,
                                     .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    if (strcmp(top, "onion") != 0 && strcmp(top, "localhost") != 0)
        return false;
    *a = (struct resolve_answer){0};
    *status = -ENOENT;
    if (strcmp(top, "localhost") == 0) {
        *status = 0;
        add(a, (const struct sockaddr *)&six, 0);
        add(a, (const struct sockaddr *)&four, 0);
    }
    return true;
}
