#include "gateway/conn_share.h"

#include "core/core.h"
#include "http/json.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define ANONYMOUS "|anonymous" /* behind the tenant's name, which has no bar */

const char conn_share_refusal[] =
    "as many requests, streams and terminals are open at once as this tenant's or this sandbox's "
    "share of the server's connections: end some of them, or try again later";

struct share_pool *conn_share_pool_new(size_t connections)
{
    size_t shares = connections - connections / CONN_SHARE_FREE;

    return share_pool_new(shares);
}

static void give_back(void *owner)
{
    share_return(owner);
}

/* The two accounts of a tenant have less than half of the shares together; that of strangers alone
 * a third, so that the tenant's own calls find some. */
static bool both_fit(const struct share_pool *pool, const char *tenant, const char *strangers,
                     bool for_strangers)
{
    size_t theirs = share_held(pool, strangers, NULL);

    return share_has_more_than(pool,
                               share_held(pool, tenant, NULL) + (for_strangers ? 2 : 1) * theirs);
}

bool conn_share_take(struct share_pool *pool, struct http_exchange *x, const char *tenant,
                     const char *sandbox, bool is_stranger)
{
    char strangers[CORE_TENANT_SIZE + sizeof(ANONYMOUS)];
    struct share *share = NULL;

    if (http_exchange_is_owned(x))
        return true;
    (void)snprintf(strangers, sizeof(strangers), "%s" ANONYMOUS, tenant);
    if (both_fit(pool, tenant, strangers, is_stranger))
        share = share_take(pool, is_stranger ? strangers : tenant, sandbox);
    if (share)
        http_exchange_own(x, share, give_back);
    return share != NULL;
}

void conn_share_refuse(struct http_exchange *x)
{
    static const struct http_header headers[] = {
        {"Content-Type", "application/json"},
        {"Access-Control-Allow-Origin", "*"},
        {"Retry-After", "1"},
        {"Should-Retry", "true"}, /* E2B's SDKs from 2.61 on go by it */
    };
    json_t *body = json_pack("{s:i, s:s}", "code", 429, "message", conn_share_refusal);
    CLEANUP_FREE char *text = json_text(body, JSON_COMPACT);

    json_decref(body);
    http_respond(x, 429, headers, ARRAY_SIZE(headers), text, text ? strlen(text) : 0);
}
