/* Whose names the resolver forgets when places are few: those of the sandbox that asks for more; and whose
 * connections over TCP are none. The server is in the test's own loop, so that each question is answered before the
 * next is asked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include <cmocka.h>

#include "base/util.h"
#include "egress/flow/egress.h"
#include "egress/flow/resolve.h"
#include "egress/flow/sandbox.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD_BYTES 12
#define CUT        16 /* letters of a first label whose name is answered over TCP alone */
#define LOUD_NAMES (RESOLVE_CACHE_MAX / 3 + 64) /* more than one sandbox's share (base/share.h) */
#define HALF_NAMES RESOLVE_STREAMS_MAX          /* likewise */

#define SLOW_NAMES 40u

static struct world {
    uv_loop_t loop;
    uv_udp_t server;
    uv_tcp_t listener;
    struct egress egress;
    struct resolver *resolver;
    char packet[1500];
    unsigned asked, streamed; /* of the server, over UDP and TCP: two for each name, by family */
    unsigned answered;
    int status;
    unsigned unanswered, n_ports; /* questions of slow names, and the ports that they came from */
    in_port_t ports[8 * SLOW_NAMES];
} w;

/* -- a server that knows every name ------------------------------------------------------------ */

static void on_room(uv_handle_t *h, size_t suggested, uv_buf_t *b)
{
    *b = uv_buf_init(w.packet, sizeof(w.packet));
}

/* RFC 1035 4.1. The question as it came, and for A one address for a minute; or nothing and that it was cut. */
static size_t make_answer(const char *question, size_t n, bool cut, char answer[static 512])
{
    static const char record[] = "\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\xc0\0\2\7";
    size_t end = HEAD_BYTES;
    bool ipv4;

    while (end < n && question[end])
        end += 1 + (size_t)question[end];
    end += 5;
    assert_true(end <= n && end + sizeof(record) <= 512);
    ipv4 = question[end - 3] == 1 && !cut;
    memcpy(answer, question, end);
    memcpy(answer + 2, "\x81\x80\0\1\0\0\0\0\0\0", 10);
    answer[2] |= (char)(cut ? 2 : 0);
    answer[7] = (char)ipv4;
    memcpy(answer + end, record, ipv4 ? sizeof(record) - 1 : 0);
    return end + (ipv4 ? sizeof(record) - 1 : 0);
}

/* Of a question that is not answered. */
static void note_port(in_port_t port)
{
    unsigned i = 0;

    w.unanswered++;
    while (i < w.n_ports && w.ports[i] != port)
        i++;
    if (i == w.n_ports && i < ARRAY_SIZE(w.ports))
        w.ports[w.n_ports++] = port;
}

/* Over UDP. */
static void on_question(uv_udp_t *server, ssize_t n, const uv_buf_t *b, const struct sockaddr *peer,
                        unsigned flags)
{
    char answer[512];
    uv_buf_t out;

    if (n < HEAD_BYTES)
        return;
    w.asked++;
    if (strncmp(b->base + HEAD_BYTES + 1, "slow", 4) == 0) {
        note_port(((const struct sockaddr_in *)peer)->sin_port);
        return;
    }
    out = uv_buf_init(
        answer, (unsigned)make_answer(b->base, (size_t)n, b->base[HEAD_BYTES] == CUT, answer));
    assert_int_equal(uv_udp_try_send(server, &out, 1, peer), (int)out.len);
}

static void on_closed(uv_handle_t *h)
{
    free(h);
}

/* Both questions of one name may come at once: each is small. Of a name that begins with h half an answer is sent. */
static void on_stream_question(uv_stream_t *s, ssize_t n, const uv_buf_t *b)
{
    char answer[2 + 512];
    uv_buf_t out;

    if (n < 0) {
        uv_close((uv_handle_t *)s, on_closed);
        return;
    }
    for (ssize_t at = 0, len; at + 2 < n; at += 2 + len) {
        size_t size;

        len = (unsigned char)b->base[at] << 8 | (unsigned char)b->base[at + 1];
        assert_true(at + 2 + len <= n);
        w.streamed++;
        size = make_answer(b->base + at + 2, (size_t)len, false, answer + 2);
        answer[0] = (char)(size >> 8);
        answer[1] = (char)size;
        size += 2;
        if (b->base[at + 2 + HEAD_BYTES + 1] == 'h')
            size /= 2;
        out = uv_buf_init(answer, (unsigned)size);
        assert_int_equal(uv_try_write(s, &out, 1), (int)out.len);
    }
}

static void on_connection(uv_stream_t *listener, int status)
{
    uv_tcp_t *c = calloc(1, sizeof(*c));

    assert_non_null(c);
    assert_int_equal(uv_tcp_init(&w.loop, c), 0);
    assert_int_equal(uv_accept(listener, (uv_stream_t *)c), 0);
    uv_read_start((uv_stream_t *)c, on_room, on_stream_question);
}

/* Over both at one port. False: another program has it for one of them. */
static bool listens(struct sockaddr_in *a)
{
    int n = sizeof(*a);

    a->sin_port = 0;
    return uv_udp_init(&w.loop, &w.server) == 0 && uv_tcp_init(&w.loop, &w.listener) == 0 &&
           uv_udp_bind(&w.server, (struct sockaddr *)a, 0) == 0 &&
           uv_udp_getsockname(&w.server, (struct sockaddr *)a, &n) == 0 &&
           uv_tcp_bind(&w.listener, (struct sockaddr *)a, 0) == 0 &&
           uv_listen((uv_stream_t *)&w.listener, 128, on_connection) == 0;
}

static int setup(void **state)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    unsigned tries = 0;
    char servers[32];

    w.egress.loop = &w.loop;
    if (uv_loop_init(&w.loop) < 0)
        return -1;
    while (!listens(&a)) {
        if (++tries == 20)
            return -1;
        uv_close((uv_handle_t *)&w.server, NULL);
        uv_close((uv_handle_t *)&w.listener, NULL);
        uv_run(&w.loop, UV_RUN_DEFAULT);
    }
    uv_udp_recv_start(&w.server, on_room, on_question);
    (void)snprintf(servers, sizeof(servers), "127.0.0.1:%u", ntohs(a.sin_port));
    return resolver_new(&w.egress, servers, &w.resolver);
}

/* -- the test ---------------------------------------------------------------------------------- */

static void on_answer(struct egress *eg, uint64_t id, int status, const struct policy_address *a,
                      size_t n)
{
    w.answered++;
    w.status = n == 1 ? status : -EPROTO;
}

/* Is it known, so that no server has to be asked? */
static bool is_known(const struct sandbox *s, const char *name)
{
    unsigned asked = w.asked, answered = w.answered;

    resolver_query(w.resolver, s, name, 1, on_answer);
    while (w.answered == answered)
        uv_run(&w.loop, UV_RUN_ONCE);
    assert_int_equal(w.status, 0);
    return w.asked == asked;
}

static void a_sandbox_at_its_share_forgets_its_own_names(void **state)
{
    const struct sandbox quiet = {.slot = 1, .tenant = "quiet"},
                         loud = {.slot = 2, .tenant = "loud"};
    char name[32];

    assert_false(is_known(&quiet, "quiet.example"));
    for (unsigned i = 0; i < LOUD_NAMES; i++) {
        (void)snprintf(name, sizeof(name), "n%u.example", i);
        assert_false(is_known(&loud, name));
    }
    assert_true(is_known(&loud, name));
    assert_true(is_known(&quiet, "quiet.example")); /* older than all of them */
    assert_false(is_known(&loud, "n0.example"));    /* places were few: its own oldest went */
}

/* The answers that the two have got for their last questions; 1: nothing yet. */
static struct policy_address seen_address;
static int loud_status, quiet_status;
static unsigned loud_refused;

static void on_loud(struct egress *eg, uint64_t id, int status, const struct policy_address *a,
                    size_t n)
{
    loud_status = status;
    loud_refused += status == -EAGAIN;
}

static void on_quiet(struct egress *eg, uint64_t id, int status, const struct policy_address *a,
                     size_t n)
{
    quiet_status = status;
    if (n > 0)
        seen_address = a[0];
}

/* Names whose answers over TCP stay half take the places of who asks for them; others have connections of their own,
 * also for a name that was asked for first by who has no place left. */
static void half_answers_hold_up_their_own_name(void **state)
{
    const struct sandbox quiet = {.slot = 1, .tenant = "quiet"},
                         loud = {.slot = 2, .tenant = "loud"};
    char name[32], digits[INET6_ADDRSTRLEN];

    for (unsigned i = 0; i < HALF_NAMES; i++) {
        (void)snprintf(name, sizeof(name), "half-an-answer%02u.example", i);
        resolver_query(w.resolver, &loud, name, 1, on_loud);
    }
    while (loud_refused == 0)
        uv_run(&w.loop, UV_RUN_ONCE);
    loud_status = quiet_status = 1;
    resolver_query(w.resolver, &loud, "an-answer-is-cut.example", 1, on_loud);
    resolver_query(w.resolver, &quiet, "an-answer-is-cut.example", 1, on_quiet);
    while (quiet_status > 0)
        uv_run(&w.loop, UV_RUN_ONCE);
    assert_int_equal(quiet_status, 0);
    assert_int_equal(loud_status, 0);
    policy_address_format(&seen_address, digits);
    assert_string_equal(digits, "192.0.2.7");
    assert_true(w.streamed >= 2);
}

/* Of these DNS is not asked. */
static void names_that_are_not_of_dns(void **state)
{
    const struct sandbox s = {.slot = 1, .tenant = "quiet"};
    unsigned asked = w.asked;

    resolver_query(w.resolver, &s, "service.onion", 1, on_quiet);
    assert_int_equal(quiet_status, -ENOENT);
    resolver_query(w.resolver, &s, "a.localhost", 1, on_quiet);
    assert_int_equal(quiet_status, 0);
    assert_true(policy_address_is_never(&seen_address));
    assert_int_equal(w.asked, asked);
    assert_false(is_known(&s, "localhost.example")); /* the control */
}

/* Answers for a name that is slow can be guessed: each is asked from another port, as far as the sandbox has its share of them;
 * beyond that they have one together. With one port for all, 40 names are asked from one. */
static void slow_names_are_asked_from_ports_of_their_own(void **state)
{
    const struct sandbox slow = {.slot = 3, .tenant = "slow"};
    char name[32];

    for (unsigned i = 0; i < SLOW_NAMES; i++) {
        (void)snprintf(name, sizeof(name), "slow%u.example", i);
        resolver_query(w.resolver, &slow, name, 1, on_loud);
    }
    while (w.unanswered < 2 * SLOW_NAMES)
        uv_run(&w.loop, UV_RUN_ONCE);
    assert_in_range(w.n_ports, SLOW_NAMES / 2, 2 * SLOW_NAMES);
    for (unsigned i = SLOW_NAMES; i < RESOLVE_PORTS_MAX / 2; i++) {
        (void)snprintf(name, sizeof(name), "slow%u.example", i);
        resolver_query(w.resolver, &slow, name, 1, on_loud);
    }
    while (w.unanswered < RESOLVE_PORTS_MAX)
        uv_run(&w.loop, UV_RUN_ONCE);
    assert_in_range(w.n_ports, RESOLVE_PORTS_MAX / 6, RESOLVE_PORTS_MAX / 3 + 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sandbox_at_its_share_forgets_its_own_names),
        cmocka_unit_test(half_answers_hold_up_their_own_name),
        cmocka_unit_test(names_that_are_not_of_dns),
        cmocka_unit_test(slow_names_are_asked_from_ports_of_their_own),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
