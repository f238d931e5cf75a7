/* Secrets as Daytona's clients see them: one, all by name, and page by page. A page is cut out of
 * all of the tenant's, of which there are few (CREDENTIALS_OF_A_TENANT): they are read by name,
 * filtered by a part of it, then sorted as the client asks. Where a page ends, the cursor says by
 * values of its last one, so that secrets which come and go meanwhile move no other. */
#include "api/daytona_secret.h"

#include "api/daytona.h"
#include "api/daytona_mount.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_DEFAULT 100

/* -- what is answered -------------------------------------------------------------------------- */

json_t *daytona_secret_json(const struct core_credential *k)
{
    const json_t *said = json_object_get(k->metadata, DAYTONA_DESCRIPTION_KEY);
    json_t *hosts = json_object_get(k->bind, "domains");
    json_t *out = json_pack("{s:s, s:s, s:s+, s:o, s:o}", "id", k->name, "name", k->name,
                            "placeholder", DAYTONA_PLACEHOLDER, k->name, "createdAt",
                            api_json_time(k->first_real_ms), "updatedAt",
                            api_json_time(k->made_real_ms));

    json_object_set_new(out, "hosts", hosts ? json_incref(hosts) : json_array());
    if (json_is_string(said))
        json_object_set(out, DAYTONA_DESCRIPTION_KEY, (json_t *)(uintptr_t)said);
    return out;
}

/* -- lists ------------------------------------------------------------------------------------- */

struct listing {
    const char *part; /* of a name; "": any */
    json_t *all;
};

static enum err_code take_listed(void *arg, const struct core_credential *k, struct err *e)
{
    const struct listing *l = arg;

    if (daytona_is_secret(k->bind) && strstr(k->name, l->part))
        json_array_append_new(l->all, daytona_secret_json(k));
    return ERR_OK;
}

/* By name: a new array. NULL: the call was answered. */
static json_t *list_all(struct api_call *call, const char *part)
{
    struct listing l = {.part = part, .all = json_array()};
    struct err e;

    if (core_credential_each(call->core, call->who.tenant, NULL, take_listed, &l, &e) == ERR_OK)
        return l.all;
    json_decref(l.all);
    api_fail_err(call, &e);
    return NULL;
}

void daytona_secret_list(struct api_call *call)
{
    json_t *all = list_all(call, "");

    if (all)
        api_reply_json(call, 200, all);
}

/* How a list by pages is ordered, and behind which item a page begins. A cursor is the item's value
 * of that field and its name, so that it holds when the item is removed. */
struct order {
    const char *field;
    bool falling;
    char cursor[CORE_CREDENTIAL_NAME_MAX * 2 + 2]; /* "": the first page */
};

static const char *text_of(const json_t *item, const char *field)
{
    const char *text = json_string_value(json_object_get(item, field));

    return text ? text : "";
}

/* Times are of one length, so that their texts are in the order of time. */
static int compare(const void *a, const void *b, void *arg)
{
    const json_t *const *x = a, *const *y = b;
    const struct order *o = arg;
    int diff = strcmp(text_of(*x, o->field), text_of(*y, o->field));

    if (diff == 0)
        diff = strcmp(text_of(*x, "name"), text_of(*y, "name"));
    return o->falling ? -diff : diff;
}

static void make_cursor(const struct order *o, const json_t *item, char *out, size_t size)
{
    (void)snprintf(out, size, "%s/%s", text_of(item, o->field), text_of(item, "name"));
}

/* Decodes the cursor to an item to compare with; NULL: it is none of such a list's. */
static json_t *read_cursor(const struct order *o)
{
    const char *slash = strchr(o->cursor, '/');

    if (!slash || slash == o->cursor || !slash[1])
        return NULL;
    return strcmp(o->field, "name") == 0
               ? json_pack("{s:s}", "name", slash + 1)
               : json_pack("{s:s%, s:s}", o->field, o->cursor, (size_t)(slash - o->cursor), "name",
                           slash + 1);
}

static bool read_order(struct api_call *call, struct order *o)
{
    static const char *const fields[] = {"createdAt", "updatedAt", "name"};
    char sort[16], order[8];
    size_t i = 0;

    if (!api_call_query(call, "sort", sort, sizeof(sort)) ||
        !api_call_query(call, "order", order, sizeof(order)) ||
        !api_call_query(call, "cursor", o->cursor, sizeof(o->cursor)))
        return false;
    while (*sort && i < ARRAY_SIZE(fields) && strcmp(sort, fields[i]) != 0)
        i++;
    if (i == ARRAY_SIZE(fields) ||
        (*order && strcmp(order, "asc") != 0 && strcmp(order, "desc") != 0)) {
        api_fail(call, 400,
                 "sort must be createdAt, updatedAt or name, and order must be asc or desc");
        return false;
    }
    o->field = fields[i];
    o->falling = strcmp(order, "asc") != 0;
    return true;
}

/* The page of the sorted items, as it is answered. */
static json_t *page_json(struct order *o, json_t *const *sorted, size_t n, const json_t *after,
                         size_t limit)
{
    json_t *items = json_array(), *next = json_null();
    char cursor[sizeof(o->cursor)];
    size_t i = 0;

    while (after && i < n && compare(&sorted[i], &after, o) <= 0)
        i++;
    for (; i < n && json_array_size(items) < limit; i++)
        json_array_append(items, sorted[i]);
    if (i > 0 && i < n) {
        make_cursor(o, sorted[i - 1], cursor, sizeof(cursor));
        next = json_string(cursor);
    }
    return json_pack("{s:o, s:I, s:o}", "items", items, "total", (json_int_t)n, "nextCursor", next);
}

static void reply_page(struct api_call *call, struct order *o, const json_t *all, size_t limit)
{
    size_t n = json_array_size(all);
    CLEANUP_FREE json_t **sorted = calloc(n + 1, sizeof(json_t *));
    json_t *after = *o->cursor ? read_cursor(o) : NULL;

    if (*o->cursor && !after) {
        api_fail(call, 400, "cursor is none of this list's");
    } else if (!sorted) {
        api_fail(call, 503, "memory is out");
    } else {
        for (size_t i = 0; i < n; i++)
            sorted[i] = json_array_get(all, i);
        qsort_r(sorted, n, sizeof(json_t *), compare, o);
        api_reply_json(call, 200, page_json(o, sorted, n, after, limit));
    }
    json_decref(after);
}

void daytona_secret_paginated(struct api_call *call)
{
    char part[CORE_CREDENTIAL_NAME_MAX + 1];
    int64_t limit = PAGE_DEFAULT;
    struct order o;
    json_t *all;

    if (!read_order(call, &o) || !api_call_query(call, "name", part, sizeof(part)) ||
        !api_call_query_int(call, "limit", 1, DAYTONA_PAGE_MAX, &limit))
        return;
    all = list_all(call, part);
    if (all)
        reply_page(call, &o, all, (size_t)limit);
    json_decref(all);
}
