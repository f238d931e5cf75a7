/* How often a request asks whether it may have a credential: once for each, however many of its
 * placeholders are in it, since a binding has up to 4,096 patterns and the loop is all sandboxes'. */
#include "base/arena.h"
#include "egress/credential/credential.h"
#include "egress/credential/response_secrets.h"
#include "egress/http/inject.h"
#include "http/gate.h"
#include "policy/policy.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PLACEHOLDERS 500u

static size_t asked;

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
                                     .transport = {.tls = true}};
    const char *why = "";
    struct err e = {0};

    assert_int_equal(gate_request(text, n, arena_alloc(a, gate_storage_bytes(n)), head, &why), 0);
    return inject_decide(&r, head, a, plan, &e);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(asked_once_for_a_body),
        cmocka_unit_test(asked_once_for_a_target),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
