#include "toolbox/call.h"

#include "base/heap.h"
#include "base/share.h"
#include "http/message.h"
#include "http/server.h"
#include "toolbox/reply.h"

#include <errno.h>
#include <string.h>

void toolbox_call_ref(struct toolbox_call *c)
{
    c->refs++;
}

void toolbox_call_unref(struct toolbox_call *c)
{
    bool large = c->large;

    if (--c->refs > 0)
        return;
    *c->prev = c->next;
    if (c->next)
        c->next->prev = c->prev;
    if (c->state_free)
        c->state_free(c->state);
    json_decref(c->body);
    share_return(c->body_share);
    util_close(&c->unused_fd);
    explicit_bzero(c->agent_key, sizeof(c->agent_key));
    explicit_bzero(c->key, strlen(c->key));
    free(c->key);
    access_free(&c->file_url);
    free(c);
    if (large)
        heap_give_back(); /* JSON of it was some times as large, in small blocks */
}

/* -- the query --------------------------------------------------------------------------------- */

bool toolbox_query(struct toolbox_call *c, const char *name, char *out, size_t size)
{
    ssize_t n = http_query_get(http_exchange_head(c->x)->query, name, out, size);

    if (n == -ENOENT)
        out[0] = '\0';
    if (n >= 0 || n == -ENOENT)
        return true;
    toolbox_fail(c, 400, "BAD_REQUEST",
                 "query parameter '%s' is malformed or longer than %zu bytes", name, size - 1);
    return false;
}

bool toolbox_query_path(struct toolbox_call *c, const char *name,
                        char out[static TOOLBOX_PATH_SIZE])
{
    if (!toolbox_query(c, name, out, TOOLBOX_PATH_SIZE))
        return false;
    if (out[0])
        return true;
    toolbox_fail(c, 400, "BAD_REQUEST", "%s is required", name);
    return false;
}
