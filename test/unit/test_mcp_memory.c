/* MCP while memory is out: the n-th allocation fails, for every n, alone or with all after it, those of jansson too. A
 * message is read as a whole or refused for that reason, and a client gets a whole answer, or an error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/api.h"
#include "failing_malloc.h"
#include "http/json.h"
#include "mcp/request.h"
#include "mcp/result.h"

#include <string.h>

#define CALLS_MAX 5000u
#define TEXT_MAX  4096u

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

static void messages_are_read_or_refused_for_lack_of_memory(void **state UNUSED)
{
    static const char text[] =
        "{\"jsonrpc\":\"2.0\",\"id\":\"seven\",\"method\":\"tools/call\","
        "\"params\":{\"name\":\"exec\",\"arguments\":{\"command\":\"true\"}}}";

    for (int for_good = 0; for_good < 2; for_good++) {
        bool failed = true;
        size_t refused = 0;

        for (size_t n = 1; failed; n++) {
            size_t held = failing_malloc_held();
            struct rpc_message m;
            struct err e;
            int code;

            assert_true(n < CALLS_MAX);
            failing_malloc_begin(n, for_good);
            code = rpc_read(text, strlen(text), &m, &e);
            failed = failing_malloc_end();
            assert_true(code == (failed ? RPC_INTERNAL_ERROR : 0));
            refused += code != 0;
            rpc_message_free(&m);
            assert_int_equal(failing_malloc_held(), held);
        }
        assert_true(refused >= 10);
    }
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

static void clients_get_whole_answers_or_an_error(void **state UNUSED)
{
    struct mcp m = {.core = NULL};
    char whole[TEXT_MAX];

    answer_once(&m);
    assert_int_equal(client.status, 200);
    assert_non_null(strstr(client.text, "this sandbox is new"));
    assert_non_null(strstr(client.text, "i0123"));
    strcpy(whole, client.text);
    for (int for_good = 0; for_good < 2; for_good++) {
        bool failed = true;
        size_t refused = 0;

        for (size_t n = 1; failed; n++) {
            size_t held = failing_malloc_held();

            assert_true(n < CALLS_MAX);
            failing_malloc_begin(n, for_good);
            answer_once(&m);
            failed = failing_malloc_end();
            assert_int_equal(client.answers, 1);
            assert_null(m.requests);
            assert_int_equal(failing_malloc_held(), held);
            refused += client.status == 503;
            if (client.status != 503)
                assert_string_equal(client.text, whole);
        }
        assert_int_equal(client.status, 200); /* when none failed */
        assert_true(refused >= 10);
    }
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
