/* Parts of core while memory is out: texts that it writes for others, what is set aside for calls, and the events that
 * cay-egress tells. */
#include "base/clock.h"
#include "core/core_internal.h"
#include "core/create.h"
#include "core/egress_event_reader.h"
#include "core/egress_policy.h"
#include "core/events_internal.h"
#include "core/exec.h"
#include "core/exec_internal.h"
#include "core/life.h"
#include "core/network.h"
#include "core/sandbox.h"
#include "core/volume_content.h"
#include "core/volume_obj.h"
#include "core_world.h"
#include "failing_malloc.h"
#include "failing_sweep.h"
#include "http/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CALLS_MAX 2000u
#define TENANT    "default"

/* -- texts for others ---------------------------------------------------------------------------- */

static char *write_policy(struct sandbox_obj *o)
{
    struct err e;

    return egress_policy_body(o, &e);
}

/* Everything that can be in both: a policy with a credential of its own, a proxy, a command with a
 * policy, no start command. */
static struct sandbox_obj *with_all(struct world *w)
{
    const struct network_fields f = {.proxy_address = "192.0.2.1:1080", .proxy_user = "u"};
    struct sandbox_obj *o;
    char id[IDS_SANDBOX_SIZE];

    world_create_default(w, id);
    o = registry_find(&w->core->registry, id);
    o->s.policy = json_pack("{s:[s], s:[{s:s}]}", "presets", "github", "inject", "credential", "a");
    o->s.credentials = json_pack("[{s:s, s:{}, s:s}]", "name", "a", "bind", "sealed", "s");
    network_unref(o->s.network);
    o->s.network = network_new(&f);
    o->no_start_command = true;
    if (!o->s.env)
        o->s.env = json_object();
    assert_true(o->s.policy && o->s.credentials && o->s.network && o->s.env);
    assert_true(exec_list_add(o, 1, o->s.policy));
    return o;
}

/* A text that lacks a part is not sent: without its proxy, or a credential, or a command's policy,
 * cay-egress would do another thing than was asked for. */
static void whole_or_not_at_all(struct sandbox_obj *o, char *(*write)(struct sandbox_obj *o))
{
    CLEANUP_FREE char *whole = write(o);
    bool failed = true;
    size_t n = 0;

    assert_non_null(whole);
    while (failed && ++n < CALLS_MAX) {
        CLEANUP_FREE char *text = NULL;

        failing_malloc_begin(n, false);
        text = write(o);
        failed = failing_malloc_end();
        if (text && strlen(text) != strlen(whole)) /* the time is not the same */
            fail_msg("allocation %zu: a part is missing: %s, not %s", n, text, whole);
        assert_true(failed || text);
    }
    print_message("%zu allocations\n", n - 1);
    assert_in_range(n, 10, CALLS_MAX - 1);
}

static void a_text_is_whole_or_none(void **state)
{
    struct sandbox_obj *o = with_all(*state);

    whole_or_not_at_all(o, write_policy);
    whole_or_not_at_all(o, create_make_init);
}

/* The memory ends while many calls are under way: each finds what was set aside for it, and no more begin. */
static void each_call_under_way_has_its_own_blocks(void **state)
{
    enum { CALLS = 200 };
    static void *blocks[CALLS * RESERVE_CALL_BLOCKS];
    struct reserve r = {0};

    (void)state;
    assert_true(reserve_fill(&r));
    for (size_t i = 0; i < CALLS; i++)
        assert_true(reserve_begin(&r));
    failing_malloc_begin(1, true);
    for (size_t i = 0; i < ARRAY_SIZE(blocks); i++)
        blocks[i] = reserve_take(&r, RESERVE_BLOCK_BYTES);
    assert_false(reserve_begin(&r));
    assert_false(reserve_fill(&r));
    assert_int_equal(r.calls, CALLS);
    assert_int_equal(r.n, RESERVE_BLOCKS);
    (void)failing_malloc_end();
    for (size_t i = 0; i < ARRAY_SIZE(blocks); i++)
        free(blocks[i]);
    for (size_t i = 0; i < CALLS; i++)
        reserve_end(&r);
    assert_true(reserve_begin(&r));
    reserve_end(&r);
    assert_int_equal(r.n, RESERVE_BLOCKS); /* blocks for calls are given back */
    reserve_free(&r);
}

/* -- sandboxes whose time is over ---------------------------------------------------------------- */

#define MANY 100u

static void fire_all(struct world *w)
{
    for (size_t i = w->core->registry.n; i > 0; i--) {
        struct sandbox_obj *o = w->core->registry.order[i - 1];

        timers_cancel(&w->core->timers, &o->end);
        o->end.fire(&o->end);
    }
}

static bool all_are_paused(struct world *w)
{
    for (size_t i = 0; i < w->core->registry.n; i++)
        if (sandbox_life(w->core->registry.order[i])->group != LIFE_GROUP_PAUSED ||
            sandbox_life(w->core->registry.order[i])->change != LIFE_CHANGE_NONE)
            return false;
    return true;
}

/* None is lost, and each is paused in the end: tried again where it could not be. */
static void pause_many(struct world *w, enum sandbox_tier tier, bool begun)
{
    struct sandbox_request r = world_request();
    char id[IDS_SANDBOX_SIZE];

    r.on_timeout = SANDBOX_ON_TIMEOUT_PAUSE;
    r.timeout_tier = tier;
    for (unsigned i = 0; i < MANY; i++)
        world_create(w, &r, id);
    for (size_t i = 0; i < MANY; i++) /* as if it were so late */
        w->core->registry.order[i]->s.end_real_ms = clock_real_ms();
    if (begun)
        fire_all(w);
    failing_malloc_begin(1, true);
    if (!begun)
        fire_all(w);
    world_run_for(w, 100);
    assert_true(failing_malloc_end());
    assert_int_equal(w->core->registry.n, MANY);
    world_run_until_true(w, all_are_paused);
    assert_int_equal(w->core->registry.n, MANY);
    assert_int_equal(w->core->reserve.calls, 0);
    while (w->core->registry.n > 0) {
        struct answer a = {0};

        core_sandbox_kill(w->core, TENANT, w->core->registry.order[0]->s.id, world_on_answer, &a);
        world_run_until(w, &a.calls, 1);
    }
}

static void many_may_be_paused_while_memory_is_out(void **state)
{
    static const enum sandbox_tier tiers[] = {SANDBOX_TIER_FROZEN, SANDBOX_TIER_FILES};
    struct world *w = *state;

    for (size_t i = 0; i < ARRAY_SIZE(tiers); i++) {
        pause_many(w, tiers[i], false);
        pause_many(w, tiers[i], true);
    }
}

static void on_volume(void *arg, const struct volume *v, const struct err *why)
{
    struct answer *a = arg;

    a->calls++;
    a->good = v != NULL;
    if (v)
        memcpy(a->id, v->id, sizeof(a->id));
}

/* As many as a tenant may have served at a time. */
static void serve_volumes(struct world *w, const char *tenant)
{
    for (unsigned i = 0; i < VOLUME_SERVERS_MAX; i++) {
        struct answer made = {0}, served = {0};
        char name[16];

        (void)snprintf(name, sizeof(name), "v%u", i);
        core_volume_create(w->core, tenant, name, 4u << 20, on_volume, &made);
        world_run_until(w, &made.calls, 1);
        assert_true(made.good);
        core_volume_serve(w->core, made.id, false, world_on_answer, &served);
        world_run_until(w, &served.calls, 1);
        assert_true(served.good);
    }
}

/* Their contents are not asked for any more: those that serve them end when there is memory. */
static void many_volumes_may_rest_while_memory_is_out(void **state)
{
    static const char *const tenants[] = {"t0", "t1", "t2", "t3", "t4", "t5"};
    struct world *w = *state;

    for (size_t i = 0; i < ARRAY_SIZE(tenants); i++)
        serve_volumes(w, tenants[i]);
    assert_int_equal(w->core->registry.n, ARRAY_SIZE(tenants) * VOLUME_SERVERS_MAX);
    for (unsigned memory = 0; memory < 2; memory++) {
        failing_malloc_begin(!memory, !memory);
        for (struct volume_obj *v = w->core->volumes; v; v = v->next) {
            timers_cancel(&w->core->timers, &v->idle);
            volume_content_on_idle(&v->idle);
        }
        world_run_for(w, 20);
        (void)failing_malloc_end();
    }
    world_run_until_true(w, world_nothing_lives);
}

/* -- events of cay-egress ------------------------------------------------------------------------ */

/* A line that the reader is given, with a follower; and the line after it, when there is memory again. */
struct telling {
    struct world *w;
    struct egress_event_reader reader;
    const char *line, *type, *next;
    int64_t last_id; /* that the follower was told */
    int fd;
};

static void tell(void *arg)
{
    struct telling *t = arg;

    egress_event_reader_take(t->w->core, &t->reader, t->line, strlen(t->line));
}

static void follow(struct telling *t)
{
    const struct core_events_filter from = {.follow = true, .since = t->last_id};
    struct err e;

    assert_int_equal(core_events_follow(t->w->core, TENANT, "e2b_key", &from, &t->fd, &e), ERR_OK);
}

/* Reads all that there is for the follower now, with a NUL. true: its stream has ended. */
static bool read_told(struct telling *t, char *text, size_t max)
{
    size_t len = 0;
    ssize_t n = -1;

    for (unsigned idle = 0; idle < 3 && n != 0; idle = n > 0 ? 0 : idle + 1) {
        n = read(t->fd, text + len, max - 1 - len);
        len += n > 0 ? (size_t)n : 0;
        uv_run(&t->w->loop, UV_RUN_NOWAIT);
    }
    text[len] = '\0';
    return n == 0;
}

static void add_type(struct telling *t, const char *line, char *types, size_t max)
{
    json_t *o = json_load(line, strlen(line));
    const char *type = json_string_value(json_object_get(o, "type"));
    size_t len = strlen(types);

    assert_non_null(type);
    if (strcmp(type, "heartbeat") != 0) {
        t->last_id = json_integer_value(json_object_get(o, "id"));
        (void)snprintf(types + len, max - len, "%s%s ", type,
                       json_object_get(o, "reason") ? "" : " without a reason");
    }
    json_decref(o);
}

/* The types of what the follower was told since. A stream is cut where memory is out; its client goes on from the last
 * id that it has. */
static void types_told(struct telling *t, char *types, size_t max)
{
    static char text[64 * EVENTS_LINE_MAX];
    bool ended;

    types[0] = '\0';
    do {
        ended = read_told(t, text, sizeof(text));
        for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
            add_type(t, line, types, max);
        if (ended) {
            close(t->fd);
            follow(t);
        }
    } while (ended);
}

/* Told whole, or in its place, before the next, that some are lost. */
static bool told_or_lost(void *arg, bool failed)
{
    struct telling *t = arg;
    char types[256], whole[256];
    bool lost;

    egress_event_reader_take(t->w->core, &t->reader, t->next, strlen(t->next));
    types_told(t, types, sizeof(types));
    (void)snprintf(whole, sizeof(whole), "%s %s ", t->type, "violation");
    lost = strcmp(types, "dropped violation ") == 0 && strcmp(types, whole) != 0;
    if (!lost && strcmp(types, whole) != 0)
        fail_msg("the follower was told: %s", types);
    assert_true(failed || !lost);
    return lost;
}

static void line_of(const struct sandbox *s, const char *event, char line[static 512])
{
    (void)snprintf(
        line, 512,
        "{\"event\":\"%s\",\"sandbox\":\"%s\",\"slot\":%u,\"gen\":%u,\"name\":\"a.example\","
        "\"ask\":\"1\",\"reason\":\"no\"}\n",
        event, s->id, s->slot, s->gen);
}

static void an_event_is_told_or_its_lack_is(void **state)
{
    static struct telling t;
    static const char *const events[][2] = {{"denial", "violation"}, {"ask", "ask"}};
    char id[IDS_SANDBOX_SIZE], line[512], next[512], types[256];
    const struct sandbox *s;

    t = (struct telling){.w = *state, .line = line, .next = next};
    world_create_default(t.w, id);
    s = core_sandbox_find(t.w->core, TENANT, id);
    line_of(s, "denial", next);
    for (unsigned i = 0; i < 2 * EVENTS_RING_MAX; i++) /* each takes another's place from now on */
        egress_event_reader_take(t.w->core, &t.reader, next, strlen(next));
    follow(&t);
    do
        types_told(&t, types, sizeof(types));
    while (types[0]);
    for (size_t i = 0; i < ARRAY_SIZE(events); i++) {
        line_of(s, events[i][0], line);
        t.type = events[i][1];
        failing_sweep(&(struct failing_sweep){
            .run = tell, .refused = told_or_lost, .arg = &t, .refused_min = 10});
    }
    close(t.fd);
    uv_run(&t.w->loop, UV_RUN_NOWAIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_call_under_way_has_its_own_blocks),
        WORLD(a_text_is_whole_or_none),
        WORLD(many_may_be_paused_while_memory_is_out),
        WORLD(many_volumes_may_rest_while_memory_is_out),
        WORLD(an_event_is_told_or_its_lack_is),
    };

    failing_malloc_init();
    json_wipe_frees(); /* jansson's calls count as the program's, too */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
