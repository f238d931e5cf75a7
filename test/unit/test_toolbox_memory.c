/* The toolbox while memory is out: the n-th allocation of a call fails, for every n, alone or with all after it, those of
 * jansson too. The agent gets a request as a whole or none, and the client a whole answer or 503; nothing is left. The
 * agent's answers, and the client, are the test's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "failing_malloc.h"
#include "http/json.h"
#include "toolbox/agent.h"
#include "toolbox/call.h"
#include "toolbox/files.h"
#include "toolbox/pty_internal.h"
#include "toolbox/run.h"
#include "toolbox/toolbox_internal.h"

#include <string.h>

/* Before the agent is asked: what is kept until the answer, the request's target and body, the request. */
#define ALLOCATIONS 4
#define CALLS_MAX   5000u
#define TEXT_MAX    8192u

void __real_toolbox_agent(struct toolbox_call *c, const struct toolbox_agent_request *r);
void __wrap_toolbox_agent(struct toolbox_call *c, const struct toolbox_agent_request *r);
void __wrap_http_respond(struct http_exchange *x, int status, const struct http_header *headers,
                         size_t n, const void *body, size_t len);
void __wrap_http_respond_error(struct http_exchange *x, int status, const char *fmt, ...);
const struct http_head *__wrap_http_exchange_head(const struct http_exchange *x);

struct seen {
    int calls;
    enum err_code code;
    bool info;
};

static void done(void *arg, const json_t *info, const struct err *why)
{
    struct seen *seen = arg;

    seen->calls++;
    seen->code = why ? why->code : ERR_OK;
    seen->info = info != NULL;
}

static void test_each_allocation_fails(void **state UNUSED)
{
    for (size_t n = 1; n <= ALLOCATIONS; n++) {
        struct toolbox t = {.stopping = false};
        struct toolbox_call c = {.toolbox = &t, .unused_fd = -1, .refs = 1};
        struct seen seen = {.code = ERR_OK};
        size_t held = failing_malloc_held();

        failing_malloc_begin(n, false);
        pty_find(&c, "t1", done, &seen);
        assert_true(failing_malloc_end());
        assert_int_equal(seen.calls, 1);
        assert_int_equal(seen.code, ERR_UNAVAILABLE); /* 503 */
        assert_false(seen.info);
        assert_int_equal(c.refs, 1);
        assert_null(c.ops);
        assert_int_equal(failing_malloc_held(), held);
    }
}

/* -- the agent and the client ---------------------------------------------------------------------- */

static struct {
    const char *answer; /* of the agent; NULL: there is none, and it is not asked */
    char asked[TEXT_MAX];
    size_t asked_len;
} agent;

static struct {
    int answers, status;
    char text[TEXT_MAX];
    size_t len;
} client;

void __wrap_toolbox_agent(struct toolbox_call *c, const struct toolbox_agent_request *r)
{
    const struct http_head head = {.status = 200};
    struct err e;

    if (!agent.answer) {
        __real_toolbox_agent(c, r);
        return;
    }
    err_set(&e, ERR_UNAVAILABLE, "memory is out");
    if (r->target && (r->body || r->body_len == 0)) {
        assert_true(r->body_len <= sizeof(agent.asked));
        if (r->body_len > 0)
            memcpy(agent.asked, r->body, r->body_len);
        agent.asked_len = r->body_len;
        r->done(r->arg, &head, agent.answer, strlen(agent.answer), NULL);
    } else {
        r->done(r->arg, NULL, NULL, 0, &e);
    }
    free(r->target);
    free(r->body);
}

void __wrap_http_respond(struct http_exchange *x UNUSED, int status,
                         const struct http_header *headers UNUSED, size_t n UNUSED,
                         const void *body, size_t len)
{
    assert_true(len <= sizeof(client.text));
    client.answers++;
    client.status = status;
    client.len = len;
    memcpy(client.text, body, len);
}

void __wrap_http_respond_error(struct http_exchange *x, int status, const char *fmt UNUSED, ...)
{
    __wrap_http_respond(x, status, NULL, 0, "", 0);
}

const struct http_head *__wrap_http_exchange_head(const struct http_exchange *x UNUSED)
{
    static const struct http_head head = {.method = "GET", .path = "/", .query = "path=/a&depth=1"};

    return &head;
}

/* -- answers --------------------------------------------------------------------------------------- */

#define ENTRY(name)                                                                          \
    "{\"name\":\"" name "\",\"type\":\"FILE_TYPE_FILE\",\"path\":\"/a/" name                 \
    "\",\"size\":\"5\",\"mode\":420,"                                                        \
    "\"permissions\":\"-rw-r--r--\",\"owner\":\"user\",\"group\":\"user\",\"modifiedTime\":" \
    "\"2026-01-01T00:00:00Z\"}"
#define TERMINAL(id)                                                               \
    "{\"pid\":7,\"tag\":\"" PTY_TAG id                                             \
    "\",\"config\":{\"cmd\":\"/bin/sh\",\"args\":[\"-c\",\"x\",\"sh\",\"" id "\"," \
    "\"80\",\"24\",\"2026-01-01T00:00:00Z\"],\"envs\":{\"A\":\"1\"},\"cwd\":\"/a\"}}"

static const struct {
    void (*handler)(struct toolbox_call *c);
    const char *answer, *part; /* a part of what the client gets */
} answers[] = {
    {pty_list, "{\"processes\":[" TERMINAL("t0") "," TERMINAL("t1") "]}", "\"t0\""},
    {pty_get, "{\"processes\":[" TERMINAL("t0") "," TERMINAL("t1") "]}", "\"t1\""},
    {toolbox_files_list, "{\"entries\":[" ENTRY("b") "," ENTRY("c") "]}", "\"modifiedAt\""},
};

/* A call; its client's answer is in `client`. */
static void answer_once(struct toolbox *t, size_t i)
{
    struct toolbox_call c = {
        .toolbox = t, .x = (struct http_exchange *)t, .unused_fd = -1, .refs = 1};

    strcpy(c.params[0], "t1");
    client.answers = 0;
    agent.answer = answers[i].answer;
    answers[i].handler(&c);
    agent.answer = NULL;
    if (c.state_free)
        c.state_free(c.state);
}

static void clients_get_whole_answers_or_503(void **state UNUSED)
{
    static char whole[TEXT_MAX];
    struct toolbox t = {.stopping = false};

    for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
        size_t len;

        answer_once(&t, i);
        assert_int_equal(client.status, 200);
        assert_non_null(memmem(client.text, client.len, answers[i].part, strlen(answers[i].part)));
        len = client.len;
        memcpy(whole, client.text, len);
        for (int for_good = 0; for_good < 2; for_good++) {
            bool failed = true;
            size_t refused = 0;

            for (size_t n = 1; failed; n++) {
                size_t held = failing_malloc_held();

                assert_true(n < CALLS_MAX);
                failing_malloc_begin(n, for_good);
                answer_once(&t, i);
                failed = failing_malloc_end();
                assert_int_equal(client.answers, 1);
                assert_int_equal(failing_malloc_held(), held);
                assert_true(client.status == 503 || client.status == 200);
                refused += client.status == 503;
                if (client.status == 200) {
                    assert_int_equal(client.len, len);
                    assert_memory_equal(client.text, whole, len);
                }
            }
            assert_int_equal(client.status, 200); /* when none failed */
            assert_true(refused >= 10);
        }
    }
}

/* -- requests -------------------------------------------------------------------------------------- */

static void ran(void *arg, const struct toolbox_result *r UNUSED, const struct err *why)
{
    struct seen *seen = arg;

    seen->calls++;
    seen->code = why ? why->code : ERR_OK;
}

static void run_once(struct toolbox *t, const json_t *envs, struct seen *seen)
{
    struct toolbox_call c = {
        .toolbox = t, .x = (struct http_exchange *)t, .unused_fd = -1, .refs = 1};
    const struct toolbox_run r = {.argv = {"/bin/sh", "-c", "echo \"$A\"", NULL},
                                  .envs = envs,
                                  .tag = "a-tag",
                                  .cols = 80,
                                  .rows = 24,
                                  .done = ran,
                                  .arg = seen};

    *seen = (struct seen){.code = ERR_OK};
    agent.answer = "";
    agent.asked_len = 0;
    toolbox_run(&c, &r);
    agent.answer = NULL;
}

/* Without its environment, tag or terminal it would be another program. */
static void a_program_is_asked_for_as_a_whole_or_not(void **state UNUSED)
{
    static char whole[TEXT_MAX];
    struct toolbox t = {.stopping = false};
    json_t *envs = json_pack("{s:s, s:s}", "A", "1", "B", "2");
    struct seen seen;
    size_t len;

    run_once(&t, envs, &seen);
    len = agent.asked_len;
    memcpy(whole, agent.asked, len);
    assert_non_null(memmem(whole, len, "\"a-tag\"", 7));
    for (int for_good = 0; for_good < 2; for_good++) {
        bool failed = true;
        size_t refused = 0;

        for (size_t n = 1; failed; n++) {
            size_t held = failing_malloc_held();

            assert_true(n < CALLS_MAX);
            failing_malloc_begin(n, for_good);
            run_once(&t, envs, &seen);
            failed = failing_malloc_end();
            assert_int_equal(seen.calls, 1);
            assert_int_equal(failing_malloc_held(), held);
            assert_true(agent.asked_len == 0 || agent.asked_len == len);
            if (agent.asked_len > 0)
                assert_memory_equal(agent.asked, whole, len);
            else
                assert_int_equal(seen.code, ERR_UNAVAILABLE);
            refused += agent.asked_len == 0;
        }
        assert_int_equal(agent.asked_len, len);
        assert_true(refused >= 10);
    }
    json_decref(envs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_allocation_fails),
                                       cmocka_unit_test(clients_get_whole_answers_or_503),
                                       cmocka_unit_test(a_program_is_asked_for_as_a_whole_or_not)};

    failing_malloc_init();
    json_wipe_frees(); /* jansson's calls count as the program's, too */
    return cmocka_run_group_tests_name("toolbox_memory", tests, NULL, NULL);
}
