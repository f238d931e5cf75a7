/* A sandbox's end. Its connections may be thousands, and each takes the kernel 0.1 ms to close:
 * they are closed in slices of a turn of the loop, in the sandbox's share of the time (turns.h),
 * and at least one in a turn. Meanwhile it is in no table, has no listeners, and none of its
 * connections goes on (flow_settle).
 *
 * Which sandbox has the next slice goes round by tenant, so that one with many connections, or
 * many sandboxes, holds back the memory and descriptors of its own alone. Tenants are told apart by
 * hash, as in turns.h: there are so many lines. In a line sandboxes end in the order in which they
 * came; a command sandbox is in its sandbox's line, so that it goes before that. */

#include "egress/flow/registry_internal.h"

#include "base/util.h"
#include "egress/credential/credential.h"
#include "egress/flow/audit.h"
#include "egress/flow/egress.h"
#include "egress/flow/flow.h"
#include "egress/flow/names.h"
#include "egress/flow/sandbox.h"
#include "egress/flow/upstream.h"
#include "egress/tls/turns.h"
#include "policy/policy.h"

#include <stdlib.h>
#include <string.h>

void registry_free_rules(struct sandbox *s)
{
    policy_free(s->policy);
    for (size_t i = 0; i < EGRESS_CEILINGS_MAX; i++)
        policy_free(s->ceilings[i]);
    memset(s->ceilings, 0, sizeof(s->ceilings));
    upstream_free(s->upstream);
    credentials_unref(s->credentials);
    free(s->allows);
    s->allows = NULL;
    s->policy = NULL;
    s->upstream = NULL;
    s->credentials = NULL;
}

static void free_sandbox(struct sandbox *s)
{
    for (struct sandbox *r = s->command_sandboxes, *next; r; r = next) {
        next = r->next_command_sandbox;
        free_sandbox(r);
    }
    audit_summary(s->egress->audit, s);
    registry_free_rules(s);
    free(s->answers);
    free(s->h2);
    names_free(s->names);
    free(s->denials);
    free(s);
}

/* -- slices ------------------------------------------------------------------------------------ */

static struct flow *find_open(const struct sandbox *s)
{
    const struct sandbox *r = s->command_sandboxes;

    if (s->flows)
        return s->flows;
    while (r && !r->flows)
        r = r->next_command_sandbox;
    return r ? r->flows : NULL;
}

/* Of its first end; a later one of the same sandbox or of its commands is behind it. */
static unsigned line_of(struct sandbox *s)
{
    struct sandbox *whole = s->parent ? s->parent : s;
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */

    if (whole->ending_line)
        return whole->ending_line - 1u;
    for (const char *c = whole->tenant; *c; c++)
        hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    whole->ending_line = (uint8_t)(1 + (hash ^ hash >> 32) % REGISTRY_ENDING_LINES);
    return whole->ending_line - 1u;
}

/* The next line in which a sandbox waits. There is one. */
static struct ending_line *next_line(struct registry *r)
{
    do
        r->line = (r->line + 1) % REGISTRY_ENDING_LINES;
    while (!r->lines[r->line].first);
    return &r->lines[r->line];
}

/* Of the sandbox that is first in that line. True: all of it is closed, and it is gone. */
static bool close_some(struct registry *r, struct ending_line *line)
{
    struct sandbox *s = line->first;
    struct turns *turns = s->egress->turns;
    uint32_t round = UINT32_MAX; /* it is no flow, and has a part in every round */
    bool entered = turns_enter(turns, registry_owner(s), &round);
    struct flow *f;

    do {
        f = find_open(s);
        if (f)
            flow_reset(f);
    } while (f && entered && !turns_is_over(turns));
    if (entered)
        turns_exit(turns);
    if (f)
        return false;
    line->first = s->next_ending;
    if (!line->first)
        line->last = NULL;
    r->n_ending--;
    free_sandbox(s);
    return true;
}

static void on_slice(uv_prepare_t *h)
{
    struct registry *r = h->data;

    if (r->n_ending > 0)
        (void)close_some(r, next_line(r));
    if (r->n_ending > 0)
        return;
    uv_prepare_stop(&r->slice);
    uv_idle_stop(&r->awake);
}

static void on_awake(uv_idle_t *h)
{
}

void registry_end(struct sandbox *s)
{
    struct registry *r = s->egress->registry;
    struct ending_line *line = &r->lines[line_of(s)];
    bool alone = r->n_ending++ == 0;

    s->over = true;
    s->next_ending = NULL;
    *(line->last ? &line->last->next_ending : &line->first) = s;
    line->last = s;
    if (alone && close_some(r, line))
        return;
    uv_prepare_start(&r->slice, on_slice);
    uv_idle_start(&r->awake, on_awake);
}

/* -- life -------------------------------------------------------------------------------------- */

void registry_ends_init(struct registry *r, struct egress *eg)
{
    uv_prepare_init(eg->loop, &r->slice);
    uv_idle_init(eg->loop, &r->awake);
    r->slice.data = r->awake.data = r;
    r->handles = 2;
}

static void on_closed(uv_handle_t *h)
{
    struct registry *r = h->data;

    if (--r->handles == 0)
        free(r);
}

void registry_end_all(struct registry *r)
{
    while (r->n_ending > 0)
        (void)close_some(r, next_line(r));
}

void registry_ends_free(struct registry *r)
{
    uv_close((uv_handle_t *)&r->slice, on_closed);
    uv_close((uv_handle_t *)&r->awake, on_closed);
}
