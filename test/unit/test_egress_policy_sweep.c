/* A policy that changes, and what is open: asked about in slices, before it is worked on, and who changed it is told when it is
 * over. The clock is the test's: it moves by LOOK_NS with each question of the rules, and with nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/util.h"
#include "egress/flow/audit.h"
#include "egress/flow/dial.h"
#include "egress/flow/egress.h"
#include "egress/flow/flow.h"
#include "egress/flow/oauth.h"
#include "egress/flow/policy_sweep.h"
#include "egress/flow/registry.h"
#include "egress/flow/sandbox.h"
#include "egress/flow/target.h"
#include "egress/flow/verdict.h"
#include "egress/tls/turns.h"
#include "policy/policy.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOK_NS   32000u /* of 4,000 names, as measured */
#define SLICE     (TURNS_NS / LOOK_NS + 1)
#define FLOWS     300u
#define TURNS_MAX (2 * POLICY_SWEEP_LATE_TURNS)
#define KEEP      "keep.example.com"
#define LOSE      "lose.example.com"
#define SLOT      7u
#define GEN       3u

static uint64_t now_ns;
static unsigned looks;

struct policy_verdict __real_verdict_flow(const struct flow *f);
struct policy_verdict __wrap_verdict_flow(const struct flow *f);
void __wrap_audit_refusal(struct audit *a, const struct audit_record *r);
bool __wrap_oauth_go_on(struct flow *f, uint64_t look);

/* Requests of a flow (its user) that wait for a credential. */
struct parked {
    unsigned requests;
    uint64_t look;
    unsigned at;    /* in this look */
    unsigned asked; /* in all */
    bool has_come;  /* the credential: they wait no more */
};

struct policy_verdict __wrap_verdict_flow(const struct flow *f)
{
    now_ns += LOOK_NS;
    looks++;
    return __real_verdict_flow(f);
}

void __wrap_audit_refusal(struct audit *a, const struct audit_record *r)
{
}

/* As oauth.c does it: the next of them, which waits on, or not. */
bool __wrap_oauth_go_on(struct flow *f, uint64_t look)
{
    struct parked *p = f->user;

    if (!p || (p->look == look && p->at >= p->requests))
        return false;
    p->at = p->look == look ? p->at + 1 : 1;
    p->look = look;
    p->asked++;
    looks++;
    now_ns += LOOK_NS;
    if (!p->has_come)
        policy_sweep_schedule(f->sandbox);
    return true;
}

static uint64_t test_clock(void)
{
    return now_ns;
}

struct world {
    uv_loop_t loop;
    struct egress egress;
    struct sandbox *s;
};

/* -- the world --------------------------------------------------------------------------------- */

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));

    assert_non_null(w);
    assert_int_equal(uv_loop_init(&w->loop), 0);
    w->egress.loop = &w->loop;
    w->egress.config.shards = 1;
    w->egress.config.flows_max = EGRESS_FLOWS_MAX;
    w->egress.config.connect_timeout_ms = 10000;
    assert_int_equal(registry_new(&w->egress, &w->egress.registry), 0);
    assert_int_equal(dialer_new(&w->egress, &w->egress.dialer), 0);
    assert_int_equal(turns_new(&w->loop, &w->egress.turns), 0);
    now_ns = 100u * TURNS_ALONE_NS;
    turns_set_clock(w->egress.turns, test_clock, test_clock);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;

    registry_free(w->egress.registry);
    turns_free(w->egress.turns);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w->loop), 0);
    free(w->egress.dialer);
    free(w);
    return 0;
}

static struct policy *policy_of(const char *name)
{
    json_t *o = name ? json_pack("{s:s, s:[{s:s, s:[s]}]}", "default", "deny", "rules", "action",
                                 "allow", "domains", name)
                     : json_pack("{s:s}", "default", "allow");
    struct policy *p;
    struct err e;

    assert_int_equal(policy_new(o, &p, &e), ERR_OK);
    json_decref(o);
    return p;
}

/* name: what alone is allowed; NULL: all is. With a command sandbox, if there is a number. */
static void put(struct world *w, const char *name, uint32_t command)
{
    struct sandbox_rules rules = {.id = "i1", .tenant = "one", .policy = policy_of(name)};
    struct err e;

    if (command) {
        rules.n_command_sandboxes = 1;
        rules.command_sandboxes[0] = (struct command_sandbox_rules){.number = command,
                                                                    .policy = policy_of(NULL)};
    }
    assert_int_equal(registry_policy(&w->egress, SLOT, GEN, &rules, &e), ERR_OK);
    w->s = registry_find(&w->egress, SLOT, GEN, 0);
}

static struct flow *open_flow(struct sandbox *s, const char *name)
{
    struct flow *f = flow_new(s, -1);

    assert_non_null(f);
    assert_int_equal(flow_set_target(f, name, NULL, 443), 0);
    f->state = FLOW_SNIFFING;
    return f;
}

static void open_flows(struct sandbox *s)
{
    for (unsigned i = 0; i < FLOWS; i++)
        open_flow(s, i % 2 ? KEEP : LOSE);
}

static unsigned count(const struct sandbox *s, const char *name)
{
    unsigned n = 0;

    for (const struct flow *f = s->flows; f; f = f->next)
        n += strcmp(f->target.name, name) == 0;
    return n;
}

/* A turn of the loop, in which another owner has something to do. How often the rules were asked in it. */
static unsigned turn(struct world *w)
{
    unsigned before = looks;
    uint32_t round = UINT32_MAX;

    assert_true(turns_enter(w->egress.turns, 1, &round));
    turns_exit(w->egress.turns);
    uv_run(&w->loop, UV_RUN_NOWAIT);
    return looks - before;
}

struct told {
    struct policy_waiter waiter;
    unsigned times, lost; /* lose.example.com's connections that were there then */
    bool ended;
    struct sandbox *s;
};

static void on_told(struct policy_waiter *waiter, bool ended)
{
    struct told *t = CONTAINER_OF(waiter, struct told, waiter);

    t->times++;
    t->ended = ended;
    t->lost = ended ? 0 : count(t->s, LOSE);
}

static void await(struct world *w, struct told *t)
{
    *t = (struct told){.waiter.done = on_told, .s = w->s};
    assert_true(policy_sweep_await(w->s, &t->waiter));
}

/* Until t is told. The most questions of one turn. */
static unsigned run_until_told(struct world *w, const struct told *t)
{
    unsigned most = 0, n = 0;

    for (; t->times == 0 && n < TURNS_MAX; n++) {
        unsigned asked = turn(w);

        most = MAX(most, asked);
    }
    assert_int_equal(t->times, 1);
    return most;
}

/* -- tests ------------------------------------------------------------------------------------- */

static void a_change_is_asked_about_in_slices(void **state)
{
    struct world *w = *state;
    struct told told;

    put(w, NULL, 0);
    assert_false(policy_sweep_await(w->s, &told.waiter)); /* nothing is open */
    open_flows(w->s);
    turn(w);
    looks = 0;
    put(w, KEEP, 0);
    assert_in_range(looks, 1, SLICE); /* in the call itself */
    await(w, &told);
    assert_true(count(w->s, LOSE) >
                FLOWS / 2 - SLICE); /* the control: there was something to wait for */
    assert_in_range(run_until_told(w, &told), 1, SLICE);
    assert_int_equal(looks, FLOWS);
    assert_int_equal(told.lost, 0);
    assert_false(told.ended);
    assert_int_equal(count(w->s, KEEP), FLOWS / 2);
    assert_false(policy_sweep_await(w->s, &told.waiter));
}

static void what_moves_is_asked_about_first(void **state)
{
    struct world *w = *state;
    struct flow *kept, *lost;
    struct told told;

    put(w, NULL, 0);
    kept = open_flow(w->s, KEEP);
    lost = open_flow(w->s, LOSE);
    open_flows(w->s); /* they come before these in the sweep */
    turn(w);
    looks = 0;
    assert_int_equal(flow_settle(kept), FLOW_SETTLED);
    assert_int_equal(
        flow_settle(lost),
        FLOW_SETTLED); /* the control: as the rules are, it is allowed, and was asked about */
    assert_int_equal(looks, 0);
    put(w, KEEP, 0);
    looks = 0;
    assert_int_equal(flow_settle(lost), FLOW_ENDED);
    assert_int_equal(flow_settle(kept), FLOW_SETTLED);
    assert_int_equal(flow_settle(kept), FLOW_SETTLED);
    assert_int_equal(looks, 2);
    await(w, &told);
    run_until_told(w, &told);
    assert_in_range(looks, FLOWS + 2 - SLICE, FLOWS + 2); /* none twice */
    assert_int_equal(told.lost, 0);
    assert_int_equal(count(w->s, KEEP), FLOWS / 2 + 1);
}

static void two_changes_at_once(void **state)
{
    struct world *w = *state;
    struct told first, second;

    put(w, NULL, 0);
    open_flows(w->s);
    put(w, NULL, 0); /* the first still allows all */
    await(w, &first);
    for (unsigned i = 0; i < FLOWS / 4; i++)
        turn(w);
    assert_int_equal(first.times, 0);
    assert_int_equal(count(w->s, LOSE), FLOWS / 2);
    looks = 0;
    put(w, KEEP, 0);
    await(w, &second);
    run_until_told(w, &second);
    assert_int_equal(looks, FLOWS); /* those that the first had asked about too */
    assert_int_equal(first.times, 1);
    assert_int_equal(first.lost + second.lost, 0);
    assert_int_equal(count(w->s, KEEP), FLOWS / 2);
}

static void the_sandbox_ends_meanwhile(void **state)
{
    struct world *w = *state;
    struct told told, left;

    put(w, NULL, 0);
    open_flows(w->s);
    put(w, KEEP, 0);
    await(w, &told);
    await(w, &left);
    policy_sweep_leave(w->s, &left.waiter);
    turn(w);
    registry_close(&w->egress, SLOT, GEN, 0);
    assert_int_equal(told.times, 1);
    assert_true(told.ended);
    assert_int_equal(left.times, 0);
    assert_int_equal(turn(w), 0);
    registry_begin_sync(&w->egress); /* so that its generation is not late */
    put(w, NULL, 0);                 /* another sweep, as if nothing had been */
    open_flows(w->s);
    put(w, KEEP, 0);
    await(w, &told);
    run_until_told(w, &told);
    assert_int_equal(told.lost, 0);
}

/* The one that is next, those around it, and all of them. */
static void connections_end_meanwhile(void **state)
{
    struct world *w = *state;
    struct told told;

    put(w, NULL, 0);
    open_flows(w->s);
    put(w, KEEP, 0);
    await(w, &told);
    for (unsigned i = 0; i < 10; i++) {
        assert_non_null(w->s->unsettled);
        flow_end(w->s->unsettled->next);
        flow_end(w->s->unsettled);
        turn(w);
    }
    open_flow(w->s, KEEP);
    run_until_told(w, &told);
    assert_int_equal(told.lost, 0);
    assert_in_range(count(w->s, KEEP), FLOWS / 2 - 9, FLOWS / 2 - 9);
    open_flows(w->s);
    put(w, NULL, 0);
    await(w, &told);
    while (w->s->flows)
        flow_end(w->s->flows);
    run_until_told(w, &told);
}

/* Its own connections take all the time that it has: one question in each turn all the same, and more when that lasts. */
static void an_owner_without_time_is_asked_about_too(void **state)
{
    struct world *w = *state;
    struct told told;
    unsigned n;

    put(w, NULL, 0);
    for (unsigned i = 0; i < 8; i++)
        open_flows(w->s);
    put(w, KEEP, 0);
    await(w, &told);
    for (n = 0; told.times == 0 && n < TURNS_MAX; n++) {
        uint32_t round = UINT32_MAX;
        unsigned asked;

        if (turns_enter(w->egress.turns, registry_owner(w->s), &round)) {
            now_ns += TURNS_OWED_NS;
            turns_exit(w->egress.turns);
        }
        asked = turn(w);
        if (told.times == 0)
            assert_in_range(asked, 1, n < POLICY_SWEEP_LATE_TURNS - 1 ? SLICE : POLICY_SWEEP_LATE);
    }
    assert_int_equal(told.times, 1);
    assert_int_equal(told.lost, 0);
    assert_in_range(n, POLICY_SWEEP_LATE_TURNS,
                    POLICY_SWEEP_LATE_TURNS + 8 * FLOWS / POLICY_SWEEP_LATE);
}

static void commands_of_it_are_asked_about_too(void **state)
{
    struct world *w = *state;
    struct sandbox *command;
    struct told told;

    put(w, NULL, 5);
    command = registry_find(&w->egress, SLOT, GEN, 5);
    open_flows(command);
    open_flow(w->s, KEEP);
    put(w, KEEP, 5); /* the sandbox's rules bound the command's */
    await(w, &told);
    assert_true(count(command, LOSE) > 0);
    run_until_told(w, &told);
    assert_int_equal(count(command, LOSE), 0);
    assert_int_equal(count(command, KEEP), FLOWS / 2);
    assert_int_equal(count(w->s, KEEP), 1);
}

/* -- an end ------------------------------------------------------------------------------------ */

/* A close takes LOOK_NS, too. */
static void on_end(struct flow *f)
{
    now_ns += LOOK_NS;
    looks++;
}

static void open_closing_flows(struct sandbox *s)
{
    open_flows(s);
    for (struct flow *f = s->flows; f; f = f->next)
        f->on_end = on_end;
}

/* cayd sent it before it knew: nothing of the sandbox is made again, as nothing would end that. */
static void a_policy_of_one_that_has_ended_makes_nothing(void **state)
{
    struct world *w = *state;
    struct sandbox_rules rules = {.id = "i1", .tenant = "one", .policy = policy_of(NULL)};
    struct err e;

    put(w, NULL, 0);
    registry_close(&w->egress, SLOT, GEN, 0);
    registry_close(&w->egress, SLOT + 1, GEN, 0); /* it was not known here */
    for (uint32_t slot = SLOT; slot <= SLOT + 1; slot++) {
        assert_int_equal(registry_policy(&w->egress, slot, GEN, &rules, &e), ERR_CONFLICT);
        assert_int_equal(registry_policy(&w->egress, slot, GEN - 1, &rules, &e), ERR_CONFLICT);
        assert_null(registry_find(&w->egress, slot, GEN, 0));
    }
    assert_int_equal(registry_policy(&w->egress, SLOT, GEN + 1, &rules, &e), ERR_OK);
    assert_non_null(registry_find(&w->egress, SLOT, GEN + 1, 0));
    w->s = registry_find(&w->egress, SLOT, GEN + 1, 0);
}

/* Its connections are closed in slices; none of them goes on meanwhile, and its slot is free for the next one. */
static void an_end_closes_in_slices(void **state)
{
    struct world *w = *state;
    struct sandbox *old;
    struct flow *last;
    struct err e;
    struct sandbox_rules rules = {.id = "i2", .tenant = "one", .policy = policy_of(NULL)};

    put(w, NULL, 5);
    old = w->s;
    last = open_flow(old, KEEP); /* the last of the list */
    last->on_end = on_end;
    open_closing_flows(registry_find(&w->egress, SLOT, GEN, 5));
    open_closing_flows(old);
    turn(w);
    looks = 0;
    assert_int_equal(flow_settle(last), FLOW_SETTLED); /* the control */
    registry_close(&w->egress, SLOT, GEN, 5);
    assert_in_range(looks, 1, SLICE);
    assert_null(registry_find(&w->egress, SLOT, GEN, 5));
    registry_close(&w->egress, SLOT, GEN, 0);
    assert_in_range(looks, 1, SLICE);
    assert_null(registry_find(&w->egress, SLOT, GEN, 0));
    assert_int_equal(flow_settle(last), FLOW_ENDED);
    assert_int_equal(registry_policy(&w->egress, SLOT, GEN + 1, &rules, &e), ERR_OK);
    open_flow(registry_find(&w->egress, SLOT, GEN + 1, 0), KEEP);
    for (unsigned i = 0; i < TURNS_MAX && looks < 2 * FLOWS + 1; i++)
        assert_in_range(turn(w), 0, SLICE);
    assert_int_equal(looks, 2 * FLOWS + 1);
    assert_int_equal(turn(w), 0);
    assert_int_equal(count(registry_find(&w->egress, SLOT, GEN + 1, 0), KEEP), 1);
}

static struct sandbox *put_other(struct world *w, uint32_t slot, const char *tenant)
{
    struct sandbox_rules rules = {.id = "i9", .policy = policy_of(NULL)};
    struct err e;

    snprintf(rules.tenant, sizeof(rules.tenant), "%s", tenant);
    assert_int_equal(registry_policy(&w->egress, slot, GEN, &rules, &e), ERR_OK);
    return registry_find(&w->egress, slot, GEN, 0);
}

static unsigned other_ends;

static void on_other_end(struct flow *f)
{
    other_ends++;
}

/* So many turns after its end the other tenant's three connections are closed. */
static unsigned turns_until_other_is_closed(struct world *w, uint32_t slot)
{
    unsigned n = 0;

    other_ends = 0;
    registry_close(&w->egress, slot, GEN, 0);
    for (; other_ends < 3 && n < TURNS_MAX; n++)
        turn(w);
    return n;
}

/* Whatever another tenant's sandboxes had open, however many of them end, and before. */
static void an_end_waits_for_no_other_tenant(void **state)
{
    struct world *w = *state;
    struct sandbox *other;

    for (uint32_t slot = SLOT; slot < SLOT + 3; slot++) /* one tenant's, with many connections */
        open_closing_flows(put_other(w, slot, "one"));
    other = put_other(w, SLOT + 3, "two");
    for (unsigned i = 0; i < 3; i++)
        open_flow(other, KEEP)->on_end = on_other_end;
    turn(w);
    looks = 0;
    for (uint32_t slot = SLOT; slot < SLOT + 3; slot++)
        registry_close(&w->egress, slot, GEN, 0);
    assert_in_range(turns_until_other_is_closed(w, SLOT + 3), 1, 6);
    assert_in_range(looks, 1, FLOWS); /* the control: of the first's there was much left to close */
    for (unsigned i = 0; i < TURNS_MAX && looks < 3 * FLOWS; i++)
        turn(w);
    assert_int_equal(looks, 3 * FLOWS);
}

static unsigned looks_at_other_end;

static void on_sandbox_end(struct flow *f)
{
    looks_at_other_end = looks;
    other_ends++;
}

/* Also one that ended before its sandbox's tenant was known. */
static void a_command_is_closed_before_its_sandbox(void **state)
{
    struct world *w = *state;
    struct sandbox *command;

    put(w, NULL, 5);
    command = registry_find(&w->egress, SLOT, GEN, 5);
    memset(w->s->tenant, 0, sizeof(w->s->tenant));
    open_flow(w->s, KEEP)->on_end = on_sandbox_end;
    open_closing_flows(command);
    open_flows(put_other(w, SLOT + 1, "two"));
    registry_close(&w->egress, SLOT + 1, GEN, 0);
    looks = other_ends = 0;
    registry_close(&w->egress, SLOT, GEN, 5);
    assert_in_range(looks, 0, SLICE); /* the control: it is not closed at once */
    put(w, NULL, 0);
    registry_close(&w->egress, SLOT, GEN, 0);
    for (unsigned i = 0; i < TURNS_MAX && other_ends == 0; i++)
        turn(w);
    assert_int_equal(other_ends, 1);
    assert_int_equal(looks_at_other_end, FLOWS + 1); /* and the change asked about one */
}

/* A command that its sandbox's rules do not name any more: what it has open is over when the change is answered. */
static void a_command_that_is_not_named_is_over(void **state)
{
    struct world *w = *state;
    struct sandbox *command;
    struct told told;

    put(w, NULL, 5);
    command = registry_find(&w->egress, SLOT, GEN, 5);
    command->tcp_fd = 0x7fffffff; /* privd has not told of its end yet */
    open_closing_flows(command);
    put(w, NULL, 0);
    await(w, &told);
    assert_int_equal(flow_settle(command->flows), FLOW_ENDED);
    run_until_told(w, &told);
    assert_null(command->flows);
    assert_false(command->has_policy);
    put(w, NULL, 5); /* it is named again */
    open_flow(command, KEEP);
    assert_int_equal(flow_settle(command->flows), FLOW_SETTLED);
    command->tcp_fd = -1;
}

/* -- a dial ------------------------------------------------------------------------------------ */

static struct dial_result dialed;
static char dialed_by[64];

static void on_dialed(struct egress *eg, uint64_t owner, const struct dial_result *r)
{
    dialed = *r;
    snprintf(dialed_by, sizeof(dialed_by), "%s", r->denied ? r->verdict.name : "");
}

/* A refusal names a rule: of the rules that are in force, or of none. */
static void a_refused_dial_outlives_its_rules(void **state)
{
    struct world *w = *state;
    struct target t = {.port = 443};

    assert_int_equal(policy_address_parse("192.0.2.7", &t.address), 0);
    put(w, KEEP, 0);
    assert_true(dial_start(&w->egress, w->s, &t, 1, on_dialed) > 0);
    uv_run(&w->loop, UV_RUN_ONCE);
    assert_true(dialed.denied); /* the control: nothing changed */
    assert_string_equal(dialed_by, "deny");
    assert_true(dial_start(&w->egress, w->s, &t, 1, on_dialed) > 0);
    put(w, KEEP, 0);
    dialed = (struct dial_result){.fd = 0};
    uv_run(&w->loop, UV_RUN_ONCE);
    assert_false(dialed.denied);
    assert_int_equal(dialed.fd, -1);
    assert_non_null(strstr(dialed.why.text, "the policy has changed"));
}

/* -- requests that wait for a credential -------------------------------------------------------- */

#define PARKED_FLOWS 3u
#define REQUESTS     100u

static void park(struct world *w, struct parked *all)
{
    for (unsigned i = 0; i < PARKED_FLOWS; i++) {
        all[i] = (struct parked){.requests = REQUESTS};
        open_flow(w->s, KEEP)->user = &all[i];
        for (unsigned k = 0; k < 20; k++)
            open_flow(w->s, KEEP);
    }
    policy_sweep_schedule(w->s);
    policy_sweep_schedule(w->s); /* for the other requests */
}

static unsigned asked_of(const struct parked *all)
{
    unsigned n = 0;

    for (unsigned i = 0; i < PARKED_FLOWS; i++)
        n += all[i].asked;
    return n;
}

/* Until so many questions were asked in all; the timer is libuv's. The most of one turn. */
static unsigned run_until_asked(struct world *w, const struct parked *all, unsigned n)
{
    unsigned most = 0;

    for (unsigned i = 0; asked_of(all) < n && i < 20000; i++) {
        unsigned asked = turn(w);

        most = MAX(most, asked);
        if (!asked)
            usleep(500);
    }
    assert_int_equal(asked_of(all), n);
    return most;
}

static void assert_each_asked(const struct parked *all, unsigned times)
{
    for (unsigned i = 0; i < PARKED_FLOWS; i++)
        assert_int_equal(all[i].asked, times * REQUESTS);
}

static void what_waits_for_a_credential_is_looked_at_in_slices(void **state)
{
    struct world *w = *state;
    struct parked all[PARKED_FLOWS];

    put(w, NULL, 0);
    park(w, all);
    looks = 0;
    assert_in_range(run_until_asked(w, all, PARKED_FLOWS * REQUESTS), 1, SLICE);
    assert_each_asked(all, 1);
    assert_int_equal(looks, PARKED_FLOWS * REQUESTS); /* no rule was asked */
    turn(w);
    assert_null(w->s->sweep);
    assert_int_equal(turn(w), 0);
    assert_in_range(run_until_asked(w, all, 2 * PARKED_FLOWS * REQUESTS), 1, SLICE);
    assert_each_asked(all, 2); /* a second later: they wait on */
}

static void a_policy_that_brings_it_looks_once(void **state)
{
    struct world *w = *state;
    struct parked all[PARKED_FLOWS];
    struct told told;

    put(w, NULL, 0);
    park(w, all);
    for (unsigned i = 0; i < PARKED_FLOWS; i++)
        all[i].has_come = true;
    looks = 0;
    put(w, NULL, 0);
    await(w, &told);
    /* of the connection that is asked about last, its first request too */
    assert_in_range(run_until_told(w, &told), 1, SLICE + 1);
    assert_each_asked(all, 1);
    assert_int_equal(looks, PARKED_FLOWS * (REQUESTS + 21)); /* and the rules of each connection */
}

static void a_sandbox_ends_where_requests_wait(void **state)
{
    struct world *w = *state;
    struct parked all[PARKED_FLOWS];

    put(w, NULL, 0);
    park(w, all);
    assert_true(w->s->awaits);
    registry_close(&w->egress, SLOT, GEN, 0); /* before its second is over */
    registry_begin_sync(&w->egress);
    put(w, NULL, 0);
    park(w, all);
    run_until_asked(w, all, REQUESTS / 2); /* and in the middle of a look */
    assert_true(w->s->awaits);
    registry_close(&w->egress, SLOT, GEN, 0);
    usleep(1000 * (POLICY_SWEEP_DELAY_MS + 100));
    looks = 0;
    for (unsigned i = 0; i < FLOWS; i++)
        turn(w);
    assert_int_equal(looks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_change_is_asked_about_in_slices, setup, teardown),
        cmocka_unit_test_setup_teardown(what_moves_is_asked_about_first, setup, teardown),
        cmocka_unit_test_setup_teardown(two_changes_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(the_sandbox_ends_meanwhile, setup, teardown),
        cmocka_unit_test_setup_teardown(a_policy_of_one_that_has_ended_makes_nothing, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(connections_end_meanwhile, setup, teardown),
        cmocka_unit_test_setup_teardown(an_owner_without_time_is_asked_about_too, setup, teardown),
        cmocka_unit_test_setup_teardown(commands_of_it_are_asked_about_too, setup, teardown),
        cmocka_unit_test_setup_teardown(an_end_closes_in_slices, setup, teardown),
        cmocka_unit_test_setup_teardown(an_end_waits_for_no_other_tenant, setup, teardown),
        cmocka_unit_test_setup_teardown(a_command_is_closed_before_its_sandbox, setup, teardown),
        cmocka_unit_test_setup_teardown(a_command_that_is_not_named_is_over, setup, teardown),
        cmocka_unit_test_setup_teardown(a_refused_dial_outlives_its_rules, setup, teardown),
        cmocka_unit_test_setup_teardown(what_waits_for_a_credential_is_looked_at_in_slices, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_policy_that_brings_it_looks_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_sandbox_ends_where_requests_wait, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
