/* Each question is answered at once: a message is parsed, its name gets its address (names.c), the
 * answer is sent to where the question came from. UDP takes a bounded number in a turn; a TCP
 * connection is a flow, with one question at a time. Nothing is kept but the names. */

#include "egress/flow/dns.h"

#include "base/util.h"
#include "egress/flow/arrivals.h"
#include "egress/flow/egress.h"
#include "egress/flow/flow.h"
#include "egress/flow/names.h"
#include "egress/flow/sandbox.h"
#include "egress/tls/turns.h"
#include "policy/policy.h"

#include <errno.h>
#include <ldns/ldns.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <uv.h>

#define TTL_SECONDS 300
#define BATCH       32 /* messages of one turn */

/* -- one message ------------------------------------------------------------------------------- */

struct question {
    char name[POLICY_NAME_MAX + 1]; /* normalized */
    ldns_rr *rr;
};

/* The name of the question in text, without escapes: a name that has any is no host name. */
static int question_name(ldns_rr *q, char out[static POLICY_NAME_MAX + 1])
{
    char *text = ldns_rdf2str(ldns_rr_owner(q));
    int rc = text && strlen(text) <= POLICY_NAME_MAX + 1 ? policy_name_normalize(text, out)
                                                         : -EINVAL;

    free(text);
    return rc;
}

/* data is taken over. false: memory is out, and nothing was added. */
static bool add_record(ldns_pkt *r, const ldns_rr *q, ldns_rr_type type, ldns_rdf *data)
{
    ldns_rr *rr = ldns_rr_new();

    if (!rr || !data || !ldns_rr_push_rdf(rr, data)) {
        ldns_rdf_deep_free(data);
        ldns_rr_free(rr);
        return false;
    }
    ldns_rr_set_owner(rr, ldns_rdf_clone(ldns_rr_owner(q)));
    ldns_rr_set_type(rr, type);
    ldns_rr_set_class(rr, LDNS_RR_CLASS_IN);
    ldns_rr_set_ttl(rr, TTL_SECONDS);
    if (ldns_rr_owner(rr) && ldns_pkt_push_rr(r, LDNS_SECTION_ANSWER, rr))
        return true;
    ldns_rr_free(rr);
    return false;
}

/* An answer without the record would say that the name has none, which clients remember. */
static ldns_pkt_rcode add_address(ldns_pkt *r, const ldns_rr *q, const struct policy_address *a,
                                  bool v6)
{
    size_t skip = v6 ? 0 : 12;
    ldns_rdf *data = ldns_rdf_new_frm_data(v6 ? LDNS_RDF_TYPE_AAAA : LDNS_RDF_TYPE_A, 16 - skip,
                                           a->in6.s6_addr + skip);

    return add_record(r, q, v6 ? LDNS_RR_TYPE_AAAA : LDNS_RR_TYPE_A, data) ? LDNS_RCODE_NOERROR
                                                                           : LDNS_RCODE_SERVFAIL;
}

static bool ends_with(const char *name, const char *suffix)
{
    size_t n = strlen(name), m = strlen(suffix);

    return n > m && strcmp(name + n - m, suffix) == 0;
}

/* RFC 6761 6.3: the machine itself, at every resolver. */
static bool is_localhost(const char *name)
{
    return strcmp(name, "localhost") == 0 || ends_with(name, ".localhost");
}

static ldns_pkt_rcode answer_address(struct names *names, ldns_pkt *r, ldns_rr *q, const char *name,
                                     bool v6)
{
    struct policy_address a = {.in6 = IN6ADDR_LOOPBACK_INIT};
    uint32_t number;

    if (is_localhost(name)) {
        if (!v6)
            policy_address_parse("127.0.0.1", &a);
        return add_address(r, q, &a, v6);
    }
    if (policy_address_parse(name, &a) == 0)
        return LDNS_RCODE_NXDOMAIN; /* an address in digits is no name */
    number = names_number(names, name);
    if (number == 0)
        return LDNS_RCODE_REFUSED;
    names_address(number, v6, &a);
    return add_address(r, q, &a, v6);
}

/* "4.3.2.1.in-addr.arpa" or 32 nibbles of ip6.arpa. 0 or -EINVAL. */
static int reverse_v4(const char *name, struct policy_address *out)
{
    unsigned b[4];
    char rest, text[32];

    if (sscanf(name, "%3u.%3u.%3u.%3u.in-addr.arp%c", &b[3], &b[2], &b[1], &b[0], &rest) != 5)
        return -EINVAL;
    snprintf(text, sizeof(text), "%u.%u.%u.%u", b[0], b[1], b[2], b[3]);
    return policy_address_parse(text, out);
}

static int reverse_v6(const char *name, struct policy_address *out)
{
    memset(out, 0, sizeof(*out));
    for (size_t i = 0; i < 32; i++) {
        const char *digits = "0123456789abcdef", *d = strchr(digits, name[2 * i]);

        if (!name[2 * i] || !d || name[2 * i + 1] != '.')
            return -EINVAL;
        out->in6.s6_addr[15 - i / 2] |= (uint8_t)((d - digits) << (i % 2 ? 4 : 0));
    }
    return 0;
}

static ldns_pkt_rcode answer_ptr(struct names *names, ldns_pkt *r, ldns_rr *q, const char *name)
{
    struct policy_address a;
    const char *found;
    bool v4 = ends_with(name, ".in-addr.arpa");

    if (!v4 && !(ends_with(name, ".ip6.arpa") && strlen(name) == 72))
        return LDNS_RCODE_NXDOMAIN;
    if ((v4 ? reverse_v4(name, &a) : reverse_v6(name, &a)) < 0 || !(found = names_of(names, &a)))
        return LDNS_RCODE_NXDOMAIN;
    return add_record(r, q, LDNS_RR_TYPE_PTR, ldns_dname_new_frm_str(found)) ? LDNS_RCODE_NOERROR
                                                                             : LDNS_RCODE_SERVFAIL;
}

/* Other types (HTTPS, SVCB, MX, TXT ...) exist for no name: NODATA, so that clients go on with
 * A. */
static ldns_pkt_rcode answer_question(struct names *names, ldns_pkt *r, ldns_rr *q)
{
    char name[POLICY_NAME_MAX + 1];

    if (ldns_rr_get_class(q) != LDNS_RR_CLASS_IN)
        return LDNS_RCODE_REFUSED;
    if (question_name(q, name) < 0)
        return LDNS_RCODE_NXDOMAIN;
    switch ((int)ldns_rr_get_type(q)) {
    case LDNS_RR_TYPE_A: return answer_address(names, r, q, name, false);
    case LDNS_RR_TYPE_AAAA: return answer_address(names, r, q, name, true);
    case LDNS_RR_TYPE_PTR: return answer_ptr(names, r, q, name);
    default: return LDNS_RCODE_NOERROR;
    }
}

/* The question as it was, and its answer. */
static ldns_pkt_rcode answer_one_question(struct names *names, ldns_pkt *r, ldns_rr *q)
{
    ldns_rr *copy = ldns_rr_clone(q);

    if (copy && ldns_rr_owner(copy) && ldns_pkt_push_rr(r, LDNS_SECTION_QUESTION, copy))
        return answer_question(names, r, q);
    ldns_rr_free(copy);
    return LDNS_RCODE_SERVFAIL;
}

static ldns_pkt *make_answer(struct names *names, ldns_pkt *query)
{
    ldns_rr_list *questions = ldns_pkt_question(query);
    ldns_pkt *r = ldns_pkt_new();
    ldns_pkt_rcode code;

    if (!r)
        return NULL;
    ldns_pkt_set_id(r, ldns_pkt_id(query));
    ldns_pkt_set_qr(r, true);
    ldns_pkt_set_ra(r, true);
    ldns_pkt_set_rd(r, ldns_pkt_rd(query));
    ldns_pkt_set_opcode(r, ldns_pkt_get_opcode(query));
    if (ldns_pkt_edns(query))
        ldns_pkt_set_edns_udp_size(r, DNS_ANSWER_MAX);
    if (ldns_pkt_get_opcode(query) != LDNS_PACKET_QUERY) {
        code = LDNS_RCODE_NOTIMPL;
    } else if (ldns_rr_list_rr_count(questions) != 1) {
        code = LDNS_RCODE_FORMERR;
    } else {
        code = answer_one_question(names, r, ldns_rr_list_rr(questions, 0));
    }
    ldns_pkt_set_rcode(r, code);
    return r;
}

/* Answers a message that ldns cannot read with its header alone, when that is a query's. */
static size_t unread(const uint8_t *query, size_t n, ldns_pkt_rcode code, uint8_t *out, size_t size)
{
    if (n < 12 || size < 12 || query[2] & 0x80)
        return 0;
    memset(out, 0, 12);
    memcpy(out, query, 2);
    out[2] = 0x80 | (query[2] & 0x79);
    out[3] = (uint8_t)(0x80 | code);
    return 12;
}

size_t dns_answer(struct names *names, const void *query, size_t n, void *out, size_t size)
{
    ldns_pkt *q = NULL, *r;
    uint8_t *wire = NULL;
    size_t len = 0;
    ldns_status rc;

    if (n > DNS_QUERY_MAX)
        return 0;
    rc = ldns_wire2pkt(&q, query, n);
    if (rc != LDNS_STATUS_OK)
        return unread(query, n,
                      rc == LDNS_STATUS_MEM_ERR ? LDNS_RCODE_SERVFAIL : LDNS_RCODE_FORMERR, out,
                      size);
    if (!ldns_pkt_qr(q) && (r = make_answer(names, q))) {
        if (ldns_pkt2wire(&wire, r, &len) != LDNS_STATUS_OK || len > size)
            len = 0;
        if (len > 0)
            memcpy(out, wire, len);
        free(wire);
        ldns_pkt_free(r);
    }
    ldns_pkt_free(q);
    return len;
}

/* -- UDP --------------------------------------------------------------------------------------- */

void dns_udp_options(int fd)
{
    int one = 1;

    (void)!setsockopt(fd, SOL_IPV6, IPV6_RECVPKTINFO, &one, sizeof(one));
}

/* A question and its sender; its control message has the address of the sandbox that it reached.
 * The answer leaves from that one: only then does the redirect's way back fit. */
struct datagram {
    struct sockaddr_in6 peer;
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(struct in6_pktinfo))];
    struct iovec iov;
    struct msghdr msg;
};

static void prepare(struct datagram *d, void *bytes, size_t n)
{
    d->iov = (struct iovec){bytes, n};
    d->msg = (struct msghdr){.msg_name = &d->peer,
                             .msg_namelen = sizeof(d->peer),
                             .msg_iov = &d->iov,
                             .msg_iovlen = 1,
                             .msg_control = d->control,
                             .msg_controllen = sizeof(d->control)};
}

static void answer_from_there(int fd, struct datagram *d, void *bytes, size_t n)
{
    struct cmsghdr *c = CMSG_FIRSTHDR(&d->msg);

    if (c && c->cmsg_level == SOL_IPV6 && c->cmsg_type == IPV6_PKTINFO)
        ((struct in6_pktinfo *)(void *)CMSG_DATA(c))->ipi6_ifindex = 0;
    else
        d->msg.msg_controllen = 0;
    d->iov = (struct iovec){bytes, n};
    (void)!sendmsg(fd, &d->msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void dns_udp_readable(struct sandbox *s)
{
    uint8_t in[DNS_QUERY_MAX + 1], out[DNS_ANSWER_MAX];

    for (int i = 0; i < BATCH && !turns_is_over(s->egress->turns); i++) {
        struct datagram d;
        ssize_t n;
        size_t len;

        prepare(&d, in, sizeof(in));
        n = recvmsg(s->udp_fd, &d.msg, MSG_DONTWAIT);
        if (n < 0)
            return;
        arrivals_note(s);
        len = dns_answer(s->names, in, (size_t)n, out, sizeof(out));
        if (len > 0)
            answer_from_there(s->udp_fd, &d, out, len);
    }
}

/* -- TCP --------------------------------------------------------------------------------------- */

#define TCP_IDLE_MS 10000
#define TCP_QUERIES 1000 /* of one connection */

/* RFC 7766: each message behind its length. Questions are read whole, one at a time, and an answer
 * fits the socket's buffer; a client that does not take answers is late in the end. */
struct tcp {
    uint8_t in[2 + DNS_QUERY_MAX];
    size_t have;
    unsigned queries;
};

static void on_tcp_flow_end(struct flow *f)
{
    free(f->user);
    f->user = NULL;
}

static bool answer_one(struct flow *f, struct tcp *t)
{
    uint8_t out[2 + DNS_ANSWER_MAX];
    size_t n = (size_t)t->in[0] << 8 | t->in[1], len;

    len = dns_answer(f->sandbox->names, t->in + 2, n, out + 2, DNS_ANSWER_MAX);
    out[0] = (uint8_t)(len >> 8);
    out[1] = (uint8_t)len;
    if (len == 0 || ++t->queries > TCP_QUERIES ||
        send(f->fd, out, len + 2, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)len + 2)
        return false;
    t->have -= n + 2;
    memmove(t->in, t->in + n + 2, t->have);
    return true;
}

static void on_tcp_readable(struct flow *f, int events)
{
    struct tcp *t = f->user;
    ssize_t n = recv(f->fd, t->in + t->have, sizeof(t->in) - t->have, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        flow_end(f);
        return;
    }
    t->have += (size_t)n;
    while (t->have >= 2) {
        size_t len = (size_t)t->in[0] << 8 | t->in[1];

        if (len > DNS_QUERY_MAX) {
            flow_end(f);
            return;
        }
        if (t->have < len + 2)
            break;
        if (!answer_one(f, t)) {
            flow_end(f);
            return;
        }
    }
    flow_watch_again(f, TCP_IDLE_MS);
}

void dns_tcp_start(struct flow *f)
{
    struct tcp *t = calloc(1, sizeof(*t));

    f->kind = FLOW_DNS;
    f->state = FLOW_ANSWERING;
    f->user = t;
    f->on_end = on_tcp_flow_end;
    if (!t || flow_watch(f, UV_READABLE, on_tcp_readable, TCP_IDLE_MS, flow_end) < 0)
        flow_end(f);
}
