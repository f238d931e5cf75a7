/* The stream of events of the tenant's sandboxes. See cay_v1.h. */
#include "api/cay_v1.h"

#include "base/ids.h"
#include "core/events.h"

#include <stdio.h>
#include <string.h>

#define TYPES_SIZE 256                /* all of them, with commas */
#define SINCE_MAX  (INT64_C(1) << 53) /* the most that every reader of JSON can hold */

static void refuse_type(struct api_call *call, const char *name, size_t n)
{
    char known[TYPES_SIZE] = "";

    for (unsigned i = 0; i < EVENT_TYPE_COUNT; i++) {
        size_t used = strlen(known);

        (void)snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "",
                       event_type_name(i));
    }
    api_fail(call, 400, "the query parameter \"type\": there is no \"%.*s\"; known are %s",
             (int)MIN(n, 32u), name, known);
}

/* "a,b" into bits. False: the call was answered. */
static bool read_types(struct api_call *call, unsigned *types)
{
    char text[TYPES_SIZE];

    if (!api_call_query(call, "type", text, sizeof(text)))
        return false;
    for (const char *at = text; *text; at++) {
        size_t n = strcspn(at, ",");
        int type = event_type_from(at, n);

        if (type < 0) {
            refuse_type(call, at, n);
            return false;
        }
        *types |= 1u << type;
        at += n;
        if (!*at)
            break;
    }
    return true;
}

/* True: it is one; false: the call was answered. */
static bool read_filter(struct api_call *call, struct core_events_filter *f,
                        char sandbox[static 64])
{
    int64_t follow = 1;

    if (!api_call_query(call, "sandbox", sandbox, 64) || !read_types(call, &f->types) ||
        !api_call_query_int(call, "since", 0, SINCE_MAX, &f->since) ||
        !api_call_query_int(call, "follow", 0, 1, &follow))
        return false;
    if (*sandbox && !ids_is_sandbox(sandbox)) {
        api_fail(call, 400, "the query parameter \"sandbox\" is no id of a sandbox");
        return false;
    }
    f->sandbox = *sandbox ? sandbox : NULL;
    f->follow = follow == 1;
    return true;
}

void cay_v1_events(struct api_call *call)
{
    struct core_events_filter f = {.since = EVENTS_SINCE_NOW};
    char sandbox[64];
    struct err e;
    int fd;

    if (!read_filter(call, &f, sandbox))
        return;
    if (core_events_follow(call->core, call->who.tenant, call->request->key, &f, &fd, &e) != ERR_OK)
        api_fail_err(call, &e);
    else
        api_reply_stream(call, "application/x-ndjson", fd);
}
