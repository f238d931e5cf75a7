/* Lists of sandboxes for Daytona's clients: by cursor (GET /api/sandbox, newest first) and by
 * the number of a page. A parameter that is not known here is refused: if it were ignored, a
 * client that filters by it would get sandboxes that it excluded. Pages by number are counted
 * through core's pages each time, since Daytona's answer has the total. */

#include "api/daytona.h"
#include "api/daytona_later.h"
#include "api/e2b.h"
#include "base/arena.h"
#include "core/list.h"
#include "http/json.h"
#include "http/message.h"

#include <string.h>

#define LIST_ARENA_BYTES (256u * 1024u)
#define LIST_STEP        1000u

/* The parameters that a query may have. Any other is refused: a filter that is ignored would return
 * all. only: the one value that is allowed, which is the default. */
static const struct {
    const char *name, *only;
} known[] = {
    {"labels", NULL},
    {"cursor", NULL},
    {"limit", NULL},
    {"states", "started"},
    {"sort", "createdAt"},
    {"order", "desc"},
    {"regionIds", DAYTONA_TARGET},
    {"sandboxClasses", "container"},
    {"includeErroredDeleted", "false"},
    {"includeWarm", "false"},
    {"page", NULL},
};

static bool is(const char *text, size_t n, const char *word)
{
    return strlen(word) == n && memcmp(text, word, n) == 0;
}

/* Is this "name=value" of a query known? */
static bool is_known(const char *text, size_t n)
{
    const char *equals = memchr(text, '=', n);
    size_t name = equals ? (size_t)(equals - text) : n;

    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        if (is(text, name, known[i].name))
            return !known[i].only || (equals && is(equals + 1, n - name - 1, known[i].only));
    return n == 0;
}

static bool check_query(struct api_call *call)
{
    const char *at = call->request->query;

    for (;;) {
        size_t n = strcspn(at, "&");

        if (!is_known(at, n)) {
            api_fail(call, 400,
                     "%.*s: not supported yet by this server in a list; there are labels, cursor "
                     "and limit",
                     (int)MIN(n, 64u), at);
            return false;
        }
        if (at[n] == '\0')
            return true;
        at += n + 1;
    }
}

/* Labels that all have to be equal, as the text of a JSON object. "null", which Python's SDK 0.143
 * sends where none are named, asks for none. */
static bool read_labels(struct api_call *call, json_t **out)
{
    CLEANUP_FREE char *text = malloc(DAYTONA_LABELS_BYTES);
    struct err e;

    if (!text) {
        api_fail(call, 503, "memory is out");
        return false;
    }
    if (!api_call_query(call, "labels", text, DAYTONA_LABELS_BYTES))
        return false;
    if (strcmp(text, "null") == 0)
        text[0] = '\0';
    if (json_parse(text, strlen(text), true, out, &e) == ERR_OK && json_is_object(*out) &&
        json_check_str_map(*out, "labels", API_MAP_MAX_COUNT, DAYTONA_LABELS_BYTES, &e) == ERR_OK)
        return true;
    api_fail(call, 400, "labels must be a JSON object of strings");
    return false;
}

static bool read_page(struct api_call *call, struct sandbox_filter *f,
                      char id[static IDS_SANDBOX_SIZE])
{
    char cursor[E2B_PAGE_TOKEN_SIZE];
    int64_t limit = E2B_PAGE_MAX;

    if (!api_call_query_int(call, "limit", 1, DAYTONA_PAGE_MAX, &limit) ||
        !api_call_query(call, "cursor", cursor, sizeof(cursor)))
        return false;
    f->limit = (size_t)limit;
    if (cursor[0] == '\0')
        return true;
    if (e2b_page_token_parse(cursor, false, &f->cursor_ms, id) < 0) {
        api_fail(call, 400, "cursor is none of this list's");
        return false;
    }
    f->cursor_id = id;
    return true;
}

/* Sandboxes that wait for their build come first, on the first page, beyond its limit: they are the
 * newest, as a rule. In a list by state they are not. */
static size_t add_later(struct api_call *call, const json_t *labels, bool item, json_t *items)
{
    char states[16];

    return http_query_get(call->request->query, "states", states, sizeof(states)) > 0
               ? 0
               : daytona_later_list(call, labels, item, items);
}

static void reply(struct api_call *call, const struct sandbox_filter *f,
                  const struct sandbox_page *page)
{
    json_t *items = json_array(), *next = json_null();
    char token[E2B_PAGE_TOKEN_SIZE];

    if (!f->cursor_id)
        add_later(call, f->metadata, true, items);
    for (size_t i = 0; i < page->count; i++)
        json_array_append_new(items, daytona_sandbox_json(call, page->items[i], true));
    if (page->more && page->count > 0) {
        const struct sandbox *last = page->items[page->count - 1];

        e2b_page_token_make(last->started_real_ms, last->id, false, token);
        next = json_string(token);
    }
    api_reply_json(call, 200, json_pack("{s:o, s:o}", "items", items, "nextCursor", next));
}

void daytona_sandbox_list(struct api_call *call)
{
    struct sandbox_filter filter = {.tenant = call->who.tenant};
    CLEANUP_ARENA struct arena arena;
    struct sandbox_page page = {0};
    char cursor_id[IDS_SANDBOX_SIZE];
    json_t *labels = NULL;
    struct err e;

    arena_init(&arena, LIST_ARENA_BYTES);
    if (check_query(call) && read_labels(call, &labels) && read_page(call, &filter, cursor_id)) {
        filter.metadata = labels;
        if (core_sandbox_list(call->core, &filter, &arena, &page, &e) == ERR_OK)
            reply(call, &filter, &page);
        else
            api_fail_err(call, &e);
    }
    json_decref(labels);
}

/* -- by the number of a page ------------------------------------------------------------------- */

/* All that fit are gone through, page by page of core's, to count them. */
static enum err_code collect(struct api_call *call, struct sandbox_filter *f, size_t first,
                             size_t limit, json_t *items, size_t *total, struct err *e)
{
    char id[IDS_SANDBOX_SIZE];
    struct sandbox_page page = {.more = true};
    enum err_code rc = ERR_OK;

    for (f->limit = LIST_STEP; rc == ERR_OK && page.more;) {
        CLEANUP_ARENA struct arena arena;

        arena_init(&arena, LIST_ARENA_BYTES);
        page = (struct sandbox_page){0};
        rc = core_sandbox_list(call->core, f, &arena, &page, e);
        for (size_t i = 0; rc == ERR_OK && i < page.count; i++, (*total)++)
            if (*total >= first && *total < first + limit)
                json_array_append_new(items, daytona_sandbox_json(call, page.items[i], false));
        if (rc != ERR_OK || page.count == 0)
            break;
        f->cursor_ms = page.items[page.count - 1]->started_real_ms;
        memcpy(id, page.items[page.count - 1]->id, sizeof(id));
        f->cursor_id = id;
    }
    return rc;
}

void daytona_sandbox_paginated(struct api_call *call)
{
    struct sandbox_filter filter = {.tenant = call->who.tenant};
    int64_t page = 1, limit = E2B_PAGE_MAX;
    size_t total = 0, later;
    json_t *labels = NULL, *items;
    struct err e;

    if (!check_query(call) || !api_call_query_int(call, "page", 1, DAYTONA_PAGES_MAX, &page) ||
        !api_call_query_int(call, "limit", 1, DAYTONA_PAGE_MAX, &limit) ||
        !read_labels(call, &labels)) {
        json_decref(labels);
        return;
    }
    filter.metadata = labels;
    items = json_array();
    later = add_later(call, labels, false, items);
    if (page > 1)
        json_array_clear(items);
    if (collect(call, &filter, (size_t)((page - 1) * limit), (size_t)limit, items, &total, &e) !=
        ERR_OK)
        api_fail_err(call, &e);
    else
        api_reply_json(call, 200,
                       json_pack("{s:O, s:I, s:I, s:I}", "items", items, "total",
                                 (json_int_t)total + (json_int_t)later, "page", (json_int_t)page,
                                 "totalPages",
                                 (json_int_t)((total + (size_t)limit - 1) / (size_t)limit)));
    json_decref(items);
    json_decref(labels);
}
