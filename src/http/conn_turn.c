/* A connection's part of the loop's time, where that is shared out (http_server_config.enter):
 * whether it may begin, and the steps put off. */
#include "http/server_internal.h"

bool server_enter(struct http_server *s, uint64_t tag, bool again, uint32_t *round)
{
    if (!tag || !s->config.enter)
        return true;
    s->piece = s->config.enter(s->ctx, tag, again, round);
    return s->piece > 0;
}

bool server_is_over(const struct http_server *s, uint64_t tag)
{
    return tag && s->config.is_over && s->config.is_over(s->ctx);
}

void server_leave(struct http_server *s, uint64_t tag)
{
    if (tag && s->config.enter)
        s->config.leave(s->ctx);
}
