/* Resizes as core sees them: what the tenant is charged meanwhile, two at once, refusals, and ends of privd, of core
 * and of the sandbox in the middle of one. */
#include "base/share.h"
#include "core/core_internal.h"
#include "core/resize.h"
#include "core/sandbox.h"
#include "core/tenant.h"
#include "core_world.h"

#include <string.h>

#define MIB (UINT64_C(1) << 20)

static uint64_t charged(struct world *w)
{
    return w->core->tenants.charged[TENANT_MEMORY_BYTES] / MIB;
}

static uint64_t row(struct world *w)
{
    return (uint64_t)world_query(w, "SELECT memory_bytes FROM sandboxes LIMIT 1") / MIB;
}

static uint64_t has(struct world *w, const char *id)
{
    return fake_limits(w->fake, id).memory_bytes / MIB;
}

static void resize(struct world *w, const char *id, uint64_t mib, struct answer *a)
{
    struct privsep_limits to = {.memory_bytes = mib * MIB};

    core_sandbox_resize(w->core, "default", id, &to, world_on_answer, a);
}

static struct answer resized(struct world *w, const char *id, uint64_t mib)
{
    struct answer a = {0};

    resize(w, id, mib, &a);
    world_run_until(w, &a.calls, 1);
    return a;
}

static const char *settling;
static uint64_t settling_mib;

static bool is_settled(struct world *w)
{
    return has(w, settling) == settling_mib && charged(w) == settling_mib && row(w) == settling_mib;
}

/* By a request of core's own. */
static void settles(struct world *w, const char *id, uint64_t mib)
{
    settling = id;
    settling_mib = mib;
    world_run_until_true(w, is_settled);
}

/* A sandbox whose RESIZE is with privd. */
static void begin_held(struct world *w, const char *id, uint64_t mib, struct answer *a)
{
    fake_set(w->fake, FAKE_HOLD_RESIZES, 1);
    resize(w, id, mib, a);
    world_run_for(w, 20);
    assert_int_equal(a->calls, 0);
}

static void both_are_charged_until_the_answer(void **state)
{
    struct world *w = *state;
    struct answer a = {0}, again, pause = {0};
    char id[IDS_SANDBOX_SIZE];

    world_create_default(w, id);
    begin_held(w, id, 200, &a);
    assert_int_equal(charged(w), 512); /* it has them still */
    assert_int_equal(row(w), 200);
    again = resized(w, id, 300);
    assert_int_equal(again.why.code, ERR_CONFLICT);
    fake_set(w->fake, FAKE_HOLD_RESIZES, 0);
    world_run_until(w, &a.calls, 1);
    assert_true(a.good);
    assert_int_equal(charged(w), 200);
    assert_int_equal(has(w, id), 200);
    begin_held(w, id, 400, memset(&a, 0, sizeof(a)));
    assert_int_equal(charged(w), 400); /* it may have them already */
    core_sandbox_pause(w->core, "default", id, SANDBOX_TIER_FROZEN, world_on_answer, &pause);
    world_run_until(w, &pause.calls, 1);
    assert_true(pause.good);
    fake_set(w->fake, FAKE_HOLD_RESIZES, 0);
    world_run_until(w, &a.calls, 1);
    assert_true(a.good);
    assert_int_equal(row(w), 400);
}

static void what_is_refused_leaves_what_privd_says(void **state)
{
    struct world *w = *state;
    struct answer a;
    char id[IDS_SANDBOX_SIZE];

    world_create_default(w, id);
    fake_set(w->fake, FAKE_FAIL_RESIZES, 1);
    a = resized(w, id, 200);
    assert_int_equal(a.why.code, ERR_CONFLICT);
    assert_non_null(strstr(a.why.text, "12345 bytes of memory"));
    assert_int_equal(charged(w), 512);
    assert_int_equal(row(w), 512);
    fake_set(w->fake, FAKE_KEEP_RESIZES, 1); /* it could not be undone */
    a = resized(w, id, 200);
    assert_int_equal(a.why.code, ERR_TIMEOUT);
    assert_int_equal(charged(w), 200);
    assert_int_equal(row(w), 200);
    assert_int_equal(resized(w, id, 513).why.code, ERR_INVALID); /* [sandbox] */
    assert_int_equal(fake_counts(w->fake).resizes, 2);
}

static void two_at_once_never_exceed_a_quota(void **state)
{
    struct world *w = *state;
    int64_t all[QUOTA_COUNT] = {[QUOTA_MEMORY_BYTES] = 500 * MIB};
    bool given[QUOTA_COUNT] = {[QUOTA_MEMORY_BYTES] = true};
    struct answer a[2] = {0};
    char ids[2][IDS_SANDBOX_SIZE];
    struct err e;

    for (int i = 0; i < 2; i++) {
        world_create_default(w, ids[i]);
        assert_true(resized(w, ids[i], 100).good);
    }
    assert_int_equal(core_tenant_set_quotas(w->core, "default", all, given, &e), ERR_OK);
    for (int i = 0; i < 2; i++)
        resize(w, ids[i], 300, &a[i]);
    for (int i = 0; i < 2; i++)
        world_run_until(w, &a[i].calls, 1);
    assert_true(a[0].good);
    assert_int_equal(a[1].why.code, ERR_EXHAUSTED);
    assert_int_equal(charged(w), 400);
    begin_held(w, ids[0], 50, memset(a, 0, sizeof(a))); /* not free before it is so */
    assert_int_equal(resized(w, ids[1], 250).why.code, ERR_EXHAUSTED);
    fake_set(w->fake, FAKE_HOLD_RESIZES, 0);
    world_run_until(w, &a[0].calls, 1);
    assert_true(resized(w, ids[1], 250).good);
}

/* A privd that ends has not answered; the next one has those of before, and is asked again. */
static void a_privd_that_ends_is_asked_again(void **state)
{
    struct world *w = *state;
    struct answer a = {0};
    char id[IDS_SANDBOX_SIZE];

    world_create_default(w, id);
    begin_held(w, id, 200, &a);
    fake_restart(w->fake, false);
    world_run_until(w, &a.calls, 1);
    assert_false(a.good);
    assert_int_equal(has(w, id), 512);
    fake_set(w->fake, FAKE_HOLD_RESIZES, 0);
    settles(w, id, 200);
}

/* The core that asked has ended: the row says what it wanted. */
static void a_core_that_ends_goes_on_with_it(void **state)
{
    struct world *w = *state;
    struct answer a = {0};
    char id[IDS_SANDBOX_SIZE];

    world_create_default(w, id);
    begin_held(w, id, 200, &a);
    world_stop_core(w);
    assert_int_equal(a.calls, 1);
    assert_int_equal(has(w, id), 512);
    fake_set(w->fake, FAKE_HOLD_RESIZES, 0);
    world_start_core(w);
    settles(w, id, 200);
    memset(&a, 0, sizeof(a));
    begin_held(w, id, 100, &a);
    world_stop_core(w);
    fake_set(w->fake, FAKE_FAIL_RESIZES, 1); /* it uses more by now: it keeps what it has */
    fake_set(w->fake, FAKE_HOLD_RESIZES, 0);
    world_start_core(w);
    settles(w, id, 200);
}

static void a_kill_in_the_middle_answers_both(void **state)
{
    struct world *w = *state;
    struct answer a = {0}, kill = {0};
    char id[IDS_SANDBOX_SIZE];

    world_create_default(w, id);
    begin_held(w, id, 200, &a);
    core_sandbox_kill(w->core, "default", id, world_on_answer, &kill);
    world_run_until_ended(w, id);
    fake_set(w->fake, FAKE_HOLD_RESIZES, 0);
    world_run_until(w, &a.calls, 1);
    assert_false(a.good);
    assert_int_equal(a.why.code, ERR_NOT_FOUND);
    world_run_until(w, &kill.calls, 1);
    assert_int_equal(charged(w), 0);
    assert_int_equal(world_rows(w), 0);
}

/* -- places ------------------------------------------------------------------------------------- */

static void make_of(struct world *w, const char *tenant, char id[static IDS_SANDBOX_SIZE])
{
    struct sandbox_request r = world_request();

    r.tenant = tenant;
    world_create(w, &r, id);
}

static void resize_of(struct world *w, const char *tenant, const char *id, struct answer *a)
{
    struct privsep_limits to = {.memory_bytes = 200 * MIB};

    core_sandbox_resize(w->core, tenant, id, &to, world_on_answer, a);
    world_run_for(w, 5);
}

static void a_tenant_at_its_share_leaves_places(void **state)
{
    enum { SHARE = PRIVSEP_RESIZES_MAX / 2 };
    struct world *w = *state;
    char ids[SHARE + 2][IDS_SANDBOX_SIZE];
    struct answer a[SHARE + 2] = {0}, kill = {0}, again = {0};

    for (int i = 0; i <= SHARE; i++)
        make_of(w, "default", ids[i]);
    make_of(w, "other", ids[SHARE + 1]);
    fake_set(w->fake, FAKE_HOLD_RESIZES, 1);
    for (int i = 0; i <= SHARE; i++)
        resize_of(w, "default", ids[i], &a[i]);
    assert_int_equal(a[SHARE].calls, 1);
    assert_int_equal(a[SHARE].why.code, ERR_EXHAUSTED);
    assert_non_null(strstr(a[SHARE].why.text, "its share"));
    resize_of(w, "other", ids[SHARE + 1], &a[SHARE + 1]);
    assert_int_equal(a[SHARE + 1].calls, 0);
    assert_int_equal(share_held(w->core->resizes, "default", NULL), SHARE);
    assert_int_equal(share_held(w->core->resizes, "other", NULL), 1);
    /* The end of a sandbox gives its place back. */
    core_sandbox_kill(w->core, "default", ids[0], world_on_answer, &kill);
    fake_set(w->fake, FAKE_HOLD_RESIZES, 0);
    for (int i = 0; i < SHARE + 2; i++)
        world_run_until(w, &a[i].calls, 1);
    world_run_until(w, &kill.calls, 1);
    assert_true(a[1].good && a[SHARE - 1].good && a[SHARE + 1].good);
    resize_of(w, "default", ids[SHARE], &again);
    world_run_until(w, &again.calls, 1);
    assert_true(again.good);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD(both_are_charged_until_the_answer),  WORLD(what_is_refused_leaves_what_privd_says),
        WORLD(two_at_once_never_exceed_a_quota),   WORLD(a_privd_that_ends_is_asked_again),
        WORLD(a_core_that_ends_goes_on_with_it),   WORLD(a_kill_in_the_middle_answers_both),
        WORLD(a_tenant_at_its_share_leaves_places)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
