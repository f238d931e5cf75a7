/* The rules of a sandbox's network namespace, written as netfilter's netlink messages and sent
 * as one batch, which the kernel takes whole or not at all: a namespace has all of its rules or
 * none. Called by the process that makes the namespace, inside it, before any program of a
 * tenant runs there. */

#include "sys/nft.h"

#include "sys/netlink.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/icmp.h>
#include <linux/icmpv6.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#define TABLE      "cay"
#define CHAIN_RAW  "raw"  /* before connections are tracked */
#define CHAIN_NEW  "new"  /* from there: packets that may be tracked */
#define CHAIN_RATE "rate" /* from there: packets that make a new entry; one limit for all */
#define CHAIN_SELF "self" /* from all three hooks: local traffic is let through, and not tracked */
#define CHAIN_NAT  "nat"
#define CHAIN_OUT  "out"
#define BATCH_SIZE 16384

#define PRIORITY_RAW    (-300) /* NF_IP_PRI_RAW */
#define PRIORITY_NAT    (-100) /* NF_IP_PRI_NAT_DST */
#define PRIORITY_FILTER 0

#define DNS_PORT 53

/* A transaction under construction. Every message is small and their number fixed: BATCH_SIZE
 * suffices, and mnl_nlmsg_batch would not say more than `end` does. */
struct batch {
    char buffer[BATCH_SIZE];
    size_t used;
    uint32_t seq;
    struct nlmsghdr *now;  /* the message being written */
    struct nlmsghdr *last; /* of table, chains and rules */
};

static struct nlmsghdr *begin(struct batch *b, uint16_t type, uint16_t flags, uint8_t family,
                              uint16_t resource)
{
    struct nlmsghdr *m = mnl_nlmsg_put_header(b->buffer + b->used);
    m->nlmsg_type = type;
    m->nlmsg_flags = NLM_F_REQUEST | flags;
    m->nlmsg_seq = ++b->seq;
    struct nfgenmsg *g = mnl_nlmsg_put_extra_header(m, sizeof(*g));
    g->nfgen_family = family;
    g->version = NFNETLINK_V0;
    g->res_id = htons(resource);
    b->now = m;
    return m;
}

static void end(struct batch *b)
{
    b->used += NLMSG_ALIGN(b->now->nlmsg_len);
    b->now = NULL;
}

static void begin_nft(struct batch *b, uint16_t type, uint16_t flags)
{
    b->last = begin(b, (uint16_t)((NFNL_SUBSYS_NFTABLES << 8) | type), flags, NFPROTO_INET, 0);
}

static void add_table(struct batch *b)
{
    begin_nft(b, NFT_MSG_NEWTABLE, NLM_F_CREATE);
    mnl_attr_put_strz(b->now, NFTA_TABLE_NAME, TABLE);
    end(b);
}

/* Without a type: one that others jump to. With one: a base chain at the output hook. */
static void add_chain(struct batch *b, const char *name, const char *type, int32_t priority)
{
    begin_nft(b, NFT_MSG_NEWCHAIN, NLM_F_CREATE);
    mnl_attr_put_strz(b->now, NFTA_CHAIN_TABLE, TABLE);
    mnl_attr_put_strz(b->now, NFTA_CHAIN_NAME, name);
    if (!type) {
        end(b);
        return;
    }
    mnl_attr_put_strz(b->now, NFTA_CHAIN_TYPE, type);
    struct nlattr *nest = mnl_attr_nest_start(b->now, NFTA_CHAIN_HOOK);
    mnl_attr_put_u32(b->now, NFTA_HOOK_HOOKNUM, htonl(NF_INET_LOCAL_OUT));
    mnl_attr_put_u32(b->now, NFTA_HOOK_PRIORITY, htonl((uint32_t)priority));
    mnl_attr_nest_end(b->now, nest);
    end(b);
}

struct nest {
    struct nlattr *element, *data;
};

static struct nest begin_expr(struct batch *b, const char *name)
{
    struct nest n;
    n.element = mnl_attr_nest_start(b->now, NFTA_LIST_ELEM);
    mnl_attr_put_strz(b->now, NFTA_EXPR_NAME, name);
    n.data = mnl_attr_nest_start(b->now, NFTA_EXPR_DATA);
    return n;
}

static void end_expr(struct batch *b, struct nest n)
{
    mnl_attr_nest_end(b->now, n.data);
    mnl_attr_nest_end(b->now, n.element);
}

static struct nlattr *begin_rule(struct batch *b, const char *chain)
{
    begin_nft(b, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND);
    mnl_attr_put_strz(b->now, NFTA_RULE_TABLE, TABLE);
    mnl_attr_put_strz(b->now, NFTA_RULE_CHAIN, chain);
    return mnl_attr_nest_start(b->now, NFTA_RULE_EXPRESSIONS);
}

static void end_rule(struct batch *b, struct nlattr *expressions)
{
    mnl_attr_nest_end(b->now, expressions);
    end(b);
}

static void put_data(struct batch *b, uint16_t attr, const void *bytes, size_t n)
{
    struct nlattr *nest = mnl_attr_nest_start(b->now, attr);
    mnl_attr_put(b->now, NFTA_DATA_VALUE, n, bytes);
    mnl_attr_nest_end(b->now, nest);
}

/* Goes on with the rule when a property of the packet (NFT_META_*) is the byte value. */
static void match_meta(struct batch *b, uint32_t key, uint8_t value)
{
    struct nest n = begin_expr(b, "meta");
    mnl_attr_put_u32(b->now, NFTA_META_KEY, htonl(key));
    mnl_attr_put_u32(b->now, NFTA_META_DREG, htonl(NFT_REG_1));
    end_expr(b, n);
    n = begin_expr(b, "cmp");
    mnl_attr_put_u32(b->now, NFTA_CMP_SREG, htonl(NFT_REG_1));
    mnl_attr_put_u32(b->now, NFTA_CMP_OP, htonl(NFT_CMP_EQ));
    put_data(b, NFTA_CMP_DATA, &value, sizeof(value));
    end_expr(b, n);
}

/* Compares what a register holds with the value, and goes on when they are equal. */
static void match_register(struct batch *b, const void *value, uint32_t n_bytes)
{
    struct nest n = begin_expr(b, "cmp");
    mnl_attr_put_u32(b->now, NFTA_CMP_SREG, htonl(NFT_REG_1));
    mnl_attr_put_u32(b->now, NFTA_CMP_OP, htonl(NFT_CMP_EQ));
    put_data(b, NFTA_CMP_DATA, value, n_bytes);
    end_expr(b, n);
}

static void load_header(struct batch *b, uint32_t base, uint32_t offset, uint32_t n_bytes)
{
    struct nest n = begin_expr(b, "payload");
    mnl_attr_put_u32(b->now, NFTA_PAYLOAD_DREG, htonl(NFT_REG_1));
    mnl_attr_put_u32(b->now, NFTA_PAYLOAD_BASE, htonl(base));
    mnl_attr_put_u32(b->now, NFTA_PAYLOAD_OFFSET, htonl(offset));
    mnl_attr_put_u32(b->now, NFTA_PAYLOAD_LEN, htonl(n_bytes));
    end_expr(b, n);
}

#define SOURCE_PORT      0 /* both in TCP's header and in UDP's */
#define DESTINATION_PORT 2
#define TCP_FLAGS        13

static void match_port(struct batch *b, uint8_t protocol, uint32_t which, uint16_t port)
{
    const uint16_t value = htons(port);

    match_meta(b, NFT_META_L4PROTO, protocol);
    load_header(b, NFT_PAYLOAD_TRANSPORT_HEADER, which, sizeof(value));
    match_register(b, &value, sizeof(value));
}

/* The first segment of a connection: SYN without ACK, FIN or RST. */
static void match_syn(struct batch *b)
{
    const uint8_t mask = 0x17, zero = 0, syn = 0x02;

    match_meta(b, NFT_META_L4PROTO, IPPROTO_TCP);
    load_header(b, NFT_PAYLOAD_TRANSPORT_HEADER, TCP_FLAGS, 1);
    struct nest n = begin_expr(b, "bitwise");
    mnl_attr_put_u32(b->now, NFTA_BITWISE_SREG, htonl(NFT_REG_1));
    mnl_attr_put_u32(b->now, NFTA_BITWISE_DREG, htonl(NFT_REG_1));
    mnl_attr_put_u32(b->now, NFTA_BITWISE_LEN, htonl(1));
    put_data(b, NFTA_BITWISE_MASK, &mask, 1);
    put_data(b, NFTA_BITWISE_XOR, &zero, 1);
    end_expr(b, n);
    match_register(b, &syn, 1);
}

/* Goes on with what is above the limit. */
static void match_above_limit(struct batch *b, struct nft_rate rate)
{
    struct nest n = begin_expr(b, "limit");
    mnl_attr_put_u64(b->now, NFTA_LIMIT_RATE, htobe64(rate.per_second));
    mnl_attr_put_u64(b->now, NFTA_LIMIT_UNIT, htobe64(1)); /* a second */
    mnl_attr_put_u32(b->now, NFTA_LIMIT_BURST, htonl(rate.burst));
    mnl_attr_put_u32(b->now, NFTA_LIMIT_TYPE, htonl(NFT_LIMIT_PKTS));
    mnl_attr_put_u32(b->now, NFTA_LIMIT_FLAGS, htonl(NFT_LIMIT_F_INV));
    end_expr(b, n);
}

/* code: NF_ACCEPT, NF_DROP, or NFT_JUMP or NFT_GOTO with a chain. */
static void give_verdict(struct batch *b, int code, const char *chain)
{
    struct nest n = begin_expr(b, "immediate");
    mnl_attr_put_u32(b->now, NFTA_IMMEDIATE_DREG, htonl(NFT_REG_VERDICT));
    struct nlattr *data = mnl_attr_nest_start(b->now, NFTA_IMMEDIATE_DATA);
    struct nlattr *verdict = mnl_attr_nest_start(b->now, NFTA_DATA_VERDICT);
    mnl_attr_put_u32(b->now, NFTA_VERDICT_CODE, htonl((uint32_t)code));
    if (chain)
        mnl_attr_put_strz(b->now, NFTA_VERDICT_CHAIN, chain);
    mnl_attr_nest_end(b->now, verdict);
    mnl_attr_nest_end(b->now, data);
    end_expr(b, n);
}

static void reject_packet(struct batch *b, uint32_t type, uint8_t code)
{
    struct nest n = begin_expr(b, "reject");
    mnl_attr_put_u32(b->now, NFTA_REJECT_TYPE, htonl(type));
    mnl_attr_put_u8(b->now, NFTA_REJECT_ICMP_CODE, code);
    end_expr(b, n);
}

static void redirect_packet(struct batch *b, uint16_t port)
{
    const uint16_t value = htons(port);
    struct nest n = begin_expr(b, "immediate");
    mnl_attr_put_u32(b->now, NFTA_IMMEDIATE_DREG, htonl(NFT_REG_1));
    put_data(b, NFTA_IMMEDIATE_DATA, &value, sizeof(value));
    end_expr(b, n);
    n = begin_expr(b, "redir");
    mnl_attr_put_u32(b->now, NFTA_REDIR_REG_PROTO_MIN, htonl(NFT_REG_1));
    end_expr(b, n);
}

/* -- rules ------------------------------------------------------------------------------------- */

#define IPV4_DESTINATION 16
#define IPV6_DESTINATION 24

static void pass_to(struct batch *b, uint8_t family, const void *address, uint32_t n_bytes)
{
    struct nlattr *rule = begin_rule(b, CHAIN_SELF);
    match_meta(b, NFT_META_NFPROTO, family);
    load_header(b, NFT_PAYLOAD_NETWORK_HEADER,
                family == NFPROTO_IPV4 ? IPV4_DESTINATION : IPV6_DESTINATION, n_bytes);
    match_register(b, address, n_bytes);
    struct nlattr *element = mnl_attr_nest_start(b->now, NFTA_LIST_ELEM);
    mnl_attr_put_strz(b->now, NFTA_EXPR_NAME, "notrack");
    mnl_attr_nest_end(b->now, element);
    give_verdict(b, NF_ACCEPT, NULL);
    end_rule(b, rule);
}

/* A single chain for all hooks, as each expression costs a search among all kinds that the kernel
 * has: after the first of them `notrack` finds a packet that is not tracked, or is, and does
 * nothing. */
static void build_self(struct batch *b)
{
    const uint8_t loopback4 = 127; /* the first byte is the whole prefix of 127.0.0.0/8 */
    struct in_addr own4;
    struct in6_addr own6;

    inet_pton(AF_INET, NETLINK_OWN_IPV4, &own4);
    inet_pton(AF_INET6, NETLINK_OWN_IPV6, &own6);
    pass_to(b, NFPROTO_IPV4, &loopback4, 1);
    pass_to(b, NFPROTO_IPV4, &own4, sizeof(own4));
    pass_to(b, NFPROTO_IPV6, &in6addr_loopback, sizeof(in6addr_loopback));
    pass_to(b, NFPROTO_IPV6, &own6, sizeof(own6));
}

static void pass_local(struct batch *b, const char *chain)
{
    struct nlattr *rule = begin_rule(b, chain);
    give_verdict(b, NFT_JUMP, CHAIN_SELF);
    end_rule(b, rule);
}

static void rule_for_port(struct batch *b, const char *chain, uint8_t protocol, uint32_t which,
                          uint16_t port, int verdict, const char *to)
{
    struct nlattr *rule = begin_rule(b, chain);
    match_port(b, protocol, which, port);
    give_verdict(b, verdict, to);
    end_rule(b, rule);
}

/* The ICMP error about a redirected datagram comes from a local address; it has to be led back to
 * who sent it, as an answer would. It makes no entry of its own. */
static void track_errors(struct batch *b, uint8_t protocol, uint8_t type)
{
    struct nlattr *rule = begin_rule(b, CHAIN_RAW);

    match_meta(b, NFT_META_L4PROTO, protocol);
    load_header(b, NFT_PAYLOAD_TRANSPORT_HEADER, 0, sizeof(type));
    match_register(b, &type, sizeof(type));
    give_verdict(b, NF_ACCEPT, NULL);
    end_rule(b, rule);
}

/* Redirected packets have to be tracked, and so have the answers to them; nothing else is. */
static void build_tracking(struct batch *b, uint16_t tcp_port, uint16_t udp_port,
                           struct nft_rate rate)
{
    struct nlattr *rule;

    rule_for_port(b, CHAIN_RAW, IPPROTO_TCP, SOURCE_PORT, tcp_port, NF_ACCEPT, NULL);
    rule_for_port(b, CHAIN_RAW, IPPROTO_UDP, SOURCE_PORT, udp_port, NF_ACCEPT, NULL);
    track_errors(b, IPPROTO_ICMP, ICMP_DEST_UNREACH);
    track_errors(b, IPPROTO_ICMPV6, ICMPV6_DEST_UNREACH);
    rule_for_port(b, CHAIN_RAW, IPPROTO_TCP, DESTINATION_PORT, tcp_port, NFT_GOTO, CHAIN_NEW);
    rule_for_port(b, CHAIN_RAW, IPPROTO_UDP, DESTINATION_PORT, udp_port, NFT_GOTO, CHAIN_NEW);
    pass_local(b, CHAIN_RAW);
    rule = begin_rule(b, CHAIN_RAW);
    give_verdict(b, NFT_GOTO, CHAIN_NEW);
    end_rule(b, rule);

    rule = begin_rule(b, CHAIN_NEW);
    match_syn(b);
    give_verdict(b, NFT_GOTO, CHAIN_RATE);
    end_rule(b, rule);
    rule = begin_rule(b, CHAIN_NEW);
    match_meta(b, NFT_META_L4PROTO, IPPROTO_UDP);
    give_verdict(b, NFT_GOTO, CHAIN_RATE);
    end_rule(b, rule);
    rule = begin_rule(b, CHAIN_RATE);
    match_above_limit(b, rate);
    give_verdict(b, NF_DROP, NULL);
    end_rule(b, rule);
}

static void build_redirect(struct batch *b, uint16_t tcp_port, uint16_t udp_port)
{
    struct nlattr *rule;

    pass_local(b, CHAIN_NAT);
    rule = begin_rule(b, CHAIN_NAT);
    match_meta(b, NFT_META_L4PROTO, IPPROTO_TCP);
    redirect_packet(b, tcp_port);
    end_rule(b, rule);
    rule = begin_rule(b, CHAIN_NAT);
    match_port(b, IPPROTO_UDP, DESTINATION_PORT, DNS_PORT);
    redirect_packet(b, udp_port);
    end_rule(b, rule);
}

/* After the redirect: a packet that is still not local has nowhere to go. */
static void build_refusal(struct batch *b)
{
    struct nlattr *rule;

    pass_local(b, CHAIN_OUT);
    rule = begin_rule(b, CHAIN_OUT);
    match_meta(b, NFT_META_L4PROTO, IPPROTO_TCP);
    reject_packet(b, NFT_REJECT_TCP_RST, 0);
    end_rule(b, rule);
    rule = begin_rule(b, CHAIN_OUT);
    reject_packet(b, NFT_REJECT_ICMPX_UNREACH, NFT_REJECT_ICMPX_ADMIN_PROHIBITED);
    end_rule(b, rule);
}

static void build(struct batch *b, uint16_t tcp_port, uint16_t udp_port, struct nft_rate rate)
{
    begin(b, NFNL_MSG_BATCH_BEGIN, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
    end(b);
    add_table(b);
    add_chain(b, CHAIN_NEW, NULL, 0);
    add_chain(b, CHAIN_RATE, NULL, 0);
    add_chain(b, CHAIN_SELF, NULL, 0);
    add_chain(b, CHAIN_RAW, "filter", PRIORITY_RAW);
    add_chain(b, CHAIN_NAT, "nat", PRIORITY_NAT);
    add_chain(b, CHAIN_OUT, "filter", PRIORITY_FILTER);
    build_self(b);
    build_tracking(b, tcp_port, udp_port, rate);
    build_redirect(b, tcp_port, udp_port);
    build_refusal(b);
    b->last->nlmsg_flags |= NLM_F_ACK;
    begin(b, NFNL_MSG_BATCH_END, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
    end(b);
}

/* The kernel reports the errors of messages in their order and undoes all, or acknowledges the one
 * that asked for it, the last, when the transaction is done. */
static int await_ack(struct mnl_socket *nl)
{
    char answer[4096];
    for (;;) {
        ssize_t n = mnl_socket_recvfrom(nl, answer, sizeof(answer));
        if (n < 0)
            return -errno;
        int left = (int)n;
        for (struct nlmsghdr *m = (struct nlmsghdr *)answer; mnl_nlmsg_ok(m, left);
             m = mnl_nlmsg_next(m, &left)) {
            if (m->nlmsg_type == NLMSG_ERROR)
                return ((const struct nlmsgerr *)mnl_nlmsg_get_payload(m))->error;
        }
    }
}

int nft_setup_proxied(uint16_t tcp_port, uint16_t udp_port, struct nft_rate rate)
{
    struct batch b = {0};
    struct timeval timeout = {.tv_sec = 2};

    build(&b, tcp_port, udp_port, rate);
    struct mnl_socket *nl = mnl_socket_open2(NETLINK_NETFILTER, SOCK_CLOEXEC);
    if (!nl)
        return -errno;
    int rc = 0;
    if (mnl_socket_bind(nl, 0, MNL_SOCKET_AUTOPID) < 0 ||
        setsockopt(mnl_socket_get_fd(nl), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)) < 0 ||
        mnl_socket_sendto(nl, b.buffer, b.used) < 0)
        rc = -errno;
    else
        rc = await_ack(nl);
    mnl_socket_close(nl);
    return rc;
}
