/* Policies of cayd's, and questions about them: the long ones are read on a helper thread, one at a
 * time and in turn by tenant, and the result is taken on the loop, in the order that a sandbox's
 * policies came in. A document is {"n": NUMBER}, and as long as its test wants; its reader waits
 * for the test where the test says so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include <cmocka.h>

#include "base/util.h"
#include "egress/control/document.h"
#include "egress/flow/egress.h"
#include "http/server.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define LONG  (DOCUMENT_SHORT_BYTES + 1)
#define SHORT 64u
#define MANY  16u

/* In place of the server's: wrapped at the link. */
struct http_exchange {
    void *data;
    void (*on_close)(struct http_exchange *x, void *data);
    int status; /* of an error */
    char body[LONG + 1];
};

struct what { /* that was read */
    json_int_t n;
    bool on_loop;
};

static struct {
    uv_loop_t loop;
    struct egress egress;
    struct documents *all;
    struct http_exchange x[MANY];
    json_int_t taken[MANY]; /* in their order */
    bool was_on_loop[MANY];
    size_t n_taken, n_refused;
    pthread_t loop_thread;
    uv_sem_t begun, go_on; /* of a reader that waits */
    bool waits;
    unsigned dropped;
} w;

void __wrap_http_exchange_set(struct http_exchange *x, void *data,
                              void (*on_close)(struct http_exchange *x, void *data));
void *__wrap_http_exchange_get(const struct http_exchange *x);
void __wrap_http_respond_error(struct http_exchange *x, int status, const char *fmt, ...);

void __wrap_http_exchange_set(struct http_exchange *x, void *data,
                              void (*on_close)(struct http_exchange *x, void *data))
{
    x->data = data;
    x->on_close = on_close;
}

void *__wrap_http_exchange_get(const struct http_exchange *x)
{
    return x->data;
}

void __wrap_http_respond_error(struct http_exchange *x, int status, const char *fmt, ...)
{
    x->status = status;
}

static enum err_code read_number(struct egress *eg, const json_t *o, void **out, struct err *e)
{
    struct what *what = calloc(1, sizeof(*what));

    assert_ptr_equal(eg, &w.egress);
    assert_non_null(what);
    what->on_loop = pthread_equal(pthread_self(), w.loop_thread);
    if (w.waits && !what->on_loop) {
        uv_sem_post(&w.begun);
        uv_sem_wait(&w.go_on);
    }
    if (json_unpack((json_t *)(uintptr_t)o, "{s:I}", "n", &what->n) < 0) {
        free(what);
        return err_set(e, ERR_INVALID, "n: there is none");
    }
    *out = what;
    return ERR_OK;
}

static void take_number(struct http_exchange *x, const json_t *o, void *read, const struct err *e)
{
    CLEANUP_FREE struct what *what = read;

    assert_true(pthread_equal(pthread_self(), w.loop_thread));
    assert_ptr_equal(x->data, &w); /* its own again */
    assert_int_equal(!what, e != NULL);
    w.n_refused += e != NULL;
    if (!what)
        return;
    w.was_on_loop[w.n_taken] = what->on_loop;
    w.taken[w.n_taken++] = what->n;
}

static void drop_number(void *read)
{
    w.dropped += read != NULL;
    free(read);
}

static const struct document_kind policy = {read_number, take_number, drop_number, .ordered = true};
static const struct document_kind question = {read_number, take_number, drop_number};

static struct documents *kept[MANY]; /* a process has one, until its end */
static size_t n_kept;

static int setup(void **state)
{
    memset(&w, 0, sizeof(w));
    assert_int_equal(uv_loop_init(&w.loop), 0);
    w.loop_thread = pthread_self();
    w.egress.loop = &w.loop;
    assert_int_equal(uv_sem_init(&w.begun, 0) + uv_sem_init(&w.go_on, 0), 0);
    assert_int_equal(documents_new(&w.egress, &w.all), 0);
    kept[n_kept++] = w.all;
    return 0;
}

static int teardown(void **state)
{
    uv_run(&w.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w.loop), 0);
    uv_sem_destroy(&w.begun);
    uv_sem_destroy(&w.go_on);
    return 0;
}

/* Document n, so many bytes long. */
static void start(const struct document_kind *kind, unsigned n, unsigned slot, const char *tenant,
                  size_t len)
{
    struct http_exchange *x = &w.x[n];

    x->data = &w;
    memset(x->body, ' ', sizeof(x->body));
    (void)snprintf(x->body, sizeof(x->body), "{\"%s\":%u}%*s", kind ? "n" : "m", n, 1, "");
    x->body[strlen(x->body)] = ' ';
    document_start(w.all, x, kind ? kind : &policy, slot, tenant, x->body, len);
}

static void leave(unsigned n)
{
    assert_non_null(w.x[n].on_close);
    w.x[n].on_close(&w.x[n], w.x[n].data);
}

/* The reader of the first long one stands still until release. */
static void hold(const struct document_kind *kind, unsigned n, unsigned slot, const char *tenant)
{
    w.waits = true;
    start(kind, n, slot, tenant, LONG);
    uv_sem_wait(&w.begun);
    w.waits = false;
}

static void release(void)
{
    uv_sem_post(&w.go_on);
    uv_run(&w.loop, UV_RUN_DEFAULT);
}

static void assert_taken(const char *in_order)
{
    char text[128] = "";

    for (size_t i = 0; i < w.n_taken; i++)
        (void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%d", i ? " " : "",
                       (int)w.taken[i]);
    assert_string_equal(text, in_order);
}

/* ---------------------------------------------------------------------------------------------- */

static void test_a_short_one_is_read_at_once_and_a_long_one_on_a_thread(void **state)
{
    start(&policy, 1, 1, "a", SHORT);
    assert_taken("1");
    assert_true(w.was_on_loop[0]);
    start(&policy, 2, 1, "a", LONG);
    assert_taken("1");
    uv_run(&w.loop, UV_RUN_DEFAULT);
    assert_taken("1 2");
    assert_false(w.was_on_loop[1]);
}

static void test_a_later_policy_of_a_sandbox_does_not_overtake(void **state)
{
    hold(&policy, 1, 7, "a");
    start(&policy, 2, 7, "a", LONG);
    start(&policy, 3, 7, "a", SHORT); /* behind both */
    start(&policy, 4, 8, "a", SHORT); /* of another */
    start(&question, 5, 7, "a", SHORT);
    assert_taken("4 5");
    release();
    assert_taken("4 5 1 2 3");
}

static void test_tenants_have_their_turns(void **state)
{
    hold(&policy, 1, 1, "a");
    for (unsigned n = 2; n <= 5; n++)
        start(&policy, n, n, "a", LONG);
    start(&policy, 6, 6, "b", LONG);
    start(&policy, 7, 7, "b", LONG);
    start(&policy, 8, 8, "c", LONG);
    release();
    assert_taken("1 6 8 2 7 3 4 5");
}

static void test_one_whose_client_has_gone_is_dropped(void **state)
{
    hold(&policy, 1, 1, "a");
    start(&policy, 2, 2, "a", LONG);
    start(&policy, 3, 3, "a", LONG);
    leave(2);
    leave(1); /* while it is read */
    release();
    assert_taken("3");
    assert_int_equal(w.dropped, 1);
    start(&policy, 4, 1, "a", SHORT); /* no one is before it any more */
    assert_taken("3 4");
}

static void test_long_questions_have_a_share_and_policies_wait(void **state)
{
    hold(&question, 1, 1, "a");
    start(&question, 2, 1, "a", LONG);
    start(&question, 3, 1, "a", LONG);
    assert_int_equal(w.x[3].status, 429);
    start(&question, 4, 1, "b", LONG);
    for (unsigned n = 5; n < 10; n++)
        start(&policy, n, n, "a", LONG);
    release();
    assert_taken("1 4 2 5 6 7 8 9");
    start(&question, 10, 1, "a", LONG); /* its share is free again */
    uv_run(&w.loop, UV_RUN_DEFAULT);
    assert_taken("1 4 2 5 6 7 8 9 10");
}

static void test_one_that_cannot_be_read_is_told_of(void **state)
{
    start(NULL, 1, 1, "a", SHORT);
    start(NULL, 2, 1, "a", LONG);
    start(&policy, 3, 1, "a", 3); /* cut: no JSON */
    uv_run(&w.loop, UV_RUN_DEFAULT);
    assert_int_equal(w.n_refused, 3);
    assert_int_equal(w.n_taken + w.dropped, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_short_one_is_read_at_once_and_a_long_one_on_a_thread,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_later_policy_of_a_sandbox_does_not_overtake, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_tenants_have_their_turns, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_whose_client_has_gone_is_dropped, setup, teardown),
        cmocka_unit_test_setup_teardown(test_long_questions_have_a_share_and_policies_wait, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_one_that_cannot_be_read_is_told_of, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
