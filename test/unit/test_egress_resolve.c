/* Whose names the resolver forgets when places are few: those of the sandbox that asks for more. The server is
 * in the test's own loop, so that each question is answered before the next is asked. */
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
#include <stdio.h>
#include <string.h>

#define HEAD_BYTES 12
#define LOUD_NAMES (RESOLVE_CACHE_MAX / 3 + 64) /* more than one sandbox's share (base/share.h) */

static struct world {
    uv_loop_t loop;
    uv_udp_t server;
    struct egress egress;
    struct resolver *resolver;
    char packet[1500];
    unsigned asked; /* of the server: two for each name, by family */
    unsigned answered;
    int status;
} w;

/* -- a server that knows every name ------------------------------------------------------------ */

static void on_room(uv_handle_t *h, size_t suggested, uv_buf_t *b)
{
    *b = uv_buf_init(w.packet, sizeof(w.packet));
}

/* RFC 1035 4.1. The question as it came, and for A one address for a minute. */
static void on_question(uv_udp_t *server, ssize_t n, const uv_buf_t *b, const struct sockaddr *peer,
                        unsigned flags)
{
    static const char record[] = "\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\xc0\0\2\7";
    size_t end = HEAD_BYTES;
    char answer[512];
    uv_buf_t out;
    bool ipv4;

    if (n < HEAD_BYTES)
        return;
    w.asked++;
    while (end < (size_t)n && b->base[end])
        end += 1 + (size_t)b->base[end];
    end += 5;
    assert_true(end <= (size_t)n && end + sizeof(record) <= sizeof(answer));
    ipv4 = b->base[end - 3] == 1;
    memcpy(answer, b->base, end);
    memcpy(answer + 2, "\x81\x80\0\1\0\0\0\0\0\0", 10);
    answer[7] = (char)ipv4;
    memcpy(answer + end, record, ipv4 ? sizeof(record) - 1 : 0);
    out = uv_buf_init(answer, (unsigned)(end + (ipv4 ? sizeof(record) - 1 : 0)));
    assert_int_equal(uv_udp_try_send(server, &out, 1, peer), (int)out.len);
}

static int setup(void **state)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int n = sizeof(a);
    char servers[32];

    w.egress.loop = &w.loop;
    if (uv_loop_init(&w.loop) < 0 || uv_udp_init(&w.loop, &w.server) < 0 ||
        uv_udp_bind(&w.server, (struct sockaddr *)&a, 0) < 0 ||
        uv_udp_getsockname(&w.server, (struct sockaddr *)&a, &n) < 0)
        return -1;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sandbox_at_its_share_forgets_its_own_names),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
