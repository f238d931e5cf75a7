#include "mcp/result.h"

#include "http/json.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TEXT_MAX 1024u

static json_t *text_item(const char *text, size_t len)
{
    json_t *item = json_pack("{s:s}", "type", "text");

    json_object_set_new(item, "text", rpc_text(text, len));
    return item;
}

/* Content begins with what the request has to say beside its result: that its sandbox is a new
 * one. */
static json_t *content_of(const struct request *r, json_t *item, const char *text, size_t len)
{
    json_t *content = json_array();

    if (r->note)
        json_array_append_new(content, text_item(r->note, strlen(r->note)));
    if (item)
        json_array_append_new(content, item);
    json_array_append_new(content, text_item(text, len));
    return content;
}

void result_done_with(struct request *r, json_t *item, json_t *structured, const char *text,
                      size_t len)
{
    if (structured && r->sandbox[0])
        json_object_set_new(structured, "sandbox", json_string(r->sandbox));
    request_result(r, json_pack("{s:o, s:o, s:b}", "content", content_of(r, item, text, len),
                                "structuredContent", structured, "isError", 0));
}

void result_done(struct request *r, json_t *structured, const char *text, size_t len)
{
    result_done_with(r, NULL, structured, text, len);
}

static void fail_text(struct request *r, const char *text)
{
    request_result(r, json_pack("{s:o, s:b}", "content", content_of(r, NULL, text, strlen(text)),
                                "isError", 1));
}

void result_fail(struct request *r, const char *fmt, ...)
{
    char text[TEXT_MAX];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    fail_text(r, text);
}

void result_fail_err(struct request *r, const struct err *e)
{
    result_fail(r, "%s%s%s", e->text, e->hint[0] ? "; " : "", e->hint);
}

void result_no_memory(struct request *r)
{
    result_fail(r, "the server's memory is out; try again in a moment");
}

bool result_agent_failed(struct request *r, const char *what, const struct err *why, int status,
                         const char *body, size_t len)
{
    json_t *o;
    const char *message;

    if (why) {
        result_fail(r, "%s: %s%s%s", what, why->text, why->hint[0] ? "; " : "", why->hint);
        return true;
    }
    if (status / 100 == 2)
        return false;
    o = body ? json_load_answer(body, len) : NULL;
    message = json_string_value(json_object_get(o, "message"));
    result_fail(r, "%s: %.600s%s", what, message ? message : "the sandbox refused it",
                status == 403 ? "; files are touched as the sandbox's user: another's take "
                                "\"run\", with \"user\""
                              : "");
    json_decref(o);
    return true;
}
