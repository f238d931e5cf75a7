/* MCP while memory is out: the n-th allocation fails, for every n, alone or with all after it, those of jansson too. A
 * message is read as a whole or refused for that reason, and a client gets a whole answer, or an error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/api.h"
#include "failing_malloc.h"
#include "failing_sweep.h"
#include "http/json.h"
#include "mcp/request.h"
#include "mcp/result.h"

#include <string.h>

#define TEXT_MAX 4096u

void __wrap_api_reply_text(struct api_call *call, int status, const char *json, size_t len);
void __wrap_api_fail(struct api_call *call, int status, const char *fmt, ...);

/* -- the client ------------------------------------------------------------------------------------ */

static struct {
    int answers, status;
    char text[TEXT_MAX];
    size_t len;
} client;

void __wrap_api_reply_text(struct api_call *call UNUSED, int status, const char *json, size_t len)
{
    assert_true(len < sizeof(client.text));
    client.answers++;
    client.status = status;
    client.len = len;
    memcpy(client.text, json, len);
    client.text[len] = '\0';
}

void __wrap_api_fail(struct api_call *call UNUSED, int status, const char *fmt UNUSED, ...)
{
    __wrap_api_reply_text(NULL, status, "", 0);
}

/* -- messages -------------------------------------------------------------------------------------- */

struct reading {
    struct rpc_message m;
    int code;
};

static void read_message(void *arg)
{
    static const char text[] =
        "{\"jsonrpc\":\"2.0\",\"id\":\"seven\",\"method\":\"tools/call\","
        "\"params\":{\"name\":\"exec\",\"arguments\":{\"command\":\"true\"}}}";
    struct reading *r = arg;
    struct err e;

    r->code = rpc_read(text, strlen(text), &r->m, &e);
}

static bool message_refused(void *arg, bool failed)
{
    struct reading *r = arg;

    assert_true(r->code == (failed ? RPC_INTERNAL_ERROR : 0));
    rpc_message_free(&r->m);
    return r->code != 0;
}

static void messages_are_read_or_refused_for_lack_of_memory(void **state UNUSED)
{
    struct reading r;
    const struct failing_sweep s = {read_message, message_refused, &r, 10};

    failing_sweep(&s);
}

/* -- answers --------------------------------------------------------------------------------------- */

/* A tool's result, of a sandbox that is new. */
static void answer_once(struct mcp *m)
{
    static const struct revision revision = {.name = "test", .stateless = true};
    struct rpc_message message = {.kind = RPC_REQUEST, .whole = json_pack("{s:i}", "id", 7)};
    struct api_call call = {.who = {.tenant = "default"}};
    struct request *r;

    message.id = json_object_get(message.whole, "id");
    client.answers = 0;
    r = message.whole ? request_new(m, &call, &message) : NULL;
    if (!r) {
        rpc_message_free(&message);
        __wrap_api_fail(&call, 503, "memory is out");
        return;
    }
    r->revision = &revision;
    r->note = "this sandbox is new";
    strcpy(r->sandbox, "i0123");
    result_done(r, json_pack("{s:i}", "exit_code", 0), "some \xff output", 13);
}

struct answering {
    struct mcp m;
    char whole[TEXT_MAX];
};

static void answer_it(void *arg)
{
    struct answering *a = arg;

    answer_once(&a->m);
}

static bool answer_refused(void *arg, bool failed)
{
    struct answering *a = arg;

    assert_int_equal(client.answers, 1);
    assert_null(a->m.requests);
    if (!failed)
        assert_int_equal(client.status, 200);
    if (client.status != 503)
        assert_string_equal(client.text, a->whole);
    return client.status == 503;
}

static void clients_get_whole_answers_or_an_error(void **state UNUSED)
{
    struct answering a = {.m = {.core = NULL}};
    const struct failing_sweep s = {answer_it, answer_refused, &a, 10};

    answer_once(&a.m);
    assert_int_equal(client.status, 200);
    assert_non_null(strstr(client.text, "this sandbox is new"));
    assert_non_null(strstr(client.text, "i0123"));
    strcpy(a.whole, client.text);
    failing_sweep(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_read_or_refused_for_lack_of_memory),
        cmocka_unit_test(clients_get_whole_answers_or_an_error)};

    failing_malloc_init();
    json_wipe_frees(); /* jansson's calls count as the program's, too */
    return cmocka_run_group_tests_name("mcp_memory", tests, NULL, NULL);
}
