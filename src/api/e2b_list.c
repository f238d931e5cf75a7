/* Lists of sandboxes for E2B's clients: version 1 (all at once) and 2 (pages). A query is read
 * whole before core is asked; a filter that cannot be read is refused, since ignoring it would
 * show more than was asked for. The next page is named by a token with the last id (e2b_page.c),
 * and core's order (list.c) makes it stable while sandboxes come and go. */

#include "api/e2b.h"
#include "base/arena.h"
#include "base/clock.h"
#include "core/list.h"
#include "http/message.h"

#include <stdio.h>
#include <string.h>

#define LIST_ARENA_BYTES     (256u * 1024u)
#define V1_LIMIT             1000u
#define METADATA_QUERY_BYTES (48u * 1024u)

/* Everything a list is asked with; freed by query_free. */
struct list_query {
    struct sandbox_filter filter;
    json_t *metadata;
    char template_name[CORE_NAME_SIZE];
    char cursor_id[IDS_SANDBOX_SIZE];
};

static void query_free(struct list_query *q)
{
    json_decref(q->metadata);
}

static bool read_metadata(struct api_call *call, struct list_query *q)
{
    CLEANUP_FREE char *value = malloc(METADATA_QUERY_BYTES);
    struct err e;

    if (!value) {
        api_fail(call, 503, "no memory to read the metadata filter");
        return false;
    }
    if (!api_call_query(call, "metadata", value, METADATA_QUERY_BYTES))
        return false;
    if (value[0] == '\0')
        return true;
    q->metadata = e2b_metadata_filter(value, &e);
    if (!q->metadata) {
        api_fail_err(call, &e);
        return false;
    }
    q->filter.metadata = q->metadata;
    return true;
}

static bool read_states(struct api_call *call, struct list_query *q)
{
    char value[64], *rest = NULL;

    if (!api_call_query(call, "state", value, sizeof(value)))
        return false;
    for (char *s = strtok_r(value, ",", &rest); s; s = strtok_r(NULL, ",", &rest)) {
        if (strcmp(s, "running") == 0) {
            q->filter.running = true;
        } else if (strcmp(s, "paused") == 0) {
            q->filter.paused = true;
        } else {
            api_fail(call, 400,
                     "the query parameter \"state\" must be running, paused or both, not \"%s\"",
                     s);
            return false;
        }
    }
    return true;
}

static bool read_order(struct api_call *call, struct list_query *q)
{
    char value[16];

    if (!api_call_query(call, "order", value, sizeof(value)))
        return false;
    if (value[0] && strcmp(value, "asc") != 0 && strcmp(value, "desc") != 0) {
        api_fail(call, 400, "Invalid order parameter: unknown order \"%s\"; it is asc or desc",
                 value);
        return false;
    }
    q->filter.ascending = strcmp(value, "asc") == 0;
    return true;
}

static bool read_cursor(struct api_call *call, struct list_query *q)
{
    char value[E2B_PAGE_TOKEN_SIZE];
    int64_t limit = E2B_PAGE_MAX;

    if (!api_call_query_int(call, "limit", 1, E2B_PAGE_MAX, &limit) ||
        !api_call_query(call, "nextToken", value, sizeof(value)))
        return false;
    q->filter.limit = (size_t)limit;
    if (value[0] == '\0')
        return true;
    if (e2b_page_token_parse(value, q->filter.ascending, &q->filter.cursor_ms, q->cursor_id) < 0) {
        api_fail(call, 400, "Invalid next token: it was not made by this list in this order");
        return false;
    }
    q->filter.cursor_id = q->cursor_id;
    return true;
}

static bool read_started_after(struct api_call *call, struct list_query *q)
{
    char value[64];

    if (!api_call_query(call, "startedAfter", value, sizeof(value)))
        return false;
    /* An unescaped '+' of an offset arrives as a space. */
    for (char *c = value; *c; c++)
        if (*c == ' ' && c - value > 10)
            *c = '+';
    if (value[0] && clock_parse_rfc3339(value, &q->filter.started_after_ms) < 0) {
        api_fail(call, 400,
                 "the query parameter \"startedAfter\" must be a time like 2026-01-31T12:00:00Z, "
                 "not \"%s\"",
                 value);
        return false;
    }
    return true;
}

static bool read_template(struct api_call *call, struct list_query *q)
{
    if (!api_call_query(call, "template", q->template_name, sizeof(q->template_name)))
        return false;
    if (q->template_name[0])
        q->filter.template_name = q->template_name;
    return true;
}

static void reply_page(struct api_call *call, const struct list_query *q, bool paged)
{
    CLEANUP_ARENA struct arena arena;
    struct sandbox_page page = {0};
    char text[E2B_PAGE_TOKEN_SIZE];
    json_t *out;
    struct err e;

    arena_init(&arena, LIST_ARENA_BYTES);
    if (core_sandbox_list(call->core, &q->filter, &arena, &page, &e) != ERR_OK) {
        api_fail_err(call, &e);
        return;
    }
    out = json_array();
    for (size_t i = 0; i < page.count; i++)
        json_array_append_new(out, e2b_listed_json(call, page.items[i]));
    if (paged) {
        snprintf(text, sizeof(text), "%zu", page.total_running);
        api_header_add(call, "X-Total-Running", text);
        if (page.more && page.count > 0) {
            const struct sandbox *last = page.items[page.count - 1];

            e2b_page_token_make(last->started_real_ms, last->id, q->filter.ascending, text);
            api_header_add(call, "X-Next-Token", text);
        }
    }
    api_reply_json(call, 200, out);
}

void e2b_sandbox_list_v1(struct api_call *call)
{
    struct list_query q = {
        .filter = {.tenant = call->who.tenant, .limit = V1_LIMIT, .running = true}};

    if (read_metadata(call, &q))
        reply_page(call, &q, false);
    query_free(&q);
}

void e2b_sandbox_list_v2(struct api_call *call)
{
    struct list_query q = {.filter = {.tenant = call->who.tenant}};

    if (read_states(call, &q) && read_order(call, &q) && read_started_after(call, &q) &&
        read_template(call, &q) && read_cursor(call, &q) && read_metadata(call, &q))
        reply_page(call, &q, true);
    query_free(&q);
}
