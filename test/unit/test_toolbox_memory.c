/* The toolbox while memory is out: the n-th allocation of a call fails, for every n, alone or with all after it, those of
 * jansson too. The agent gets a request as a whole or none, and the client a whole answer or 503; nothing is left. The
 * agent's answers, and the client, are the test's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "failing_malloc.h"
#include "failing_sweep.h"
#include "http/json.h"
#include "toolbox/agent.h"
#include "toolbox/call.h"
#include "toolbox/files.h"
#include "toolbox/pty_internal.h"
#include "toolbox/run.h"
#include "toolbox/toolbox_internal.h"

#include <string.h>

/* Before the agent is asked: memory kept until the answer, the request's target and body, the
 * request. */
#define ALLOCATIONS 4
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

struct answering {
    struct toolbox t;
    size_t i, len;
    char whole[TEXT_MAX];
};

static void answer_it(void *arg)
{
    struct answering *a = arg;

    answer_once(&a->t, a->i);
}

static bool answer_refused(void *arg, bool failed)
{
    const struct answering *a = arg;

    assert_int_equal(client.answers, 1);
    assert_true(client.status == 200 || (failed && client.status == 503));
    if (client.status == 200) {
        assert_int_equal(client.len, a->len);
        assert_memory_equal(client.text, a->whole, a->len);
    }
    return client.status == 503;
}

static void clients_get_whole_answers_or_503(void **state UNUSED)
{
    static struct answering a;
    const struct failing_sweep s = {answer_it, answer_refused, &a, 10};

    for (a.i = 0; a.i < ARRAY_SIZE(answers); a.i++) {
        const char *part = answers[a.i].part;

        answer_once(&a.t, a.i);
        assert_int_equal(client.status, 200);
        assert_non_null(memmem(client.text, client.len, part, strlen(part)));
        a.len = client.len;
        memcpy(a.whole, client.text, a.len);
        failing_sweep(&s);
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

struct asking {
    struct toolbox t;
    json_t *envs;
    struct seen seen;
    size_t len;
    char whole[TEXT_MAX];
};

static void run_it(void *arg)
{
    struct asking *a = arg;

    run_once(&a->t, a->envs, &a->seen);
}

static bool run_refused(void *arg, bool failed)
{
    const struct asking *a = arg;

    assert_int_equal(a->seen.calls, 1);
    assert_true(agent.asked_len == a->len || (failed && agent.asked_len == 0));
    if (agent.asked_len > 0)
        assert_memory_equal(agent.asked, a->whole, a->len);
    else
        assert_int_equal(a->seen.code, ERR_UNAVAILABLE);
    return agent.asked_len == 0;
}

/* Without its environment, tag or terminal it would be another program. */
static void a_program_is_asked_for_as_a_whole_or_not(void **state UNUSED)
{
    static struct asking a;
    const struct failing_sweep s = {run_it, run_refused, &a, 10};

    a.envs = json_pack("{s:s, s:s}", "A", "1", "B", "2");
    run_it(&a);
    a.len = agent.asked_len;
    memcpy(a.whole, agent.asked, a.len);
    assert_non_null(memmem(a.whole, a.len, "\"a-tag\"", 7));
    failing_sweep(&s);
    json_decref(a.envs);
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
