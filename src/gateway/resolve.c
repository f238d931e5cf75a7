/* The steps of a query: the sandbox is found (resolve_find.c); the right is checked (access.c) for
 * its agent or its port; one that is paused is resumed first where its owner allows that, and
 * checked again afterwards; then a socket in its network is fetched, unless the requester has one.
 * done is called once, with the answer or the refusal. Runs on the control loop alone. */

#include "gateway/resolve.h"

#include "base/clock.h"
#include "core/ingress.h"
#include "core/life.h"
#include "core/signed_end.h"
#include "gateway/resolve_internal.h"

#include <stdio.h>
#include <string.h>

struct gateway_resolver *gateway_resolver_new(struct core *core)
{
    struct gateway_resolver *r = calloc(1, sizeof(*r));

    if (r)
        r->core = core;
    return r;
}

void gateway_resolver_free(struct gateway_resolver *r)
{
    free(r);
}

/* -- may it ------------------------------------------------------------------------------------ */

static bool admit_agent(struct gateway_resolver *r, const struct gateway_query *q,
                        const struct sandbox *s, struct gateway_answer *a)
{
    char token[CORE_TOKEN_SIZE + 1], message[ACCESS_MESSAGE_SIZE];

    /* The key or the URL's signature was looked at. */
    if (q->kind == ROUTE_KEYED || q->kind == ROUTE_FILE_URL)
        return true;
    a->anonymous = !s->secure || q->access.exempt;
    if (!s->secure)
        return true;
    core_sandbox_token(r->core, s->id, token);
    if (access_check_agent(&q->access, token, clock_real_ms() / 1000, message))
        return true;
    resolve_refuse(a, 401, false, message);
    return false;
}

/* Whether it was ended is asked only of one that is right: a forged one reads no table. */
static bool check_signed(struct gateway_resolver *r, const struct gateway_query *q,
                         const struct sandbox *s, const char *token,
                         char message[static ACCESS_MESSAGE_SIZE])
{
    if (!access_check_signed(&q->access, token, q->port, clock_real_ms() / 1000, message))
        return false;
    if (!core_signed_has_ended(r->core, s->id, q->access.signed_until))
        return true;
    snprintf(message, ACCESS_MESSAGE_SIZE,
             "the signed address was ended by its owner: ask for a new one");
    return false;
}

static bool admit_port(struct gateway_resolver *r, const struct gateway_query *q,
                       const struct sandbox *s, struct gateway_answer *a)
{
    char token[CORE_TOKEN_SIZE + 1], message[ACCESS_MESSAGE_SIZE];
    bool is_signed = q->access.signed_until[0] != '\0';
    bool is_public = ingress_is_public(s->network) && !is_signed;

    a->anonymous = is_public && !q->access.traffic[0];
    if (a->anonymous)
        return true;
    core_sandbox_token(r->core, s->id, token);
    if (is_public) {
        a->anonymous = !access_check_traffic(&q->access, token, message);
        return true;
    }
    if (is_signed ? check_signed(r, q, s, token, message)
                  : access_check_traffic(&q->access, token, message))
        return true;
    resolve_refuse(a, 403, true, message);
    return false;
}

/* -- one that is paused ------------------------------------------------------------------------ */

/* A request that waits for its sandbox to be resumed. q stays until done was called. */
struct resuming {
    struct gateway_resolver *resolver;
    const struct gateway_query *q;
    struct gateway_answer answer;
    gateway_resolved done;
    void *arg;
};

static void go_on(struct gateway_resolver *r, const struct gateway_query *q,
                  const struct sandbox *s, struct gateway_answer *a, gateway_resolved done,
                  void *arg);

/* The agent's /health resumes nothing, with a token or without: a client that looks whether a
 * sandbox runs is not to keep it running, and E2B's SDKs look each time that a stream has ended, as
 * it does by the pause itself. */
static bool may_resume(const struct gateway_query *q, const struct sandbox *s)
{
    if (life_of(s->state)->change == LIFE_CHANGE_RESUME)
        return true;
    if (!s->auto_resume || !core_sandbox_has_memory(s))
        return false;
    return q->port != AGENT_PORT || !q->access.exempt;
}

static void on_resumed(void *arg, const struct sandbox *s, const struct err *why)
{
    struct resuming w = *(struct resuming *)arg;
    struct gateway_answer *a = &w.answer;

    free(arg);
    core_call_end(w.resolver->core);
    if (s && life_of(s->state)->reachable) {
        core_sandbox_used(w.resolver->core, s->id);
        go_on(w.resolver, w.q, s, a, w.done, w.arg);
        return;
    }
    if (why && why->code == ERR_NOT_FOUND)
        resolve_refuse(a, 502, true, "The sandbox was not found");
    else
        resolve_refuse(a, why && why->code == ERR_TIMEOUT ? 504 : 503, true,
                       why ? why->text : "the sandbox was paused again; try again");
    w.done(w.arg, a);
}

static void resume(struct gateway_resolver *r, const struct gateway_query *q,
                   const struct sandbox *s, struct gateway_answer *a, gateway_resolved done,
                   void *arg)
{
    struct resuming *w = calloc(1, sizeof(*w));

    if (!w || !core_call_begin(r->core)) {
        free(w);
        resolve_refuse(a, 503, true, "no memory to resume the sandbox");
        done(arg, a);
        return;
    }
    *w = (struct resuming){r, q, *a, done, arg};
    core_sandbox_resume(r->core, NULL, s->id, 0, false, on_resumed, w);
}

/* In the words of Daytona's clients. The first 123 bytes must do: of a terminal's WebSocket some
 * show no more. */
static void refuse_keyed(const struct sandbox *s, struct gateway_answer *a)
{
    if (!core_sandbox_has_memory(s))
        resolve_refuse(
            a, 502, true,
            "the sandbox is stopped: its files are kept, and nothing runs in it; start it first "
            "(the SDK's start(), or `cay resume`)");
    else
        resolve_refuse(a, 502, true,
                       "the sandbox is paused: its programs stand still; start it first (the SDK's "
                       "start(), or `cay resume`)");
}

static void resume_first(struct gateway_resolver *r, const struct gateway_query *q,
                         const struct sandbox *s, struct gateway_answer *a, gateway_resolved done,
                         void *arg)
{
    if (may_resume(q, s)) {
        resume(r, q, s, a, done, arg);
        return;
    }
    /* Also while it is just being paused: 502 is what clients take for "does not run". */
    if (q->kind == ROUTE_KEYED || q->kind == ROUTE_FILE_URL)
        refuse_keyed(s, a);
    else if (!core_sandbox_has_memory(s))
        resolve_refuse(a, 502, true,
                       "The sandbox is paused with its files alone; connect to it (`cay resume`, "
                       "Daytona's start) to start it on them");
    else if (s->auto_resume)
        resolve_refuse(a, 502, true,
                       "The sandbox is paused; a request with its token resumes it, but not "
                       "/health");
    else
        resolve_refuse(a, 502, true,
                       "The sandbox is paused; connect to it (`cay resume`) to resume it");
    done(arg, a);
}

/* -- the whole --------------------------------------------------------------------------------- */

/* It runs, and the request may reach it. */
static void go_on(struct gateway_resolver *r, const struct gateway_query *q,
                  const struct sandbox *s, struct gateway_answer *a, gateway_resolved done,
                  void *arg)
{
    bool agent = q->port == AGENT_PORT;

    a->slot = s->slot;
    a->gen = s->gen;
    memcpy(a->agent_key, s->agent_key, sizeof(a->agent_key));
    if (!agent && !ingress_masked_host(s->network, q->port, a->host, sizeof(a->host)))
        a->host[0] = '\0';
    if (agent && q->idle_gen && q->idle_gen == s->gen)
        done(arg, a);
    else
        resolve_socket(r, a, done, arg);
}

void gateway_resolve(struct gateway_resolver *r, const struct gateway_query *q,
                     gateway_resolved done, void *arg)
{
    struct gateway_answer a = {.port = q->port, .fd = -1};
    bool agent = q->port == AGENT_PORT;
    const struct sandbox *s;

    snprintf(a.id, sizeof(a.id), "%s", q->id);
    if (q->kind == ROUTE_VOLUME) {
        resolve_volume(r, q, &a, done, arg);
        return;
    }
    s = resolve_find(r, q, &a);
    if (s && agent && q->internal_path) {
        resolve_refuse(&a, 404, false, "there is no such path on the agent's port");
        s = NULL;
    }
    if (!s || !(agent ? admit_agent(r, q, s, &a) : admit_port(r, q, s, &a))) {
        done(arg, &a);
        return;
    }
    memcpy(a.id, s->id, sizeof(a.id));
    (void)snprintf(a.tenant, sizeof(a.tenant), "%s", s->tenant);
    /* Neither a refused request nor one that is answered without a token counts as use of the
     * sandbox. */
    if (life_of(s->state)->reachable && !(agent && q->access.exempt))
        core_sandbox_used(r->core, s->id);
    if (life_of(s->state)->wakes)
        resume_first(r, q, s, &a, done, arg);
    else
        go_on(r, q, s, &a, done, arg);
}
