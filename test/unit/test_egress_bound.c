/* Bounds of the work and memory of a request's credentials. How often it asks whether it may have
 * one: once for each, however many of its placeholders are in it, since a binding has up to 4,096
 * patterns and the loop is all sandboxes'. And how much its sandbox's bodies take that are held. */
#include "base/arena.h"
#include "egress/credential/credential.h"
#include "egress/credential/response_secrets.h"
#include "egress/http/inject.h"
#include "http/gate.h"
#include "policy/policy.h"

#include <errno.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PLACEHOLDERS 500u

static size_t asked;
static struct held_bodies bodies; /* where those of decide are counted */

enum policy_fit __real_credential_fits(const struct credential *c, const char *host, uint16_t port,
                                       struct policy_transport transport, const char *method,
                                       const char *path);
enum policy_fit __wrap_credential_fits(const struct credential *c, const char *host, uint16_t port,
                                       struct policy_transport transport, const char *method,
                                       const char *path);

enum policy_fit __wrap_credential_fits(const struct credential *c, const char *host, uint16_t port,
                                       struct policy_transport transport, const char *method,
                                       const char *path)
{
    asked++;
    return __real_credential_fits(c, host, port, transport, method, path);
}

/* "here" is bound to the host, "there" to another. */
static struct credentials *make_credentials(void)
{
    static const char *const names[] = {"here", "there"}, *const hosts[] = {"a.example",
                                                                            "b.example"};
    struct credentials *all = calloc(1, sizeof(*all) + 2 * sizeof(struct credential));

    all->refs = 1;
    all->count = 2;
    all->searched = response_secrets_cache_new();
    for (size_t i = 0; i < 2; i++) {
        struct credential *c = &all->list[i];
        json_t *policy = json_pack("{s:[{s:s, s:[s]}]}", "rules", "action", "allow", "domains",
                                   hosts[i]);
        struct err e;

        snprintf(c->name, sizeof(c->name), "%s", names[i]);
        c->kind = CREDENTIAL_PLACEHOLDER;
        c->in_bodies = c->in_target = true;
        c->value = strdup("the-value-itself");
        assert_int_equal(policy_new(policy, &c->bound, &e), ERR_OK);
        json_decref(policy);
    }
    return all;
}

static void put_many(struct buf *b, const char *what)
{
    for (size_t i = 0; i < PLACEHOLDERS; i++)
        assert_int_equal(buf_append_str(b, what), 0);
}

static size_t count(const struct buf *b, const char *what)
{
    size_t n = 0;

    assert_int_equal(buf_append((struct buf *)(uintptr_t)b, "", 1), 0);
    for (const char *at = b->data; (at = strstr(at, what)); at++)
        n++;
    return n;
}

static enum err_code decide(const char *text, size_t n, struct credentials *all, struct arena *a,
                            struct http_head *head, struct inject_plan *plan)
{
    const struct inject_request r = {.credentials = all,
                                     .named = UINT64_MAX,
                                     .host = "a.example",
                                     .port = 443,
                                     .transport = {.tls = true},
                                     .bodies = bodies};
    const char *why = "";
    struct err e = {0};

    assert_int_equal(gate_request(text, n, arena_alloc(a, gate_storage_bytes(n)), head, &why), 0);
    return inject_decide(&r, head, a, plan, &e);
}

/* Places of bodies, for the sandboxes "s" of tenant "t", and "other" of a tenant of that name. */
struct pools {
    struct share_pool *flows, *bodies;
    struct share *one, *other;
};

static void begin_pools(struct pools *p)
{
    p->flows = share_pool_new(64);
    p->bodies = share_pool_new(HELD_BODY_PLACES);
    assert_true(p->flows && p->bodies);
    p->one = share_take(p->flows, "t", "s");
    p->other = share_take(p->flows, "other", "other");
    assert_true(p->one && p->other);
    bodies = (struct held_bodies){p->bodies, p->one};
}

static void end_pools(struct pools *p)
{
    assert_int_equal(share_used(p->bodies), 0);
    share_return(p->one);
    share_return(p->other);
    share_pool_free(p->flows);
    share_pool_free(p->bodies);
    bodies = (struct held_bodies){NULL, NULL};
}

static void asked_once_for_a_body(void **state)
{
    static const char request[] =
        "POST /x HTTP/1.1\r\nHost: a.example\r\nContent-Type: text/plain\r\n"
        "Content-Length: 20000\r\n\r\n";
    struct credentials *all = make_credentials();
    struct inject_plan plan = {.job = NULL};
    struct http_head head;
    struct arena a;
    struct buf body;
    struct pools pools;

    begin_pools(&pools);
    arena_init(&a, 256 * 1024);
    buf_init(&body, 2 * REWRITE_BODY_MAX);
    put_many(&body, "cay-secret:here cay-secret:there ");
    assert_int_equal(decide(request, sizeof(request) - 1, all, &a, &head, &plan), ERR_OK);
    asked = 0;
    assert_int_equal(plan.job->finish(plan.job, &body), 0);
    assert_in_range(asked, 1, 2);
    assert_int_equal(count(&body, "the-value-itself"), PLACEHOLDERS);
    assert_int_equal(count(&body, "cay-secret:there"), PLACEHOLDERS);
    inject_plan_free(&plan);
    buf_free(&body);
    arena_free(&a);
    credentials_unref(all);
    end_pools(&pools);
}

static void asked_once_for_a_target(void **state)
{
    struct credentials *all = make_credentials();
    struct inject_plan plan = {.job = NULL};
    struct http_head head;
    struct arena a;
    struct buf text;

    arena_init(&a, 256 * 1024);
    buf_init(&text, 64 * 1024);
    assert_int_equal(buf_append_str(&text, "GET /x?y"), 0);
    put_many(&text, "=cay-secret:here&");
    assert_int_equal(buf_append_str(&text, " HTTP/1.1\r\nHost: a.example\r\n\r\n"), 0);
    asked = 0;
    assert_int_equal(decide(text.data, text.len, all, &a, &head, &plan), ERR_OK);
    assert_in_range(asked, 1, 2);
    assert_null(strstr(plan.job->target, "cay-secret"));
    inject_plan_free(&plan);
    buf_clear(&text); /* another's is refused as before */
    assert_int_equal(buf_append_str(&text, "GET /?a=cay-secret:here&b=cay-secret:there HTTP/1.1\r\n"
                                           "Host: a.example\r\n\r\n"),
                     0);
    assert_int_equal(decide(text.data, text.len, all, &a, &head, &plan), ERR_DENIED);
    buf_free(&text);
    arena_free(&a);
    credentials_unref(all);
}

/* -- bodies that are held ---------------------------------------------------------------------- */

#define CHUNKED                                                           \
    "POST /x HTTP/1.1\r\nHost: a.example\r\nContent-Type: text/plain\r\n" \
    "Transfer-Encoding: chunked\r\n\r\n"
#define LENGTH(n)                                                                           \
    "POST /x HTTP/1.1\r\nHost: a.example\r\nContent-Type: text/plain\r\nContent-Length: " n \
    "\r\n\r\n"

/* How many such requests of the account are let through before one is refused. */
static size_t held_at_once(const char *text, struct credentials *all, struct inject_plan *plans,
                           size_t most)
{
    struct http_head head;
    struct arena a;
    size_t n = 0;

    arena_init(&a, 16 * 1024 * 1024);
    while (n < most) {
        enum err_code code = decide(text, strlen(text), all, &a, &head, &plans[n]);

        if (code != ERR_OK) {
            assert_int_equal(code, ERR_EXHAUSTED);
            break;
        }
        n++;
    }
    arena_free(&a);
    return n;
}

static void free_plans(struct inject_plan *plans, size_t n)
{
    for (size_t i = 0; i < n; i++)
        inject_plan_free(&plans[i]);
}

static void bodies_of_a_sandbox_take_its_share_at_most(void **state)
{
    enum { MOST = 2048 };
    static struct inject_plan plans[MOST], others[MOST];
    struct credentials *all = make_credentials();
    struct pools pools;
    size_t n, m;

    begin_pools(&pools);
    n = held_at_once(CHUNKED, all, plans, MOST);
    assert_in_range(n, 30, 64); /* of 2 MiB each */
    assert_true(share_used(pools.bodies) <= HELD_BODY_PLACES / 3 + 1);
    bodies.like = pools.other; /* has its own */
    m = held_at_once(LENGTH("1048576"), all, others, MOST);
    assert_in_range(m, 30, 128);
    free_plans(plans, n);
    free_plans(others, m);
    assert_int_equal(share_used(pools.bodies), 0);
    bodies.like = pools.one; /* small ones are many */
    n = held_at_once(LENGTH("100"), all, plans, MOST);
    assert_in_range(n, 1000, MOST - 1);
    free_plans(plans, n);
    bodies.pool = NULL; /* deny by default */
    assert_int_equal(held_at_once(LENGTH("100"), all, plans, MOST), 0);
    credentials_unref(all);
    end_pools(&pools);
}

/* Its server may not read it: until the exchange ends. */
static void a_body_is_counted_until_its_exchange_ends(void **state)
{
    struct credentials *all = make_credentials();
    struct rewrite *w = rewrite_new();
    struct inject_plan plan = {.job = NULL};
    struct pools pools;
    struct buf out;

    begin_pools(&pools);
    buf_init(&out, 64 * 1024);
    assert_non_null(w);
    assert_int_equal(held_at_once(LENGTH("2"), all, &plan, 1), 1);
    assert_int_equal(share_used(pools.bodies), 1);
    rewrite_set(w, TAKE_PTR(plan.job), TAKE_PTR(plan.redact));
    assert_int_equal(rewrite_outward(w, LENGTH("2") "ab", strlen(LENGTH("2") "ab"), &out), 0);
    assert_int_equal(count(&out, "ab"), 1); /* it went on */
    assert_int_equal(share_used(pools.bodies), 1);
    rewrite_set(w, NULL, NULL);
    assert_int_equal(share_used(pools.bodies), 0);
    rewrite_free(w);
    buf_free(&out);
    credentials_unref(all);
    end_pools(&pools);
}

/* An answer takes places for as much as it holds beyond its free bytes, also when the flow whose
 * place it was opened with has ended. */
static void answers_of_a_sandbox_take_its_share_at_most(void **state)
{
    const size_t free_bytes = HELD_ANSWER_FREE_BYTES, place = HELD_ANSWER_PLACE_BYTES;
    struct share_pool *flows = share_pool_new(16);
    struct share *one = share_take(flows, "tenant", "one"),
                 *other = share_take(flows, "tenant2", "other");
    struct held_answers *all = held_answers_new();
    struct held_answer loud, more, quiet, uncounted;

    assert_int_equal(held_answer_open(&loud, all, one), 0);
    assert_int_equal(held_answer_open(&more, all, one), 0);
    assert_int_equal(held_answer_open(&quiet, all, other), 0);
    assert_int_equal(held_answer_open(&uncounted, NULL, one), 0);
    share_return(one);
    share_return(other);
    assert_int_equal(held_answer_count(&loud, free_bytes), 0);
    assert_int_equal(loud.places, 0);
    assert_int_equal(held_answer_count(&loud, free_bytes + 1), 0);
    assert_int_equal(loud.places, 1);
    assert_int_equal(held_answer_count(&loud, free_bytes + HELD_ANSWER_PLACES * place), -ENOBUFS);
    assert_in_range(loud.places, HELD_ANSWER_PLACES / 3, HELD_ANSWER_PLACES / 3 + 1);
    assert_int_equal(held_answer_count(&more, free_bytes + 1), -ENOBUFS);
    assert_int_equal(held_answer_count(&more, free_bytes), 0);
    assert_int_equal(held_answer_count(&quiet, free_bytes + 100 * place), 0);
    assert_int_equal(held_answer_count(&loud, 0), 0);
    assert_int_equal(held_answer_count(&more, free_bytes + 1), 0);
    assert_int_equal(held_answer_count(&uncounted, SIZE_MAX / 2), 0);
    held_answer_close(&loud);
    held_answer_close(&more);
    held_answer_close(&quiet);
    held_answer_close(&uncounted);
    held_answers_free(all);
    share_pool_free(flows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(asked_once_for_a_body),
        cmocka_unit_test(asked_once_for_a_target),
        cmocka_unit_test(bodies_of_a_sandbox_take_its_share_at_most),
        cmocka_unit_test(answers_of_a_sandbox_take_its_share_at_most),
        cmocka_unit_test(a_body_is_counted_until_its_exchange_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
