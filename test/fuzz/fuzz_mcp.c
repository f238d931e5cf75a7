/* A client's messages to /mcp before a sandbox is asked for anything: a message, the headers beside it, a tool's
 * arguments, a resource's address. The first byte says which headers there are; they come before the message, each up
 * to a line's end. */
#include "fuzz.h"
#include "mcp/http.h"
#include "mcp/resources.h"
#include "mcp/revision.h"
#include "mcp/tool.h"

#define LINE_MAX_BYTES 512u

/* A message that was accepted is written again as it was. */
static void same_again(const struct rpc_message *m)
{
    char *text = json_dumps(m->whole, JSON_COMPACT);
    struct rpc_message again;
    struct err e;

    FUZZ_CHECK(text);
    FUZZ_CHECK(rpc_read(text, strlen(text), &again, &e) == 0);
    FUZZ_CHECK(again.kind == m->kind && json_equal(again.whole, m->whole));
    FUZZ_CHECK(m->kind != RPC_REQUEST || rpc_same_id(m->id, again.id));
    rpc_message_free(&again);
    free(text);
}

static void check_tool(const struct rpc_message *m)
{
    const char *name = json_string_value(json_object_get(m->params, "name"));
    const struct tool *t = name ? tool_find(name) : NULL;
    const json_t *args = json_object_get(m->params, "arguments");
    struct err e = {0};

    if (!t)
        return;
    if (schema_check(t->in, args, &e) != ERR_OK) {
        FUZZ_CHECK(e.code == ERR_INVALID && e.text[0]);
        return;
    }
    for (const struct schema_field *f = t->in; f->type != SCHEMA_END; f++) {
        const json_t *value = json_object_get(args, f->name);

        FUZZ_CHECK(value || !f->required);
        FUZZ_CHECK(f->type != SCHEMA_INTEGER || !json_is_integer(value) ||
                   (json_integer_value(value) >= f->min && json_integer_value(value) <= f->max));
    }
}

static void check_address(const struct rpc_message *m)
{
    const char *uri = json_string_value(json_object_get(m->params, "uri"));
    char sandbox[IDS_SANDBOX_SIZE], path[RESOURCES_PATH_SIZE];

    if (uri && resources_parse(uri, sandbox, path))
        FUZZ_CHECK(ids_is_sandbox(sandbox) && path[0] == '/');
}

static void check_revision(char *headers[API_HEADER_ID_COUNT], const struct rpc_message *m)
{
    const struct revision *r = NULL;
    json_t *data = NULL;
    struct err e = {0};
    int code = m->method ? revision_of(headers, m, &r, &data, &e) : 0;

    FUZZ_CHECK((code == RPC_UNSUPPORTED_VERSION) == (data != NULL));
    FUZZ_CHECK(code != 0 ? e.text[0] != '\0' : !m->method || r != NULL);
    json_decref(data);
}

/* A header out of the input, malloc'd; NULL: it has none. */
static char *take_header(const uint8_t **data, size_t *size)
{
    const uint8_t *end = memchr(*data, '\n', *size);
    size_t n = end ? (size_t)(end - *data) : 0;
    char *out;

    if (!end || n > LINE_MAX_BYTES || memchr(*data, '\0', n))
        return NULL;
    out = malloc(n + 1);
    FUZZ_CHECK(out);
    memcpy(out, *data, n);
    out[n] = '\0';
    *data += n + 1;
    *size -= n + 1;
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum api_header_id which[] = {API_MCP_VERSION, API_MCP_METHOD, API_MCP_NAME,
                                               API_ORIGIN, API_MCP_RIGHTS};
    char *headers[API_HEADER_ID_COUNT] = {0};
    struct rpc_message m;
    struct err e = {0};
    unsigned rights, there;

    if (size == 0 || size > 100000)
        return 0;
    there = *data++;
    size--;
    for (size_t i = 0; i < ARRAY_SIZE(which); i++)
        if (there & (1u << i))
            headers[which[i]] = take_header(&data, &size);
    if (headers[API_ORIGIN])
        (void)http_mcp_origin_is_own(headers[API_ORIGIN], "cay.example:3000");
    if (headers[API_MCP_RIGHTS] && tool_rights(headers[API_MCP_RIGHTS], &rights, &e) == ERR_OK)
        FUZZ_CHECK((rights & ~(unsigned)REQUEST_ALL_RIGHTS) == 0);
    if (rpc_read((const char *)data, size, &m, &e) == 0) {
        same_again(&m);
        check_revision(headers, &m);
        check_tool(&m);
        check_address(&m);
        rpc_message_free(&m);
    } else {
        FUZZ_CHECK(!m.whole && e.text[0]);
    }
    for (size_t i = 0; i < API_HEADER_ID_COUNT; i++)
        free(headers[i]);
    return 0;
}
