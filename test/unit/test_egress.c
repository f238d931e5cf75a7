/* The pure parts of cay-egress: names, DNS answers, first bytes, SOCKS, CONNECT, ClientHello, the chain of
 * the audit log, rates. The code that moves bytes is tested with real clients:
 * test/scenario/test_egress_engine.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/util.h"
#include "contract/proto.h"
#include "egress/audit/audit_chain.h"
#include "egress/audit/audit_store.h"
#include "egress/flow/arrivals.h"
#include "egress/flow/authority.h"
#include "egress/flow/connect.h"
#include "egress/flow/denial.h"
#include "egress/flow/dns.h"
#include "egress/flow/egress.h"
#include "egress/flow/first_line.h"
#include "egress/flow/greeting.h"
#include "egress/flow/names.h"
#include "egress/flow/rate.h"
#include "egress/flow/registry.h"
#include "egress/flow/retry.h"
#include "egress/flow/sandbox.h"
#include "egress/flow/sniff.h"
#include "egress/flow/socks.h"
#include "egress/flow/target.h"
#include "egress/flow/upstream.h"
#include "egress/tls/clienthello.h"
#include "http/gate.h"
#include "policy/policy.h"
#include "policy/stack.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* -- names ------------------------------------------------------------------------------------- */

static const unsigned char names_key[NAMES_KEY_BYTES];

static void assert_address(const struct policy_address *a, const char *expected)
{
    char text[INET6_ADDRSTRLEN];

    policy_address_format(a, text);
    assert_string_equal(text, expected);
}

static void names_keep_their_addresses(void **state)
{
    struct names *n = names_new(names_key);
    struct policy_address a;
    uint32_t number = names_number(n, "a.example.com"), other = names_number(n, "b.example.com");

    assert_in_range(number, NAMES_FIRST, NAMES_LAST);
    assert_int_not_equal(number, other);
    assert_int_equal(names_number(n, "a.example.com"), number);
    names_address(number, false, &a);
    assert_true(names_is_own(&a));
    assert_string_equal(names_of(n, &a), "a.example.com");
    names_address(number, true, &a);
    assert_string_equal(names_of(n, &a), "a.example.com");
    names_address(number == other - 1 ? other + 1 : number + 1, true, &a);
    assert_null(names_of(n, &a));
    assert_true(names_is_own(&a));
    names_free(n);
}

/* Another process, or another sandbox of it, and the other way round: the same numbers, and those
 * that were not given out stand for nothing. Under another key they are others. */
static void names_have_their_addresses_again(void **state)
{
    static const unsigned char other_key[NAMES_KEY_BYTES] = {1};
    struct names *n = names_new(names_key), *again = names_new(names_key),
                 *other = names_new(other_key);
    uint32_t a = names_number(n, "a.example.com"), b = names_number(n, "b.example.com");
    struct policy_address address;

    names_address(a, false, &address);
    assert_null(names_of(again, &address));
    assert_int_equal(names_number(again, "b.example.com"), b);
    assert_null(names_of(again, &address));
    assert_int_equal(names_number(again, "a.example.com"), a);
    assert_int_not_equal(names_number(other, "a.example.com"), a);
    names_free(n);
    names_free(again);
    names_free(other);
}

/* Else a tenant's sandboxes would tell which names have one number in another's. */
static void numbers_of_names_are_their_tenants_own(void **state)
{
    struct names *one = names_new(names_key), *again = names_new(names_key),
                 *other = names_new(names_key), *late = names_new(names_key);
    uint32_t number = names_number(late, "a.example.com"), own;

    names_set_tenant(one, "tenant1");
    names_set_tenant(one, "tenant1"); /* with each policy */
    names_set_tenant(again, "tenant1");
    names_set_tenant(other, "tenant2");
    names_set_tenant(late, "tenant1"); /* asked for before its policy came: it stays */
    own = names_number(one, "a.example.com");
    assert_int_equal(names_number(again, "a.example.com"), own);
    assert_int_not_equal(names_number(other, "a.example.com"), own);
    assert_int_not_equal(number, own);
    assert_int_equal(names_number(late, "a.example.com"), number);
    names_free(one);
    names_free(again);
    names_free(other);
    names_free(late);
}

static void restore_in(void *to, uint32_t number, const char *name)
{
    assert_true(names_restore(to, number, name));
}

/* Among as many names as there may be some have the number that another one would have, and so the
 * next: asked for the other way round they would have each other's. The kept numbers decide. */
static void restored_names_keep_what_was_theirs(void **state)
{
    struct names *n = names_new(names_key), *turned = names_new(names_key),
                 *restored = names_new(names_key);
    uint32_t numbers[NAMES_MAX], changed = 0;
    struct policy_address a;
    char name[32];

    for (unsigned i = 0; i < NAMES_MAX; i++) {
        snprintf(name, sizeof(name), "n%u.example.com", i);
        numbers[i] = names_number(n, name);
    }
    names_each(n, restore_in, restored);
    assert_false(names_restore(restored, numbers[0], "other.example.com"));
    for (unsigned i = NAMES_MAX; i-- > 0;) {
        snprintf(name, sizeof(name), "n%u.example.com", i);
        changed += names_number(turned, name) != numbers[i];
        assert_int_equal(names_number(restored, name), numbers[i]);
        names_address(numbers[i], false, &a);
        assert_string_equal(names_of(restored, &a), name);
    }
    assert_in_range(changed, 1, NAMES_MAX / 4); /* the control */
    assert_int_equal(names_count(restored), NAMES_MAX);
    names_free(n);
    names_free(turned);
    names_free(restored);
}

static void addresses_of_others_are_no_names(void **state)
{
    static const char *const others[] = {"198.17.255.255", "198.20.0.16", "93.184.216.34",
                                         "fdca:79ee:19::10", "::"};
    struct names *n = names_new(names_key);
    struct policy_address a;

    names_number(n, "a.example.com");
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        assert_int_equal(policy_address_parse(others[i], &a), 0);
        assert_false(names_is_own(&a));
        assert_null(names_of(n, &a));
    }
    assert_int_equal(policy_address_parse("198.18.0.0", &a), 0);
    assert_true(names_is_own(&a));
    assert_null(names_of(n, &a));
    assert_int_equal(policy_address_parse("198.18.0.2", &a), 0);
    assert_string_equal(names_of(n, &a), NAMES_INTERNAL_NAME);
    names_free(n);
}

static void names_are_bounded(void **state)
{
    struct names *n = names_new(names_key);
    struct policy_address a;
    uint32_t number = 0;
    char name[32];

    for (unsigned i = 0; i < NAMES_MAX; i++) {
        snprintf(name, sizeof(name), "n%u.example.com", i);
        number = names_number(n, name);
        assert_in_range(number, NAMES_FIRST, NAMES_LAST);
    }
    assert_int_equal(names_number(n, "one.more"), 0);
    assert_int_not_equal(names_number(n, "n0.example.com"), 0);
    assert_int_equal(names_count(n), NAMES_MAX);
    names_address(number, false, &a);
    assert_string_equal(names_of(n, &a), name);
    names_free(n);
}

/* -- DNS --------------------------------------------------------------------------------------- */

static size_t question(uint8_t *out, const char *name, uint16_t type)
{
    size_t at = 12;

    memcpy(out, "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00", 12);
    while (*name) {
        size_t n = strcspn(name, ".");

        out[at++] = (uint8_t)n;
        memcpy(out + at, name, n);
        at += n;
        name += n + (name[n] == '.');
    }
    memcpy(out + at, (uint8_t[]){0, (uint8_t)(type >> 8), (uint8_t)type, 0, 1}, 5);
    return at + 5;
}

enum { A = 1, PTR = 12, AAAA = 28, HTTPS = 65 };

/* rcode of the answer; *count its answers. */
static int ask(struct names *n, const char *name, uint16_t type, unsigned *count, uint8_t *out,
               size_t *len)
{
    uint8_t q[512];

    *len = dns_answer(n, q, question(q, name, type), out, DNS_ANSWER_MAX);
    assert_true(*len >= 12);
    assert_memory_equal(out, "\x12\x34", 2);
    assert_true(out[2] & 0x80);
    *count = (unsigned)out[6] << 8 | out[7];
    return out[3] & 15;
}

static void dns_answers(void **state)
{
    static const struct {
        const char *name;
        uint16_t type;
        int rcode;
        unsigned count;
        const char
            *tail; /* of the answer, 4 bytes; NULL: the name's own, where it has an address */
    } cases[] = {
        {"web.example.com", A, 0, 1, NULL},
        {"WEB.example.com", A, 0, 1, NULL},
        {"web.example.com", AAAA, 0, 1, NULL},
        {"web.example.com", HTTPS, 0, 0, NULL},
        {"web.example.com", 255, 0, 0, NULL},
        {"other.example.com", A, 0, 1, NULL},
        {"localhost", A, 0, 1, "\x7f\x00\x00\x01"},
        {"x.localhost", AAAA, 0, 1, "\x00\x00\x00\x01"},
        {"cay.internal", A, 0, 1, "\xc6\x12\x00\x02"},
        {"16.0.18.198.in-addr.arpa", PTR, 0, 1, NULL},
        {"99.0.18.198.in-addr.arpa", PTR, 3, 0, NULL},
        {"8.8.8.8.in-addr.arpa", PTR, 3, 0, NULL},
        {"0.1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.1.0.0.e.e.9.7.a.c.d.f.ip6.arpa", PTR, 0, 1,
         NULL},
        {"0.1.ip6.arpa", PTR, 3, 0, NULL},
        {"192.0.2.1", A, 3, 0, NULL},
        {"bad name.example.com", A, 3, 0, NULL},
        {"-bad\x01.example.com", A, 3, 0, NULL},
    };
    struct names *n = names_new(names_key);
    uint8_t out[DNS_ANSWER_MAX];
    struct policy_address a;
    char name[POLICY_NAME_MAX + 1];

    assert_true(names_restore(n, NAMES_FIRST, "first.example.com")); /* for PTR */
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        bool v6 = cases[i].type == AAAA;
        unsigned count;
        size_t len;

        assert_int_equal(ask(n, cases[i].name, cases[i].type, &count, out, &len), cases[i].rcode);
        assert_int_equal(count, cases[i].count);
        if (cases[i].tail) {
            assert_memory_equal(out + len - 4, cases[i].tail, 4);
        } else if (count > 0 && cases[i].type != PTR) {
            assert_int_equal(policy_name_normalize(cases[i].name, name), 0);
            names_address(names_number(n, name), v6, &a);
            assert_memory_equal(out + len - (v6 ? 16 : 4), a.in6.s6_addr + (v6 ? 0 : 12),
                                v6 ? 16 : 4);
        }
    }
    names_free(n);
}

static void dns_is_refused_when_names_are_used_up(void **state)
{
    struct names *n = names_new(names_key);
    uint8_t out[DNS_ANSWER_MAX];
    unsigned count;
    size_t len;
    char name[32];

    for (unsigned i = 0; i < NAMES_MAX; i++) {
        snprintf(name, sizeof(name), "n%u.example.com", i);
        names_number(n, name);
    }
    assert_int_equal(ask(n, "one.more", A, &count, out, &len), 5);
    assert_int_equal(ask(n, "n7.example.com", A, &count, out, &len), 0);
    names_free(n);
}

static void odd_dns_messages(void **state)
{
    struct names *n = names_new(names_key);
    uint8_t q[512], out[DNS_ANSWER_MAX];
    size_t len = question(q, "web.example.com", A);

    assert_int_equal(dns_answer(n, q, 0, out, sizeof(out)), 0);
    assert_int_equal(dns_answer(n, q, 11, out, sizeof(out)), 0);
    for (size_t cut = 12; cut < len; cut++) { /* a header, and not all that it announces */
        assert_int_equal(dns_answer(n, q, cut, out, sizeof(out)), 12);
        assert_int_equal(out[3] & 15, 1);
    }
    q[2] |= 0x80; /* an answer is not answered */
    assert_int_equal(dns_answer(n, q, len, out, sizeof(out)), 0);
    q[2] = 5 << 3; /* an update */
    assert_true(dns_answer(n, q, len, out, sizeof(out)) >= 12);
    assert_int_equal(out[3] & 15, 4);
    q[2] = 1;
    q[5] = 0; /* no question */
    assert_true(dns_answer(n, q, len, out, sizeof(out)) >= 12);
    assert_int_equal(out[3] & 15, 1);
    q[5] = 1;
    q[len - 1] = 3; /* class CHAOS */
    assert_true(dns_answer(n, q, len, out, sizeof(out)) >= 12);
    assert_int_equal(out[3] & 15, 5);
    assert_int_equal(names_count(n), 0);
    names_free(n);
}

/* -- first bytes ------------------------------------------------------------------------------- */

static void first_bytes(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
        enum sniff in_between, at_end, to_listener;
    } cases[] = {
#define BYTES(s) s, sizeof(s) - 1
        {BYTES(""), SNIFF_MORE, SNIFF_OPAQUE, SNIFF_MORE},
        {BYTES("G"), SNIFF_MORE, SNIFF_OPAQUE, SNIFF_MORE},
        {BYTES("GET /"), SNIFF_MORE, SNIFF_HTTP, SNIFF_MORE},
        {BYTES("GET key"), SNIFF_MORE, SNIFF_OPAQUE, SNIFF_MORE},
        {BYTES("GET / HTTP/1.1\r"), SNIFF_MORE, SNIFF_HTTP, SNIFF_MORE},
        {BYTES("GET / HTTP/1.1\r\n"), SNIFF_HTTP, SNIFF_HTTP, SNIFF_HTTP},
        {BYTES("GET / HTTP/1.0\n"), SNIFF_HTTP, SNIFF_HTTP, SNIFF_HTTP},
        {BYTES("BREW / HTTP/1.1\r\n"), SNIFF_HTTP, SNIFF_HTTP, SNIFF_HTTP},
        {BYTES("BREW / HT"), SNIFF_MORE, SNIFF_HTTP, SNIFF_MORE},
        {BYTES("BREW"), SNIFF_MORE, SNIFF_OPAQUE, SNIFF_MORE},
        {BYTES("brew /x HTTP/1.1"), SNIFF_MORE, SNIFF_HTTP, SNIFF_MORE},
        {BYTES("GET key\r\n"), SNIFF_OPAQUE, SNIFF_OPAQUE, SNIFF_OPAQUE},
        {BYTES("OPTIONS rtsp://x/ RTSP/1.0\r\n"), SNIFF_HTTP, SNIFF_HTTP, SNIFF_HTTP},
        {BYTES("DESCRIBE /x RTSP/1.0\r\n"), SNIFF_HTTP, SNIFF_HTTP, SNIFF_HTTP},
        {BYTES("SOURCE x:/ ICE/1.0\r\n"), SNIFF_HTTP, SNIFF_HTTP, SNIFF_HTTP},
        {BYTES("GET \n"), SNIFF_HTTP, SNIFF_HTTP, SNIFF_HTTP},
        {BYTES("GET *\r\n"), SNIFF_HTTP, SNIFF_HTTP, SNIFF_HTTP},
        {BYTES("CONNECT a\n"), SNIFF_HTTP, SNIFF_HTTP, SNIFF_CONNECT},
        {BYTES("KEYS *\r\n"), SNIFF_OPAQUE, SNIFF_OPAQUE, SNIFF_OPAQUE},
        {BYTES("ACL /x\r\n"), SNIFF_HTTP, SNIFF_HTTP, SNIFF_HTTP},
        {BYTES("cat /x\n"), SNIFF_OPAQUE, SNIFF_OPAQUE, SNIFF_OPAQUE},
        {BYTES("GETX"), SNIFF_MORE, SNIFF_OPAQUE, SNIFF_MORE},
        {BYTES("\r\n"), SNIFF_MORE, SNIFF_OPAQUE, SNIFF_MORE},
        {BYTES("\r\n\n GET / HTTP/1.1\r\n"), SNIFF_HTTP, SNIFF_HTTP, SNIFF_HTTP},
        {BYTES("\n CONN"), SNIFF_MORE, SNIFF_OPAQUE, SNIFF_MORE},
        {BYTES("\x0bGET / HTTP/1.1\r\n"), SNIFF_HTTP, SNIFF_HTTP, SNIFF_HTTP},
        {BYTES("\x0c\x1c\x85\xa0"), SNIFF_MORE, SNIFF_OPAQUE, SNIFF_MORE},
        {BYTES("\x1dGET /"), SNIFF_MORE, SNIFF_HTTP, SNIFF_MORE},
        {BYTES("get / http/1.1 \r\n"), SNIFF_HTTP, SNIFF_HTTP, SNIFF_HTTP},
        {BYTES("GET\t/\x0bHTTP/1.11\n"), SNIFF_HTTP, SNIFF_HTTP, SNIFF_HTTP},
        {BYTES("GET /\r\nHost: x\r\n\r\n"), SNIFF_HTTP, SNIFF_HTTP, SNIFF_HTTP},
        {BYTES("get\thttp://x/\n"), SNIFF_HTTP, SNIFF_HTTP, SNIFF_HTTP},
        {BYTES("X Y HTTP/2.0\n"), SNIFF_HTTP, SNIFF_HTTP, SNIFF_HTTP},
        {BYTES("HTTP/1.1 200 OK\r\n"), SNIFF_OPAQUE, SNIFF_OPAQUE, SNIFF_OPAQUE},
        {BYTES("get key\r\n"), SNIFF_OPAQUE, SNIFF_OPAQUE, SNIFF_OPAQUE},
        {BYTES("GET HTTP/ x\r\n"), SNIFF_HTTP, SNIFF_HTTP, SNIFF_HTTP},
        {BYTES("GET /\0"), SNIFF_MORE, SNIFF_HTTP, SNIFF_MORE},
        {BYTES("GET /\x01 HTTP/1.1\n"), SNIFF_HTTP, SNIFF_HTTP, SNIFF_HTTP},
        {BYTES("hello"), SNIFF_MORE, SNIFF_OPAQUE, SNIFF_MORE},
        {BYTES("hello world"), SNIFF_MORE, SNIFF_OPAQUE, SNIFF_MORE},
        {BYTES("hello\n"), SNIFF_OPAQUE, SNIFF_OPAQUE, SNIFF_OPAQUE},
        {BYTES("hello\x01"), SNIFF_OPAQUE, SNIFF_OPAQUE, SNIFF_OPAQUE},
        {BYTES("SSH-2.0-x\r\n"), SNIFF_OPAQUE, SNIFF_OPAQUE, SNIFF_OPAQUE},
        {BYTES("003agit-upload-pack /p.git\0host=h\0"), SNIFF_OPAQUE, SNIFF_OPAQUE, SNIFF_OPAQUE},
        {BYTES("0 \x02\x01\x01"), SNIFF_OPAQUE, SNIFF_OPAQUE, SNIFF_OPAQUE},
        {BYTES("83 <34>1"), SNIFF_OPAQUE, SNIFF_OPAQUE, SNIFF_OPAQUE},
        {BYTES("AMQP\0\0\x09\x01"), SNIFF_OPAQUE, SNIFF_OPAQUE, SNIFF_OPAQUE},
        {BYTES("{\"a\": 1"), SNIFF_OPAQUE, SNIFF_OPAQUE, SNIFF_OPAQUE},
        {BYTES("*1\r\n$4\r\nPING\r\n"), SNIFF_OPAQUE, SNIFF_OPAQUE, SNIFF_OPAQUE},
        {BYTES("CONNECT a:1 HTTP/1.1\r\n"), SNIFF_HTTP, SNIFF_HTTP, SNIFF_CONNECT},
        {BYTES("\x05\x01"), SNIFF_OPAQUE, SNIFF_OPAQUE, SNIFF_SOCKS5},
        {BYTES("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), SNIFF_HTTP2, SNIFF_HTTP2, SNIFF_HTTP2},
        {BYTES("PRI * HT"), SNIFF_MORE, SNIFF_HTTP, SNIFF_MORE},
        {BYTES("PRI * HTTP/2.0\n"), SNIFF_HTTP, SNIFF_HTTP, SNIFF_HTTP},
        {BYTES("\r\nPRI * HTTP/2.0\r\n"), SNIFF_HTTP, SNIFF_HTTP, SNIFF_HTTP},
        {BYTES("PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n"), SNIFF_PROXY_HEADER, SNIFF_PROXY_HEADER,
         SNIFF_PROXY_HEADER},
        {BYTES("\r\n\r\n\0\r\nQUIT\n\x21"), SNIFF_PROXY_HEADER, SNIFF_PROXY_HEADER,
         SNIFF_PROXY_HEADER},
        {BYTES("\r\n\r\n\0\r"), SNIFF_MORE, SNIFF_OPAQUE, SNIFF_MORE},
        {BYTES("\x16"), SNIFF_MORE, SNIFF_OPAQUE, SNIFF_MORE},
        {BYTES("\x16\x03"), SNIFF_TLS, SNIFF_TLS, SNIFF_TLS},
        {BYTES("\x16\x03\x01\x00\x00"), SNIFF_TLS, SNIFF_TLS, SNIFF_TLS},
        {BYTES("\x15\x03"), SNIFF_TLS, SNIFF_TLS, SNIFF_TLS},
        {BYTES("\x14\x03"), SNIFF_TLS, SNIFF_TLS, SNIFF_TLS},
        {BYTES("\x17\x03"), SNIFF_TLS, SNIFF_TLS, SNIFF_TLS},
        {BYTES("\x16\x03\x01\x02\x00\x02"), SNIFF_TLS, SNIFF_TLS, SNIFF_TLS},
        {BYTES("\x16\x02"), SNIFF_MORE, SNIFF_OPAQUE, SNIFF_MORE},
        {BYTES("\x16\x02\x00\x02\x00\x01"), SNIFF_TLS, SNIFF_TLS, SNIFF_TLS},
        {BYTES("\x16\x0f\xff\x00\x01\x01"), SNIFF_TLS, SNIFF_TLS, SNIFF_TLS},
        {BYTES("\x16\x02\x00\x02\x00\x02"), SNIFF_OPAQUE, SNIFF_OPAQUE, SNIFF_OPAQUE},
        {BYTES("\x16\x00\x00\x00\x00\x01"), SNIFF_OPAQUE, SNIFF_OPAQUE, SNIFF_OPAQUE},
        {BYTES("\x16\x10"), SNIFF_OPAQUE, SNIFF_OPAQUE, SNIFF_OPAQUE},
        {BYTES("\x15\x00\x00\x00\x02\x01"), SNIFF_TLS, SNIFF_TLS, SNIFF_TLS},
        {BYTES("\x15\x00\x00\x00\x03\x01"), SNIFF_OPAQUE, SNIFF_OPAQUE, SNIFF_OPAQUE},
        {BYTES("\x13\x03"), SNIFF_OPAQUE, SNIFF_OPAQUE, SNIFF_OPAQUE},
        {BYTES("\x18\x03"), SNIFF_OPAQUE, SNIFF_OPAQUE, SNIFF_OPAQUE},
        {BYTES("\x80"), SNIFF_MORE, SNIFF_OPAQUE, SNIFF_MORE},
        {BYTES("\x80\x2e\x01\x03\x01"), SNIFF_TLS, SNIFF_TLS, SNIFF_TLS},
        {BYTES("\x80\x2e\x01\x00\x02"), SNIFF_OPAQUE, SNIFF_OPAQUE, SNIFF_OPAQUE},
        {BYTES("\x80\x00\x00\x28"), SNIFF_OPAQUE, SNIFF_OPAQUE, SNIFF_OPAQUE},
        {BYTES("\x00\x00"), SNIFF_OPAQUE, SNIFF_OPAQUE, SNIFF_OPAQUE},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *b = cases[i].bytes;

        assert_int_equal(sniff_bytes(b, cases[i].n, false, false), cases[i].in_between);
        assert_int_equal(sniff_bytes(b, cases[i].n, true, false), cases[i].at_end);
        assert_int_equal(sniff_bytes(b, cases[i].n, false, true), cases[i].to_listener);
    }
}

/* However it is cut, a whole request line is found to be one, and never something else before. */
static void http_in_pieces(void **state)
{
    static const char line[] = "PROPFIND http://a.b/c HTTP/1.1\r\nHost: a.b\r\n\r\n";
    size_t whole = (size_t)(strchr(line, '\n') - line) + 1;

    for (size_t n = 0; n < sizeof(line); n++)
        assert_int_equal(sniff_bytes(line, n, false, false), n < whole ? SNIFF_MORE : SNIFF_HTTP);
}

/* A line of 8192 bytes without its end is no message that anything else begins with. */
static void a_line_without_an_end(void **state)
{
    char line[8192];

    memset(line, 'a', sizeof(line));
    assert_int_equal(sniff_bytes(line, sizeof(line) - 1, false, false), SNIFF_MORE);
    assert_int_equal(sniff_bytes(line, sizeof(line), false, false), SNIFF_HTTP);
    memset(line, ' ', sizeof(line));
    assert_int_equal(sniff_bytes(line, sizeof(line), false, false), SNIFF_HTTP);
}

/* -- SOCKS and CONNECT ------------------------------------------------------------------------- */

/* Pieces that were carried unread before their line ended. */
static void first_lines_that_begin_as_none(void **state)
{
    static const struct {
        const char *line;
        enum first_line_end end;
    } cases[] = {{"GET {x HTTP/1.1\r\n", FIRST_LINE_IS_REQUEST},
                 {"(GET /x HTTP/1.1\n", FIRST_LINE_IS_REQUEST},
                 {"\x01GET /x\thttp/1.0 \r\n", FIRST_LINE_IS_REQUEST},
                 {"83 <34>1 HTTP/1.1\r\n", FIRST_LINE_IS_REQUEST},
                 {"A1 \x01/x HTTP/1.1 foo\r\n", FIRST_LINE_IS_REQUEST},
                 {"/x y z HTTP/1.1\r\n", FIRST_LINE_IS_REQUEST},
                 {"HTTP/1.1 {\r\n", FIRST_LINE_IS_NONE},
                 {"{\"a\": 1, \"b\": \"HTTP/1.1\"}\n", FIRST_LINE_IS_NONE},
                 {"83 <34>1 x \"GET / HTTP/1.1\" 200\n", FIRST_LINE_IS_NONE},
                 {"\x01 x xHTTP/1.1\n", FIRST_LINE_IS_NONE},
                 {"GET {x HTT/1.1\n", FIRST_LINE_IS_NONE},
                 {"\x01\n", FIRST_LINE_IS_NONE},
                 {"GET {x HTTP/1.1", FIRST_LINE_GOES_ON}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *line = cases[i].line;
        size_t n = strlen(line);

        for (size_t first = 0; first <= n; first++) { /* in two pieces at each place */
            struct first_line l = {0};
            enum first_line_end end = first_line_follow(&l, line, first);

            if (end == FIRST_LINE_GOES_ON)
                end = first_line_follow(&l, line + first, n - first);
            assert_int_equal(end, cases[i].end);
        }
    }
}

static void a_long_first_line_is_none(void **state)
{
    struct first_line l = {0};
    char bytes[1024] = {0};
    enum first_line_end end = FIRST_LINE_GOES_ON;
    size_t n = 0;

    for (; end == FIRST_LINE_GOES_ON; n += sizeof(bytes))
        end = first_line_follow(&l, bytes, sizeof(bytes));
    assert_int_equal(end, FIRST_LINE_IS_NONE);
    assert_int_equal(n, FIRST_LINE_FOLLOWED_BYTES);
}

static void socks_greetings(void **state)
{
    bool accepts = false;

    assert_int_equal(socks_parse_greeting((unsigned char *)"\x05\x01\x00", 3, &accepts), 3);
    assert_true(accepts);
    assert_int_equal(socks_parse_greeting((unsigned char *)"\x05\x02\x01\x02x", 5, &accepts), 4);
    assert_false(accepts);
    assert_int_equal(socks_parse_greeting((unsigned char *)"\x05\x00", 2, &accepts), 2);
    assert_false(accepts);
    assert_int_equal(socks_parse_greeting((unsigned char *)"\x05\x03\x00\x00", 4, &accepts), 0);
    assert_int_equal(socks_parse_greeting((unsigned char *)"\x04\x01\x00", 3, &accepts), -EPROTO);
}

static void socks_requests(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
        ssize_t len;
        enum socks_reply reply;
        const char *name, *address;
        uint16_t port;
    } cases[] = {
        {BYTES("\x05\x01\x00\x01\x5d\xb8\xd8\x22\x01\xbb"), 10, SOCKS_DONE, "", "93.184.216.34",
         443},
        {BYTES("\x05\x01\x00\x03\x03"
               "A.b\x00\x50"),
         10, SOCKS_DONE, "a.b", NULL, 80},
        {BYTES("\x05\x01\x00\x03\x09"
               "127.0.0.1\x00\x50"),
         16, SOCKS_DONE, "", "127.0.0.1", 80},
        {BYTES("\x05\x01\x00\x04\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\x00\x50"), 22,
         SOCKS_DONE, "", "2001:db8::1", 80},
        {BYTES("\x05\x02\x00\x01\x5d\xb8\xd8\x22\x01\xbb"), 10, SOCKS_NO_COMMAND, NULL, NULL, 0},
        {BYTES("\x05\x03\x00\x01\x5d\xb8\xd8\x22\x01\xbb"), 10, SOCKS_NO_COMMAND, NULL, NULL, 0},
        {BYTES("\x05\x01\x00\x02\x5d\xb8"), 6, SOCKS_NO_ADDRESS, NULL, NULL, 0},
        {BYTES("\x05\x01\x00\x01\x5d\xb8\xd8\x22\x00\x00"), 10, SOCKS_FAILED, NULL, NULL, 0},
        {BYTES("\x05\x01\x00\x03\x00\x00\x50"), 7, SOCKS_FAILED, NULL, NULL, 0},
        {BYTES("\x05\x01\x00\x03\x03"
               "a\0b\x00\x50"),
         10, SOCKS_FAILED, NULL, NULL, 0},
        {BYTES("\x05\x01\x00\x03\x03"
               "a b\x00\x50"),
         10, SOCKS_FAILED, NULL, NULL, 0},
        {BYTES("\x04\x01\x00\x01\x5d\xb8\xd8\x22\x01\xbb"), -EPROTO, SOCKS_DONE, NULL, NULL, 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const unsigned char *b = (const unsigned char *)cases[i].bytes;
        char name[POLICY_NAME_MAX + 1] = "";
        struct policy_address a = {0};
        enum socks_reply reply = SOCKS_DONE;
        uint16_t port = 0;

        assert_int_equal(socks_parse_request(b, cases[i].n, name, &a, &port, &reply), cases[i].len);
        if (cases[i].len > 0)
            assert_int_equal(reply, cases[i].reply);
        if (cases[i].name) {
            assert_string_equal(name, cases[i].name);
            assert_int_equal(port, cases[i].port);
        }
        if (cases[i].address)
            assert_address(&a, cases[i].address);
        for (size_t n = 0; cases[i].name && n < cases[i].n; n++)
            assert_int_equal(socks_parse_request(b, n, name, &a, &port, &reply), 0);
    }
}

static void connect_authorities(void **state)
{
    static const struct {
        const char *text, *name, *address;
        int port;
    } cases[] = {
        {"Example.COM:443", "example.com", NULL, 443},
        {"192.0.2.1:80", "", "192.0.2.1", 80},
        {"[2001:db8::1]:8443", "", "2001:db8::1", 8443},
        {"example.com.:443", "example.com", NULL, 443},
        {"example.com", NULL, NULL, 0},
        {"example.com:0", NULL, NULL, 0},
        {"example.com:65536", NULL, NULL, 0},
        {"example.com:", NULL, NULL, 0},
        {":443", NULL, NULL, 0},
        {"user@example.com:443", NULL, NULL, 0},
        {"example.com:443:443", NULL, NULL, 0},
        {"exam ple.com:443", NULL, NULL, 0},
        {"example.com\\:443", NULL, NULL, 0},
        {"http://example.com:443", NULL, NULL, 0},
        {"2001:db8::1:443", NULL, NULL, 0},
        {"", NULL, NULL, 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char name[POLICY_NAME_MAX + 1];
        struct policy_address a = {0};
        uint16_t port = 0;
        int rc = authority_parse(cases[i].text, name, &a, &port);

        assert_int_equal(rc, cases[i].name ? 0 : -EINVAL);
        if (rc < 0)
            continue;
        assert_string_equal(name, cases[i].name);
        assert_int_equal(port, cases[i].port);
        if (cases[i].address)
            assert_address(&a, cases[i].address);
    }
}

/* -- absolute form ----------------------------------------------------------------------------- */

static void absolute_form(void **state)
{
    static const struct {
        const char *target;
        int status;
        const char *authority, *path, *query;
    } cases[] = {
        {"http://a.example:8080/p?q", 0, "a.example:8080", "/p", "q"},
        {"HTTP://a.example/", 0, "a.example", "/", ""},
        {"http://a.example", 0, "a.example", "/", ""},
        {"http://[2001:db8::1]:80/x", 0, "[2001:db8::1]:80", "/x", ""},
        {"/origin", 0, "", "/origin", ""},
        {"https://a.example/", 400, NULL, NULL, NULL},
        {"http://", 400, NULL, NULL, NULL},
        {"http:///x", 400, NULL, NULL, NULL},
        {"http://u@a.example/", 400, NULL, NULL, NULL},
        {"http://a.example\\@b/", 400, NULL, NULL, NULL},
        {"http://a.example?q", 400, NULL, NULL, NULL},
        {"a.example/", 400, NULL, NULL, NULL},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[256], storage[600];
        struct http_head h;
        const char *why;
        int n = snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\nHost: a.example\r\n\r\n",
                         cases[i].target);

        assert_int_equal(gate_proxy_request(text, (size_t)n, storage, &h, &why), cases[i].status);
        if (cases[i].status != 0)
            continue;
        assert_string_equal(h.authority, cases[i].authority);
        assert_string_equal(h.path, cases[i].path);
        assert_string_equal(h.query, cases[i].query);
        assert_int_equal(gate_request(text, (size_t)n, storage, &h, &why),
                         cases[i].authority[0] ? 400 : 0);
    }
}

/* -- ClientHello ------------------------------------------------------------------------------- */

static size_t make_hello(const char *name, const char *alpn, unsigned char *out, size_t size)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(ctx);
    BIO *wire = BIO_new(BIO_s_mem());
    int n;

    SSL_set_bio(ssl, BIO_new(BIO_s_mem()), wire);
    if (name)
        SSL_set_tlsext_host_name(ssl, name);
    if (alpn)
        SSL_set_alpn_protos(ssl, (const unsigned char *)alpn, (unsigned)strlen(alpn));
    SSL_set_connect_state(ssl);
    SSL_do_handshake(ssl);
    n = BIO_read(wire, out, (int)size);
    SSL_free(ssl);
    SSL_CTX_free(ctx);
    return n > 0 ? (size_t)n : 0;
}

static void client_hello_names(void **state)
{
    unsigned char hello[4096];
    struct clienthello h;
    size_t n = make_hello("web.example.com", "\x02h2\x08http/1.1", hello, sizeof(hello));

    assert_true(n > 100);
    assert_int_equal(clienthello_read(hello, n, &h), 0);
    assert_string_equal(h.name, "web.example.com");
    assert_int_equal(h.alpn_len, 12);
    assert_memory_equal(h.alpn, "\x02h2\x08http/1.1", 12);
    for (size_t cut = 0; cut < n; cut++)
        assert_int_equal(clienthello_read(hello, cut, &h), -EAGAIN);
    n = make_hello(NULL, NULL, hello, sizeof(hello));
    assert_int_equal(clienthello_read(hello, n, &h), 0);
    assert_string_equal(h.name, "");
    assert_int_equal(h.alpn_len, 0);
}

/* Two records with a half each are one ClientHello (RFC 8446 5.1). */
static void a_client_hello_in_two_records(void **state)
{
    unsigned char hello[4096], split[4200];
    struct clienthello h;
    size_t n = make_hello("web.example.com", NULL, hello, sizeof(hello)), body = n - 5, half = 60;

    memcpy(split, hello, 5 + half);
    split[3] = 0;
    split[4] = (unsigned char)half;
    memcpy(split + 5 + half, hello, 3);
    split[5 + half + 3] = (unsigned char)((body - half) >> 8);
    split[5 + half + 4] = (unsigned char)(body - half);
    memcpy(split + 5 + half + 5, hello + 5 + half, body - half);
    assert_int_equal(clienthello_read(split, n + 5, &h), 0);
    assert_string_equal(h.name, "web.example.com");
    assert_int_equal(clienthello_read(split, 5 + half, &h), -EAGAIN);
}

static void broken_client_hellos(void **state)
{
    unsigned char hello[4096];
    struct clienthello h;
    size_t n = make_hello("web.example.com", NULL, hello, sizeof(hello));
    unsigned char *name = memmem(hello, n, "web.example.com", 15);

    name[3] = '\0'; /* a NUL in the name */
    assert_int_equal(clienthello_read(hello, n, &h), -EPROTO);
    name[3] = '.';
    name[-1]++; /* its length */
    assert_int_equal(clienthello_read(hello, n, &h), -EPROTO);
    memset(hello + 5, 0xff, n - 5);
    assert_int_equal(clienthello_read(hello, n, &h), -EPROTO);
}

/* Records that servers skip before or between (OpenSSL an empty record, Go a warning) are not
 * skipped here. */
static void more_than_a_client_hello(void **state)
{
    static const char *const before[] = {"\x16\x03\x01\x00\x00", "\x15\x03\x01\x00\x02\x01\x5a",
                                         "\x14\x03\x03\x00\x01\x01", "\x17\x03\x03\x00\x01x"};
    static const size_t lengths[] = {5, 7, 6, 6};
    unsigned char hello[4096], all[9000];
    struct clienthello h;
    size_t n = make_hello("web.example.com", NULL, hello, sizeof(hello)), at = 0;

    for (size_t i = 0; i < ARRAY_SIZE(before); i++) {
        memcpy(all, before[i], lengths[i]);
        memcpy(all + lengths[i], hello, n);
        assert_int_equal(clienthello_read(all, lengths[i] + n, &h), -EPROTO);
        /* between two halves */
        memcpy(all, hello, 5 + 60);
        all[3] = 0;
        all[4] = 60;
        memcpy(all + 65, before[i], lengths[i]);
        assert_int_equal(clienthello_read(all, 65 + lengths[i], &h), -EPROTO);
    }
    memcpy(all, hello, n); /* a second message in its record */
    memcpy(all + n, "\x01\x00\x00\x00", 4);
    all[3] = (unsigned char)((n - 5 + 4) >> 8);
    all[4] = (unsigned char)(n - 5 + 4);
    assert_int_equal(clienthello_read(all, n + 4, &h), -EPROTO);
    for (size_t i = 5; i < n; i++) { /* records of one byte each */
        memcpy(all + at, "\x16\x03\x01\x00\x01", 5);
        all[at + 5] = hello[i];
        at += 6;
    }
    assert_int_equal(clienthello_read(all, at - 1, &h), -EAGAIN);
    assert_int_equal(clienthello_read(all, at, &h), 0);
    assert_string_equal(h.name, "web.example.com");
    assert_int_equal(h.wire_bytes, at);
    hello[1] = 2; /* a version that Go takes */
    assert_int_equal(clienthello_read(hello, n, &h), -EPROTO);
}

/* encrypted_client_hello is seen, and nothing else is taken for it. */
static void encrypted_client_hellos(void **state)
{
    static const unsigned char ech[] = {0xfe, 0x0d, 0, 3, 0, 0, 1};
    unsigned char hello[4096];
    struct clienthello h;
    size_t n = make_hello("web.example.com", NULL, hello, sizeof(hello)), lists = 5 + 4 + 2 + 32,
           at;

    assert_int_equal(clienthello_read(hello, n, &h), 0);
    assert_false(h.ech);
    at = lists + 1 + hello[lists];                      /* session */
    at += 2 + ((size_t)hello[at] << 8 | hello[at + 1]); /* cipher suites */
    at += 1 + hello[at];                                /* compression: extensions are next */
    memcpy(hello + n, ech, sizeof(ech));
    for (size_t i = 0; i < 3; i++) { /* its length is said three times */
        size_t where = i == 0 ? 3 : i == 1 ? 7 : at;
        size_t len = ((size_t)hello[where] << 8 | hello[where + 1]) + sizeof(ech);

        hello[where] = (unsigned char)(len >> 8);
        hello[where + 1] = (unsigned char)len;
    }
    assert_int_equal(clienthello_read(hello, n + sizeof(ech), &h), 0);
    assert_true(h.ech);
    assert_string_equal(h.name, "web.example.com");
}

static void a_servers_settings_are_http2(void **state)
{
    static const unsigned char empty[] = {0, 0, 0, 4, 0, 0, 0, 0, 0};
    static const unsigned char some[] = {0, 0, 18, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 128};
    static const unsigned char mysql[] = {0, 1, 0, 0, 10, '8', '.', '0', 0};
    static const unsigned char odd[] = {0, 0, 5, 4, 0, 0, 0, 0, 0},
                               on_stream[] = {0, 0, 0, 4, 0, 0, 0, 0, 1};
    static const char *const words[] = {"SSH-2.0-x", "220 ready",   "+OK\r\n",
                                        "* OK\r\n",  "@RSYNCD: 31", "RFB 003.008"};

    for (size_t n = 0; n < sizeof(empty); n++) {
        assert_int_equal(greeting_is_http2(empty, n), -EAGAIN);
        assert_int_equal(greeting_is_http2(some, n), -EAGAIN);
    }
    assert_int_equal(greeting_is_http2(empty, sizeof(empty)), 1);
    assert_int_equal(greeting_is_http2(some, sizeof(some)), 1);
    assert_int_equal(greeting_is_http2(mysql, sizeof(mysql)), 0);
    assert_int_equal(greeting_is_http2(odd, sizeof(odd)), 0);
    assert_int_equal(greeting_is_http2(on_stream, sizeof(on_stream)), 0);
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        assert_int_equal(greeting_is_http2((const unsigned char *)words[i], 1), 0);
}

static void hello_retry_requests(void **state)
{
    unsigned char answer[64] = {0x16, 3,    3,    0,    88,   2,    0,    0,    84,   3,    3,
                                0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c,
                                0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb,
                                0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c};
    static const unsigned char second[] = {0x14, 3, 3, 0, 1, 1, 0x17, 3, 3, 0, 2, 1, 2, 0x16};

    for (size_t n = 0; n < 43; n++)
        assert_int_equal(retry_is_requested(answer, n), -EAGAIN);
    assert_int_equal(retry_is_requested(answer, 43), 1);
    answer[42]++;
    assert_int_equal(retry_is_requested(answer, 43), 0);
    assert_int_equal(retry_is_requested((const unsigned char *)"\x15\x03", 2), 0);
    assert_int_equal(retry_hello_at(second, sizeof(second)), sizeof(second) - 1);
    for (size_t n = 0; n < sizeof(second); n++)
        assert_int_equal(retry_hello_at(second, n), -EAGAIN);
    assert_int_equal(retry_hello_at((const unsigned char *)"\x15", 1), -EPROTO);
}

/* -- the audit chain --------------------------------------------------------------------------- */

struct dir {
    char path[64];
    int fd;
};

static int dir_new(void **state)
{
    struct dir *d = calloc(1, sizeof(*d));

    snprintf(d->path, sizeof(d->path), "/tmp/cay-test-XXXXXX");
    assert_non_null(mkdtemp(d->path));
    d->fd = open(d->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    *state = d;
    return 0;
}

static int dir_free(void **state)
{
    struct dir *d = *state;
    DIR *dir = opendir(d->path);
    struct dirent *entry;

    while ((entry = readdir(dir)))
        if (entry->d_name[0] != '.')
            unlinkat(d->fd, entry->d_name, 0);
    closedir(dir);
    close(d->fd);
    rmdir(d->path);
    free(d);
    return 0;
}

/* Appends `lines` lines to the file, going on from *last. */
static void write_chain(struct dir *d, const char *name, int lines, struct audit_last *last)
{
    int fd = openat(d->fd, name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    char line[256];

    for (int i = 0; i < lines; i++) {
        int n = snprintf(line, sizeof(line), "{\"n\":%d,\"seq\":%d,\"prev\":\"%s\"}", i,
                         (int)++last->seq, last->hash);

        audit_hash(line, (size_t)n, last->hash);
        line[n] = '\n';
        assert_int_equal(write(fd, line, (size_t)n + 1), n + 1);
    }
    close(fd);
}

static void change(struct dir *d, const char *name, off_t at, char to)
{
    int fd = openat(d->fd, name, O_WRONLY | O_CLOEXEC);

    assert_int_equal(pwrite(fd, &to, 1, at), 1);
    close(fd);
}

/* Follows log.1, log.2, log, as far as they are there. */
static struct audit_check follow(struct dir *d)
{
    static const char *const names[] = {"log.1", "log.2", "log"};
    struct audit_check c = {0};
    struct audit_walk w = {.out = &c};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        assert_int_equal(audit_walk_file(&w, d->fd, names[i]), 0);
    return c;
}

static void a_chain_over_files(void **state)
{
    struct dir *d = *state;
    struct audit_last at = {.hash = AUDIT_FIRST}, last = {.hash = AUDIT_FIRST};
    struct audit_check c;

    assert_int_equal(audit_last_of(d->fd, "log", &last), 0);
    assert_string_equal(last.hash, AUDIT_FIRST);
    write_chain(d, "log.1", 5, &at);
    write_chain(d, "log.2", 5, &at);
    write_chain(d, "log", 5, &at);
    assert_int_equal(audit_last_of(d->fd, "log", &last), 1);
    assert_string_equal(last.hash, at.hash);
    assert_int_equal(last.seq, 15);
    assert_false(last.cut);
    c = follow(d);
    assert_int_equal(c.lines, 15);
    assert_int_equal(c.broken, 0);
    assert_int_equal(c.rotated, 0);
    change(d, "log.2", 6, '9');
    c = follow(d);
    assert_int_equal(c.broken, 7);
    assert_string_equal(c.file, "log.2");
    change(d, "log.2", 6, ',');
    unlinkat(d->fd, "log.1", 0); /* it made room */
    c = follow(d);
    assert_int_equal(c.broken, 0);
    assert_int_equal(c.rotated, 5);
    write_chain(d, "log.1", 1, &at); /* lines older than the oldest are no part of it */
    assert_int_equal(follow(d).broken, 2);
}

static void a_chain_whose_last_line_was_cut(void **state)
{
    struct dir *d = *state;
    struct audit_last at = {.hash = AUDIT_FIRST};
    struct audit_check c;
    struct stat st;
    int fd;

    write_chain(d, "log", 3, &at);
    assert_int_equal(fstatat(d->fd, "log", &st, 0), 0);
    fd = openat(d->fd, "log", O_WRONLY | O_APPEND | O_CLOEXEC);
    assert_int_equal(ftruncate(fd, st.st_size - 20), 0);
    assert_int_equal(audit_last_of(d->fd, "log", &at), 1);
    assert_true(at.cut);
    assert_int_equal(write(fd, "\n", 1), 1);
    close(fd);
    write_chain(d, "log", 3, &at);
    c = follow(d);
    assert_int_equal(c.lines, 6);
    assert_int_equal(c.cut, 1);
    assert_int_equal(c.broken, 0);
}

/* -- the audit log's files --------------------------------------------------------------------- */

#define FILE_BYTES AUDIT_FILE_MIN_BYTES

struct store_world {
    struct dir *dir;
    uv_loop_t loop;
    struct audit_store *store;
};

static void store_open(struct store_world *w)
{
    const struct audit_store_limits limits = {.file_bytes = FILE_BYTES,
                                              .total_bytes = 8 * (uint64_t)FILE_BYTES};
    struct err e;

    assert_int_equal(uv_loop_init(&w->loop), 0);
    assert_int_equal(audit_store_open(&w->loop, w->dir->path, 0, &limits, &w->store, &e), ERR_OK);
}

static void store_close(struct store_world *w)
{
    audit_store_free(w->store);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w->loop), 0);
}

static void store_lines(struct store_world *w, const char *tenant, int lines)
{
    struct audit_log *l = audit_store_log(w->store, tenant);
    char line[1024];

    for (int i = 0; i < lines; i++) {
        int n = snprintf(line, sizeof(line), "{\"pad\":\"%0600d\",\"seq\":%d,\"prev\":\"%s\"}", i,
                         (int)l->seq + 1, l->prev);

        audit_store_append(w->store, l, line, (size_t)n);
        if (i % 20 == 19)
            audit_store_flush(w->store);
    }
    audit_store_flush(w->store);
}

static struct audit_check store_check(struct store_world *w, const char *tenant)
{
    const struct audit_log *l = audit_store_log(w->store, tenant);
    struct audit_check c = {0};
    struct audit_walk walk = {.out = &c};
    char name[AUDIT_NAME_SIZE];

    for (uint32_t i = l->first; i <= l->end; i++) {
        audit_store_file(l, i < l->end ? i : UINT32_MAX, name);
        assert_int_equal(audit_walk_file(&walk, w->dir->fd, name), 0);
    }
    return c;
}

/* A tenant that writes without end loses its own lines, says how many, and none of its neighbour's. */
static void a_flood_takes_its_own_room(void **state)
{
    struct store_world w = {.dir = *state};
    struct audit_check c;
    uint64_t lines;

    store_open(&w);
    store_lines(&w, "quiet", 100);
    store_lines(&w, "loud", 5000);
    c = store_check(&w, "quiet");
    assert_int_equal(c.lines, 100);
    assert_int_equal(c.rotated, 0);
    c = store_check(&w, "loud");
    lines = c.lines;
    assert_true(lines > 500 && c.rotated > 500);
    assert_int_equal(c.lines + c.rotated, 5000);
    assert_int_equal(c.broken, 0);
    store_close(&w);

    store_open(&w); /* and all of it goes on where it was */
    store_lines(&w, "quiet", 1);
    store_lines(&w, "loud", 1);
    c = store_check(&w, "quiet");
    assert_int_equal(c.lines, 101);
    assert_int_equal(c.broken, 0);
    c = store_check(&w, "loud");
    assert_int_equal(c.lines + c.rotated, 5001);
    assert_int_equal(c.broken, 0);
    store_close(&w);
}

/* Names of tenants are cayd's; one that could be a path is none here. */
static void tenants_are_no_paths(void **state)
{
    struct store_world w = {.dir = *state};

    store_open(&w);
    store_lines(&w, "../x/%", 3);
    store_lines(&w, "", 2);
    store_close(&w);
    store_open(&w);
    assert_int_equal(store_check(&w, "../x/%").lines, 3);
    assert_int_equal(store_check(&w, "").lines, 2);
    assert_int_equal(audit_store_log(w.store, "../x/%")->seq, 3);
    store_close(&w);
}

/* -- small things ------------------------------------------------------------------------------ */

static void rates(void **state)
{
    struct rate r = {0};
    int got = 0;

    for (int i = 0; i < 100; i++)
        got += rate_take(&r, 5);
    assert_true(got >= 5 && got < 20); /* a slow machine may have seen a second go by */
    for (int i = 0; i < 100; i++)
        assert_true(rate_take(&r, 0));
}

/* The connections that came: as a sandbox that is under its kernel's limit, then as one that is
 * at it. */
static void arrivals_at_the_kernels_limit(void **state)
{
    struct egress eg = {0};
    struct sandbox s = {.egress = &eg}, command = {.egress = &eg, .parent = &s, .command = 3};
    unsigned least = EGRESS_NEW_BURST * ARRIVALS_TENTHS / 10;

    for (unsigned i = 0; i < least; i++)
        arrivals_note(&s);
    assert_int_equal(s.denials_count, 0);
    for (unsigned i = 0; i < 100 * EGRESS_NEW_BURST && !s.denials_count; i++)
        arrivals_note(&s);
    assert_int_equal(s.denials_count, 1);
    assert_string_equal(s.denials[0].rule, "limit");
    assert_non_null(strstr(s.denials[0].reason, "500 new connections and DNS questions a second"));
    assert_non_null(strstr(s.denials[0].reason, "fewer at a time"));
    s.arrivals.tokens_milli = 0;
    s.crowded.at_ms = clock_mono_ms(); /* told in this second */
    s.crowded.tokens_milli = 0;
    arrivals_note(&s);
    assert_int_equal(s.denials[0].count, 1);

    for (unsigned i = 0; i < 100 * EGRESS_COMMAND_SANDBOX_NEW_BURST && !command.denials_count; i++)
        arrivals_note(&command);
    assert_int_equal(command.denials_count, 1);
    assert_int_equal(command.denials[0].command, 3);
    assert_int_equal(s.denials_count, 2); /* and its sandbox */
    free(s.denials);
    free(command.denials);
}

static void upstream_urls(void **state)
{
    static const char *const good[] = {"socks5://192.0.2.1:1080", "socks5h://[2001:db8::1]:1080",
                                       "http://user:pass@192.0.2.1:3128"};
    static const char *const bad[] = {"192.0.2.1:1080",
                                      "socks4://192.0.2.1:1080",
                                      "socks5://192.0.2.1",
                                      "socks5://proxy.example:1080",
                                      "http://user@192.0.2.1:1",
                                      "socks5://192.0.2.1:1080/",
                                      ""};
    struct upstream *u;
    struct err e;

    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        assert_int_equal(upstream_parse(good[i], &u, &e), ERR_OK);
        assert_int_equal(upstream_resolves(u), i != 0);
        upstream_free(u);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        assert_int_equal(upstream_parse(bad[i], &u, &e), ERR_INVALID);
        assert_null(strstr(e.text, "pass"));
    }
}

/* By address, and by the name that is said there: what only one of them would deny is marked all the same. */
static void narrower_of_two_verdicts(void **state)
{
    const struct policy_verdict plain = {.action = POLICY_ALLOW, .rule = 1},
                                warned = {.action = POLICY_ALLOW, .rule = 2, .warned = true},
                                read = {.action = POLICY_INSPECT, .rule = 3},
                                no = {.action = POLICY_DENY, .rule = 4};

    assert_false(policy_narrower(plain, plain).warned);
    assert_true(policy_narrower(plain, warned).warned);
    assert_true(policy_narrower(warned, plain).warned);
    assert_true(policy_narrower(warned, read).warned);
    assert_int_equal(policy_narrower(plain, warned).rule, 1);
    assert_int_equal(policy_narrower(warned, read).rule, 3);
    assert_int_equal(policy_narrower(plain, no).rule, 4);
    assert_int_equal(policy_narrower(no, warned).action, POLICY_DENY);
    assert_false(policy_narrower(warned, no).warned);
    assert_false(policy_narrower(no, warned).warned);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_keep_their_addresses),
        cmocka_unit_test(names_have_their_addresses_again),
        cmocka_unit_test(numbers_of_names_are_their_tenants_own),
        cmocka_unit_test(restored_names_keep_what_was_theirs),
        cmocka_unit_test(addresses_of_others_are_no_names),
        cmocka_unit_test(names_are_bounded),
        cmocka_unit_test(dns_answers),
        cmocka_unit_test(dns_is_refused_when_names_are_used_up),
        cmocka_unit_test(odd_dns_messages),
        cmocka_unit_test(first_bytes),
        cmocka_unit_test(http_in_pieces),
        cmocka_unit_test(a_line_without_an_end),
        cmocka_unit_test(first_lines_that_begin_as_none),
        cmocka_unit_test(a_long_first_line_is_none),
        cmocka_unit_test(socks_greetings),
        cmocka_unit_test(socks_requests),
        cmocka_unit_test(connect_authorities),
        cmocka_unit_test(absolute_form),
        cmocka_unit_test(client_hello_names),
        cmocka_unit_test(a_client_hello_in_two_records),
        cmocka_unit_test(broken_client_hellos),
        cmocka_unit_test(more_than_a_client_hello),
        cmocka_unit_test(encrypted_client_hellos),
        cmocka_unit_test(a_servers_settings_are_http2),
        cmocka_unit_test(hello_retry_requests),
        cmocka_unit_test_setup_teardown(a_chain_over_files, dir_new, dir_free),
        cmocka_unit_test_setup_teardown(a_chain_whose_last_line_was_cut, dir_new, dir_free),
        cmocka_unit_test_setup_teardown(a_flood_takes_its_own_room, dir_new, dir_free),
        cmocka_unit_test_setup_teardown(tenants_are_no_paths, dir_new, dir_free),
        cmocka_unit_test(rates),
        cmocka_unit_test(arrivals_at_the_kernels_limit),
        cmocka_unit_test(upstream_urls),
        cmocka_unit_test(narrower_of_two_verdicts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
