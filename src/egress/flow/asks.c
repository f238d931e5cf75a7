#include "egress/flow/asks.h"

#include "base/clock.h"
#include "base/ids.h"
#include "base/share.h"
#include "base/util.h"
#include "egress/flow/answers.h"
#include "egress/flow/authority_check.h"
#include "egress/flow/egress.h"
#include "egress/flow/event_stream.h"
#include "egress/flow/flow.h"
#include "egress/flow/sandbox.h"
#include "egress/flow/target.h"
#include "egress/flow/verdict.h"
#include "policy/policy.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <uv.h>

static struct sandbox *whole_of(const struct flow *f)
{
    return f->sandbox->parent ? f->sandbox->parent : f->sandbox;
}

/* -- those that wait --------------------------------------------------------------------------- */

/* From one to the next of a sandbox and its command sandboxes, also when the one has ended. */
static struct flow *first_held(const struct sandbox *whole, const char *id)
{
    const struct sandbox *s = whole;

    for (bool command_sandboxes = false; s;
         s = command_sandboxes ? s->next_command_sandbox : whole->command_sandboxes,
              command_sandboxes = true)
        for (struct flow *f = s->flows; f; f = f->next)
            if (f->state == FLOW_ASKING && (!id || strcmp(f->ask, id) == 0))
                return f;
    return NULL;
}

static size_t count_held(const struct sandbox *s)
{
    size_t n = 0;

    for (const struct flow *f = s->flows; f; f = f->next)
        n += f->state == FLOW_ASKING;
    for (const struct sandbox *r = s->command_sandboxes; r; r = r->next_command_sandbox)
        n += count_held(r);
    return n;
}

/* Finds a flow that waits for the same: they share one question. */
static const struct flow *find_like(const struct flow *f)
{
    for (const struct flow *o = f->sandbox->flows; o; o = o->next)
        if (o->state == FLOW_ASKING && o->target.port == f->target.port &&
            authority_check_same(&o->target, &f->target))
            return o;
    return NULL;
}

void asks_forget(struct flow *f)
{
    share_return(TAKE_PTR(f->ask_share));
    f->ask[0] = '\0';
}

/* It is said in the words of what the client speaks, as of one that is being dialled. */
static void release(struct flow *f)
{
    flow_unwatch(f);
    asks_forget(f);
    f->state = FLOW_DIALING;
}

static void refuse(struct flow *f, const char *why)
{
    char text[INET6_ADDRSTRLEN + 2];

    release(f);
    flow_refuse(f, NULL, "ask", "%.80s port %u: %s", authority_check_text(&f->target, text),
                f->target.port, why);
}

/* The question has its record, whatever came of it. */
static void on_gone(struct flow *f, int events)
{
    char text[INET6_ADDRSTRLEN + 2];

    flow_cut(f, NULL, "ask", "%.80s port %u: its client has ended before its owner answered",
             authority_check_text(&f->target, text), f->target.port);
    flow_end(f);
}

static void on_late(struct flow *f)
{
    refuse(f, "its owner was asked, and did not answer in time");
}

static json_t *describe(const struct flow *f)
{
    char text[INET6_ADDRSTRLEN + 2], until[CLOCK_RFC3339_SIZE];
    uint64_t now = clock_mono_ms(), left = f->ask_end_ms > now ? f->ask_end_ms - now : 0;
    json_t *o;

    clock_format_rfc3339(clock_real_ms() + (int64_t)left, until);
    o = json_pack("{s:s, s:s, s:i, s:s}", "ask", f->ask, "name",
                  authority_check_text(&f->target, text), "port", (int)f->target.port, "until",
                  until);
    if (o && f->sandbox->command)
        json_object_set_new(o, "command", json_integer(f->sandbox->command));
    return o;
}

void asks_hold(struct flow *f)
{
    const struct flow *like = find_like(f);
    struct sandbox *whole = whole_of(f);
    uint64_t now = clock_mono_ms();

    if (count_held(whole) < ASKS_EACH_MAX)
        f->ask_share = share_take(f->egress->ask_shares, whole->tenant, whole->id);
    if (!f->ask_share) {
        refuse(f, "too many connections wait for their owner's answer already");
        return;
    }
    if (like)
        memcpy(f->ask, like->ask, sizeof(f->ask));
    else
        ids_random_text(f->ask, sizeof(f->ask) - 1);
    f->ask_end_ms = like ? like->ask_end_ms : now + ASKS_WAIT_MS;
    f->state = FLOW_ASKING;
    if (!like && !event_stream_ask(f->egress, whole, describe(f)))
        refuse(f, "its owner cannot be asked now");
    else if (flow_watch(f, UV_DISCONNECT, on_gone, MAX(f->ask_end_ms, now + 1) - now, on_late) < 0)
        flow_reset(f);
}

void asks_recheck(struct flow *f)
{
    struct policy_verdict v = verdict_flow(f);

    if (v.action == POLICY_DENY && v.asks)
        return;
    release(f);
    flow_route(f);
}

int asks_take(struct sandbox *s, const char *id, enum asks_answer answer, bool always)
{
    struct flow *f = first_held(s, id);
    int rc = f ? 0 : -ENOENT;

    if (f && always)
        rc = answers_keep(f->sandbox, &f->target, answer == ASKS_YES);
    if (rc < 0)
        return rc;
    for (; f; f = first_held(s, id)) {
        if (answer == ASKS_YES) {
            release(f);
            f->target.granted = f->target.name ? TARGET_BY_NAME : TARGET_BY_ADDRESS;
            flow_route(f);
        } else {
            refuse(f, answer == ASKS_NO ? "its owner was asked, and said no"
                                        : "its owner cannot be asked: no one follows the "
                                          "sandbox's events");
        }
    }
    return 0;
}

static void list_of(const struct sandbox *s, json_t *list)
{
    for (const struct flow *f = s->flows; f; f = f->next) {
        bool known = f->state != FLOW_ASKING;
        json_t *o;
        size_t i;

        json_array_foreach (list, i, o)
            known |= strcmp(json_string_value(json_object_get(o, "ask")), f->ask) == 0;
        if (!known)
            json_array_append_new(list, describe(f));
    }
}

json_t *asks_list(const struct sandbox *s)
{
    json_t *list = json_array();

    list_of(s, list);
    for (const struct sandbox *r = s->command_sandboxes; r; r = r->next_command_sandbox)
        list_of(r, list);
    return json_pack("{s:o}", "asks", list);
}
