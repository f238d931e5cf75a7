/* Units of src/mcp that need no sandbox: messages, revisions, schemas and the table of tools, addresses of resources,
 * origins. The rest is test/scenario/test_mcp_*.py. */
#include "mcp/http.h"
#include "mcp/resources.h"
#include "mcp/revision.h"
#include "mcp/rpc.h"
#include "mcp/tool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* -- messages ------------------------------------------------------------------------------------ */

static int read_text(const char *text, struct rpc_message *m)
{
    struct err e = {0};
    int code = rpc_read(text, strlen(text), m, &e);

    assert_true(code == 0 || (!m->whole && e.text[0]));
    return code;
}

static void test_messages(void **state)
{
    struct rpc_message m;

    assert_int_equal(read_text("{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"a\",\"params\":{}}", &m),
                     0);
    assert_int_equal(m.kind, RPC_REQUEST);
    assert_string_equal(m.method, "a");
    assert_int_equal(json_integer_value(m.id), 7);
    assert_true(json_is_object(m.params));
    rpc_message_free(&m);
    assert_null(m.whole);
    assert_int_equal(read_text("{\"jsonrpc\":\"2.0\",\"method\":\"a\"}", &m), 0);
    assert_int_equal(m.kind, RPC_NOTIFICATION);
    assert_null(m.params);
    rpc_message_free(&m);
    assert_int_equal(read_text("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":null}", &m), 0);
    assert_int_equal(m.kind, RPC_RESPONSE);
    rpc_message_free(&m);
}

static void test_no_messages(void **state)
{
    static const struct {
        const char *text;
        int code;
    } cases[] = {
        {"", RPC_PARSE_ERROR},
        {"{", RPC_PARSE_ERROR},
        {"{} {}", RPC_PARSE_ERROR},
        {"[]", RPC_INVALID_REQUEST},
        {"1", RPC_INVALID_REQUEST},
        {"{}", RPC_INVALID_REQUEST},
        {"{\"jsonrpc\":\"2.0\"}", RPC_INVALID_REQUEST},
        {"{\"jsonrpc\":2.0,\"id\":1,\"method\":\"a\"}", RPC_INVALID_REQUEST},
        {"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"a\"}", RPC_INVALID_REQUEST},
        {"{\"jsonrpc\":\"2.0\",\"id\":true,\"method\":\"a\"}", RPC_INVALID_REQUEST},
        {"{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"a\"}", RPC_INVALID_REQUEST},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\"}", RPC_INVALID_REQUEST},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":null}", RPC_INVALID_REQUEST},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\",\"params\":\"x\"}", RPC_INVALID_REQUEST},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":1,\"error\":{}}", RPC_INVALID_REQUEST},
    };
    struct rpc_message m;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_int_equal(read_text(cases[i].text, &m), cases[i].code);
}

static void test_text_of_any_bytes(void **state)
{
    json_t *text = rpc_text("a\xff\0b", 4);

    assert_int_equal(json_string_length(text), 6);
    assert_memory_equal(json_string_value(text), "a\xef\xbf\xbd\0b", 6);
    json_decref(text);
}

static void test_an_error_has_an_id(void **state)
{
    json_t *id = json_integer(7), *none = rpc_error(NULL, 401, "no", NULL),
           *given = rpc_error(id, RPC_INVALID_PARAMS, "no", NULL);

    assert_true(json_is_null(json_object_get(none, "id")));
    assert_true(json_equal(json_object_get(given, "id"), id));
    json_decref(given);
    json_decref(none);
    json_decref(id);
}

/* -- revisions ----------------------------------------------------------------------------------- */

static int revision(const char *version, const char *method, const char *name, const char *text,
                    const struct revision **out)
{
    char *headers[API_HEADER_ID_COUNT] = {[API_MCP_VERSION] = (char *)version,
                                          [API_MCP_METHOD] = (char *)method,
                                          [API_MCP_NAME] = (char *)name};
    struct rpc_message m;
    json_t *data = NULL;
    struct err e;
    int code;

    assert_int_equal(read_text(text, &m), 0);
    code = revision_of(headers, &m, out, &data, &e);
    assert_int_equal(data != NULL, code == RPC_UNSUPPORTED_VERSION);
    json_decref(data);
    rpc_message_free(&m);
    return code;
}

#define META(version)                                                         \
    "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"" version "\"," \
    "\"io.modelcontextprotocol/clientCapabilities\":{}}"
#define CALL(params) \
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{" params "}}"

static void test_revisions(void **state)
{
    const char *now = "2026-07-28", *call = "tools/call";
    const struct revision *r;

    assert_int_equal(revision(NULL, NULL, NULL, CALL(""), &r), 0);
    assert_string_equal(r->name, "2025-03-26");
    assert_int_equal(revision("2025-06-18", NULL, NULL, CALL(""), &r), 0);
    assert_false(r->stateless);
    assert_int_equal(revision("x", NULL, NULL, CALL(""), &r), RPC_UNSUPPORTED_VERSION);
    assert_int_equal(revision(now, call, "run", CALL("\"name\":\"run\"," META("2026-07-28")), &r),
                     0);
    assert_true(r->stateless);
    assert_int_equal(
        revision(now, call, "=?base64?cnVu?=", CALL("\"name\":\"run\"," META("2026-07-28")), &r),
        0);
    assert_int_equal(
        revision(now, call, "=?base64?cnVv?=", CALL("\"name\":\"run\"," META("2026-07-28")), &r),
        RPC_HEADER_MISMATCH);
    assert_int_equal(revision(now, call, NULL, CALL("\"name\":\"run\"," META("2026-07-28")), &r),
                     RPC_HEADER_MISMATCH);
    assert_int_equal(revision(now, NULL, "run", CALL("\"name\":\"run\"," META("2026-07-28")), &r),
                     RPC_HEADER_MISMATCH);
    assert_int_equal(revision(NULL, call, "run", CALL("\"name\":\"run\"," META("2026-07-28")), &r),
                     RPC_HEADER_MISMATCH);
    assert_int_equal(revision("2025-06-18", call, NULL, CALL(META("2026-07-28")), &r),
                     RPC_HEADER_MISMATCH);
    assert_int_equal(revision("2025-06-18", call, NULL, CALL(META("2025-06-18")), &r),
                     RPC_UNSUPPORTED_VERSION);
    assert_int_equal(revision(now, call, NULL, CALL(""), &r), RPC_INVALID_PARAMS);
    assert_int_equal(revision(now, call, NULL,
                              CALL("\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":7}"),
                              &r),
                     RPC_INVALID_PARAMS);
}

#define NOTE(params) "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\",\"params\":{" params "}}"

/* A notification needs no version in _meta; one of another type is refused, with and without the
 * header. */
static void test_revisions_of_notifications(void **state)
{
    static const char *const versions[] = {NULL, "2026-07-28", "2025-06-18", "x"};
    static const char *const no_texts[] = {"5", "null", "true", "{}", "[]", "1.5"};
    const struct revision *r = NULL;
    char text[256];

    for (size_t i = 0; i < ARRAY_SIZE(versions); i++)
        for (size_t j = 0; j < ARRAY_SIZE(no_texts); j++) {
            (void)snprintf(text, sizeof(text),
                           NOTE("\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":%s}"),
                           no_texts[j]);
            assert_int_equal(revision(versions[i], NULL, NULL, text, &r), RPC_INVALID_PARAMS);
        }
    assert_int_equal(revision("2026-07-28", NULL, NULL, NOTE(""), &r), 0);
    assert_true(r->stateless);
    assert_int_equal(revision("2026-07-28", NULL, NULL, NOTE(META("2026-07-28")), &r), 0);
    assert_true(r->stateless);
    assert_int_equal(revision(NULL, NULL, NULL, NOTE(META("2026-07-28")), &r), RPC_HEADER_MISMATCH);
}

static void test_negotiation(void **state)
{
    assert_string_equal(revision_negotiate("2025-03-26")->name, "2025-03-26");
    assert_string_equal(revision_negotiate("2026-07-28")->name, "2025-11-25");
    assert_string_equal(revision_negotiate("")->name, "2025-11-25");
    assert_null(revision_find("2026-07-29"));
    assert_null(revision_find(NULL));
}

/* -- tools --------------------------------------------------------------------------------------- */

/* Deny by default: a row that was not finished is for no one, and is found here. */
static void test_each_tool_is_whole(void **state)
{
    for (const struct tool *t = tools; t->name; t++) {
        assert_non_null(t->title);
        assert_non_null(t->description);
        assert_non_null(t->run);
        assert_true(t->right != 0 && (t->right & ~(unsigned)REQUEST_ALL_RIGHTS) == 0);
        assert_ptr_equal(tool_find(t->name), t);
        for (int i = 0; i < 2; i++)
            for (const struct schema_field *f = i ? t->in : t->out; f->type != SCHEMA_END; f++) {
                assert_true(f->type < SCHEMA_TYPE_COUNT && f->name && f->description);
                assert_int_equal(f->values != NULL, f->type == SCHEMA_CHOICE);
            }
    }
    assert_null(tool_find("nothing"));
    assert_null(tool_find(""));
}

static void test_rights(void **state)
{
    unsigned rights = 99;
    struct err e;
    json_t *list, *shown;

    assert_int_equal(tool_rights("read,write, execute expose,manage", &rights, &e), ERR_OK);
    assert_int_equal(rights, REQUEST_ALL_RIGHTS);
    assert_int_equal(tool_rights("", &rights, &e), ERR_OK);
    assert_int_equal(rights, 0);
    shown = tools_shown(true);
    list = tool_list(shown, rights);
    assert_int_equal(json_array_size(list), 0);
    json_decref(list);
    list = tool_list(shown, REQUEST_READ);
    assert_int_equal(json_array_size(list), 3);                          /* read, list, search */
    assert_ptr_equal(json_array_get(list, 0), json_array_get(shown, 2)); /* made once */
    json_decref(list);
    json_decref(shown);
    assert_int_equal(tool_rights("read,reads", &rights, &e), ERR_INVALID);
    assert_non_null(strstr(e.text, "\"reads\""));
    assert_int_equal(rights, 0);
}

static const struct schema_field fields[] = {
    {.type = SCHEMA_TEXT, .name = "text", .description = "d", .required = true, .max = 4},
    {.type = SCHEMA_CHOICE, .name = "choice", .description = "d", .values = "one|two"},
    {.type = SCHEMA_INTEGER, .name = "number", .description = "d", .min = -1, .max = 9},
    {.type = SCHEMA_BOOLEAN, .name = "yes", .description = "d"},
    {.type = SCHEMA_ENV, .name = "map", .description = "d", .max = 10},
    {.type = SCHEMA_OBJECTS, .name = "given", .description = "d"},
    {.type = SCHEMA_END},
};

static bool accepts(const char *text)
{
    json_t *args = json_loads(text, JSON_DECODE_ANY, NULL);
    struct err e;
    bool good;

    assert_non_null(args);
    good = schema_check(fields, args, &e) == ERR_OK;
    json_decref(args);
    return good;
}

static void test_arguments(void **state)
{
    struct err e;

    assert_true(accepts("{\"text\":\"abcd\",\"choice\":\"two\",\"number\":-1,\"yes\":false,\"map\":"
                        "{\"a\":\"b\"}}"));
    assert_true(accepts("{\"text\":\"\",\"choice\":null,\"number\":null,\"map\":{}}"));
    assert_false(accepts("{}"));
    assert_false(accepts("[]"));
    assert_false(accepts("{\"text\":null}"));
    assert_false(accepts("{\"text\":\"abcde\"}"));
    assert_false(accepts("{\"text\":\"\",\"choice\":\"on\"}"));
    assert_false(accepts("{\"text\":\"\",\"choice\":\"one|two\"}"));
    assert_false(accepts("{\"text\":\"\",\"choice\":\"\"}"));
    assert_false(accepts("{\"text\":\"\",\"number\":10}"));
    assert_false(accepts("{\"text\":\"\",\"number\":1.0}"));
    assert_false(accepts("{\"text\":\"\",\"yes\":1}"));
    assert_false(accepts("{\"text\":\"\",\"map\":{\"a\":1}}"));
    assert_false(accepts("{\"text\":\"\",\"map\":{\"a\":\"01234567890\"}}"));
    assert_false(accepts("{\"text\":\"\",\"map\":{\"a=b\":\"\"}}"));
    assert_false(accepts("{\"text\":\"\",\"map\":{\"\":\"b\"}}"));
    assert_false(accepts("{\"text\":\"\",\"given\":[]}"));
    assert_false(accepts("{\"text\":\"\",\"other\":1}"));
    assert_int_equal(schema_check(fields, NULL, &e), ERR_INVALID);
}

/* -- addresses and origins ----------------------------------------------------------------------- */

static void test_addresses(void **state)
{
    char sandbox[IDS_SANDBOX_SIZE], path[RESOURCES_PATH_SIZE], id[IDS_SANDBOX_SIZE], uri[256];
    static const char *const bad[] = {
        "cay://%s",      "cay:/%s/a",   "cay://x%s/a",  "cay://%sx/a",  "file://%s/a",
        "cay://%s/%%00", "cay://%s/%%", "cay://%s/a?b", "cay://%s/a#b", "%s"};

    ids_sandbox(id);
    (void)snprintf(uri, sizeof(uri), "cay://%s/a%%20b/%%C3%%A4", id);
    assert_true(resources_parse(uri, sandbox, path));
    assert_string_equal(sandbox, id);
    assert_string_equal(path, "/a b/\xc3\xa4");
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        const char *at = strstr(bad[i], "%s");

        (void)snprintf(uri, sizeof(uri), "%.*s%s%s", (int)(at - bad[i]), bad[i], id, at + 2);
        assert_false(resources_parse(strstr(uri, "%%00") ? "cay:///%00" : uri, sandbox, path));
    }
}

static void test_origins(void **state)
{
    static const char *const good[] = {"http://localhost",      "https://localhost:1",
                                       "http://127.0.0.1:8080", "http://[::1]",
                                       "https://cay.example",   "https://CAY.example:8443"};
    static const char *const bad[] = {"",
                                      "null",
                                      "http://",
                                      "localhost",
                                      "http://cay.example.evil",
                                      "http://evilcay.example",
                                      "http://localhost.evil",
                                      "http://localhost@evil",
                                      "http://localhost/evil",
                                      "http://localhost:x",
                                      "http://localhost:80:80",
                                      "http://[::1",
                                      "http://[::1]evil",
                                      "ftp://localhost",
                                      "http://127.0.0.2",
                                      "http://x.cay.example"};

    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        assert_true(http_mcp_origin_is_own(good[i], "cay.example:3000"));
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_false(http_mcp_origin_is_own(bad[i], "cay.example:3000"));
    assert_false(http_mcp_origin_is_own("http://", ""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_no_messages),
        cmocka_unit_test(test_text_of_any_bytes),
        cmocka_unit_test(test_an_error_has_an_id),
        cmocka_unit_test(test_revisions),
        cmocka_unit_test(test_revisions_of_notifications),
        cmocka_unit_test(test_negotiation),
        cmocka_unit_test(test_each_tool_is_whole),
        cmocka_unit_test(test_rights),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_origins),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
