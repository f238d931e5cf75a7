#include "egress/flow/oauth.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/util.h"
#include "egress/credential/credential.h"
#include "egress/flow/event_stream.h"
#include "egress/flow/flow.h"
#include "egress/flow/forward.h"
#include "egress/flow/h2_flow.h"
#include "egress/flow/sandbox.h"

#include <jansson.h>
#include <string.h>

static struct credential *find(const struct sandbox *s, const char *name)
{
    /* The sandbox's own: requests to cayd are noted in it. */
    struct credential *c = (struct credential *)credentials_find(s->credentials, name,
                                                                 strlen(name));

    return c && c->kind == CREDENTIAL_OAUTH2 ? c : NULL;
}

static bool has_token(const struct credential *c)
{
    return c->value && clock_real_ms() < c->oauth.end_ms;
}

/* Would a newer one be better? */
static bool is_spent(const struct credential *c)
{
    const struct credential_oauth *o = &c->oauth;
    int64_t early = MIN((int64_t)OAUTH_EARLY_MS, (o->end_ms - o->at_ms) / 10);

    return !c->value || o->rejected || clock_real_ms() >= o->end_ms - early;
}

static bool is_refused(const struct credential_oauth *o)
{
    return o->refused && (o->final || clock_mono_ms() < o->retry_ms);
}

static void request_token(struct sandbox *s, struct credential *c)
{
    uint64_t now = clock_mono_ms();

    if (c->oauth.requested_ms && now - c->oauth.requested_ms < OAUTH_AGAIN_MS)
        return;
    c->oauth.requested_ms = now;
    event_stream_send_renewal(s->egress, s->parent ? s->parent : s,
                              json_pack("{s:s, s:I, s:b}", "credential", c->name, "serial",
                                        (json_int_t)c->oauth.serial, "rejected",
                                        c->oauth.rejected));
}

enum oauth_state oauth_inspect(struct sandbox *s, const char *name, uint64_t waited_ms,
                               struct err *e)
{
    struct credential *c = name ? find(s, name) : NULL;
    bool refused;

    if (!c || !is_spent(c))
        return OAUTH_READY;
    refused = is_refused(&c->oauth);
    if (!refused)
        request_token(s, c);
    /* A token that a server has refused is not used any more, unless there will be no other. */
    if (has_token(c) && (!c->oauth.rejected || refused))
        return OAUTH_READY;
    if (!refused && waited_ms < OAUTH_WAIT_MS)
        return OAUTH_WAITING;
    if (refused)
        err_set(e, c->oauth.final ? ERR_DENIED : ERR_UNAVAILABLE,
                "the credential %s could not be renewed: %s%s", c->name, c->oauth.refused,
                c->oauth.final ? "; its owner has to set it anew" : "");
    else
        err_set(e, ERR_TIMEOUT, "the credential %s was not renewed in %u s", c->name,
                OAUTH_WAIT_MS / 1000);
    return OAUTH_REFUSED;
}

bool oauth_go_on(struct flow *f, uint64_t sweep_number)
{
    if (f->state == FLOW_STREAMS)
        return h2_flow_again(f, sweep_number);
    if (f->state == FLOW_FORWARDED)
        forward_again(f);
    return false;
}
