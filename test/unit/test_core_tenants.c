/* Units of src/core: the object of a tenant, what is charged to it while its sandboxes live, that
 * all of it is given back, and what it remembers of the store. */
#include "base/clock.h"
#include "core/build.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/create_later.h"
#include "core/events.h"
#include "core/key.h"
#include "core/store_internal.h"
#include "core/store_quota.h"
#include "core/tenant.h"
#include "core_world.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

static uint64_t held(struct world *w, enum tenant_resource what)
{
    return tenant_held(w->core, "default", what);
}

static const struct privsep_limits *limits_of(struct world *w, const char *id)
{
    return &core_sandbox_find(w->core, NULL, id)->limits;
}

static void assert_nothing_is_held(struct world *w)
{
    for (int i = 0; i < TENANT_RESOURCE_COUNT; i++) {
        assert_int_equal(held(w, (enum tenant_resource)i), 0);
        assert_int_equal(w->core->tenants.charged[i], 0);
    }
}

static void kill_one(struct world *w, const char *id)
{
    struct answer a = {0};

    core_sandbox_kill(w->core, NULL, id, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    assert_true(a.good);
}

static void an_object_is_one_for_each_name_and_goes_with_its_last_reference(void **state)
{
    struct world *w = *state;
    struct tenant *a = tenant_get(w->core, "a"), *b = tenant_get(w->core, "b");

    assert_ptr_not_equal(a, b);
    assert_ptr_equal(tenant_get(w->core, "a"), a);
    tenant_unref(a);
    assert_ptr_equal(tenant_find(w->core, "a"), a);
    tenant_unref(a);
    assert_null(tenant_find(w->core, "a"));
    tenant_unref(b);
    assert_null(tenant_find(w->core, "b"));
}

static void a_charge_is_refunded_once_and_by_its_amount(void **state)
{
    struct world *w = *state;
    struct tenant *t = tenant_get(w->core, "default");
    struct tenant_charge one = {0}, two = {0}, none = {0};

    tenant_charge(t, TENANT_AUDITS, 1500, &one);
    tenant_charge(t, TENANT_AUDITS, 500, &two);
    tenant_charge(t, TENANT_AUDITS, 0, &none);
    tenant_unref(t); /* the charges hold it */
    assert_int_equal(held(w, TENANT_AUDITS), 2000);
    assert_int_equal(w->core->tenants.charged[TENANT_AUDITS], 2000);
    tenant_recharge(t, TENANT_AUDITS, 250, &two);
    assert_int_equal(held(w, TENANT_AUDITS), 1750);
    tenant_refund(&one);
    tenant_refund(&one);
    tenant_refund(&none);
    assert_int_equal(held(w, TENANT_AUDITS), 250);
    tenant_refund(&two);
    assert_null(tenant_find(w->core, "default"));
    assert_nothing_is_held(w);
}

/* Ends the program's core with one charge that is not refunded, if leak. */
static int status_of_an_end(struct world *w, bool leak)
{
    static struct tenant_charge charge;
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        const struct rlimit none = {0, 0};
        struct tenants all = {0};

        setrlimit(RLIMIT_CORE, &none);
        signal(SIGABRT, SIG_DFL); /* cmocka's would go on with the next test */
        close(STDERR_FILENO);
        if (leak)
            tenant_charge(tenant_get(w->core, "default"), TENANT_AUDITS, 1, &charge);
        memcpy(&all, &w->core->tenants, sizeof(all));
        tenants_free(&all);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void a_charge_that_is_not_refunded_ends_the_program(void **state)
{
    struct world *w = *state;
    int status = status_of_an_end(w, true);

    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    status = status_of_an_end(w, false);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void a_sandbox_is_charged_as_its_state_says(void **state)
{
    struct world *w = *state;
    struct answer a = {0};
    char id[IDS_SANDBOX_SIZE], other[IDS_SANDBOX_SIZE];

    world_create_default(w, id);
    world_create_default(w, other);
    assert_int_equal(held(w, TENANT_SANDBOXES), 2);
    assert_int_equal(held(w, TENANT_PAUSED), 0);
    assert_int_equal(held(w, TENANT_CPU_MILLI), 2 * limits_of(w, id)->cpu_milli);
    assert_int_equal(held(w, TENANT_MEMORY_BYTES), 2 * limits_of(w, id)->memory_bytes);
    assert_int_equal(held(w, TENANT_DISK_BYTES), 2 * limits_of(w, id)->disk_bytes);
    core_sandbox_pause(w->core, NULL, id, SANDBOX_TIER_FROZEN, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    assert_true(a.good);
    assert_int_equal(held(w, TENANT_SANDBOXES), 2);
    assert_int_equal(held(w, TENANT_PAUSED), 1);
    world_stop_core(w);
    world_start_core(w);
    assert_int_equal(held(w, TENANT_SANDBOXES), 2);
    assert_int_equal(held(w, TENANT_PAUSED), 1);
    kill_one(w, id);
    kill_one(w, other);
    assert_nothing_is_held(w);
}

static void a_create_that_fails_holds_nothing(void **state)
{
    struct world *w = *state;
    struct sandbox_request r = world_request();

    r.template_name = "nowhere";
    world_create_fails(w, &r);
    assert_nothing_is_held(w);
    assert_null(tenant_find(w->core, "default"));
}

static void free_owner(void *owner)
{
    ++*(unsigned *)owner;
}

/* As many builds and creates that wait for one as a tenant may have; each is charged to it alone. */
static void builds_and_creates_that_wait_are_charged_until_they_are_gone(void **state)
{
    const struct core_build_request r = {.tenant = "alice", .name = "mine"};
    const struct sandbox_request wish = {.tenant = "alice"};
    const struct core_create_later *l = NULL;
    const struct build *b = NULL;
    struct world *w = *state;
    unsigned freed = 0;
    struct err e;

    assert_int_equal(core_build_new(w->core, &r, &b, &e), ERR_OK);
    for (unsigned i = 1; i <= CORE_LATER_OF_A_TENANT; i++) {
        assert_int_equal(core_create_later(w->core, &wish, b, &freed, free_owner, &l, &e), ERR_OK);
        assert_int_equal(tenant_held(w->core, "alice", TENANT_LATER), i);
    }
    assert_int_equal(core_create_later(w->core, &wish, b, &freed, free_owner, &l, &e),
                     ERR_EXHAUSTED);
    core_later_drop(w->core, l);
    assert_int_equal(freed, 1);
    assert_int_equal(tenant_held(w->core, "alice", TENANT_LATER), CORE_LATER_OF_A_TENANT - 1);
    for (unsigned i = 1; i <= CORE_BUILDS_OF_A_TENANT; i++) {
        assert_int_equal(tenant_held(w->core, "alice", TENANT_BUILDS), i);
        assert_int_equal(core_build_new(w->core, &r, &b, &e), ERR_OK);
    }
    assert_int_equal(w->core->tenants.charged[TENANT_BUILDS], CORE_BUILDS_OF_A_TENANT);
    assert_int_equal(tenant_held(w->core, "default", TENANT_BUILDS), 0);
}

static void a_follower_is_charged_until_it_ends(void **state)
{
    struct world *w = *state;
    struct core_events_filter all = {.follow = true};
    char key[CORE_TOKEN_SIZE], id[CORE_KEY_ID_SIZE];
    struct err e;
    int fd;

    assert_int_equal(world_key(w, "default", "", key, &e), ERR_OK);
    core_key_id(key, id);
    assert_int_equal(core_events_follow(w->core, "default", key, &all, &fd, &e), ERR_OK);
    assert_int_equal(held(w, TENANT_FOLLOWERS), 1);
    assert_int_equal(world_revoke(w, NULL, id, &e), ERR_OK);
    assert_int_equal(held(w, TENANT_FOLLOWERS), 0);
    close(fd);
}

/* -- quotas ------------------------------------------------------------------------------------ */

static void set_quota(struct world *w, enum quota q, int64_t most)
{
    int64_t all[QUOTA_COUNT] = {0};
    bool given[QUOTA_COUNT] = {false};
    struct err e;

    all[q] = most;
    given[q] = true;
    assert_int_equal(core_tenant_set_quotas(w->core, "default", all, given, &e), ERR_OK);
}

static struct core_quotas quotas(struct world *w)
{
    struct core_quotas q;
    struct err e;

    assert_int_equal(core_tenant_quotas(w->core, "default", &q, &e), ERR_OK);
    return q;
}

/* All asked for in one turn of the loop; how many came to be. */
static unsigned create_at_once(struct world *w, unsigned n, struct answer *answers)
{
    struct sandbox_request r = world_request();
    unsigned good = 0;

    for (unsigned i = 0; i < n; i++)
        core_sandbox_create(w->core, &r, world_on_answer, &answers[i]);
    for (unsigned i = 0; i < n; i++) {
        world_run_until(w, &answers[i].calls, 1);
        good += answers[i].good;
    }
    return good;
}

static void creates_at_once_never_exceed_a_quota(void **state)
{
    struct world *w = *state;
    struct answer answers[16] = {0};
    char id[IDS_SANDBOX_SIZE];
    uint64_t memory;

    world_create_default(w, id);
    world_create_default(w, id);
    set_quota(w, QUOTA_SANDBOXES, 3);
    assert_int_equal(create_at_once(w, 16, answers), 1);
    assert_int_equal(held(w, TENANT_SANDBOXES), 3);
    for (unsigned i = 0; i < 16; i++) {
        if (answers[i].good)
            continue;
        assert_int_equal(answers[i].why.code, ERR_EXHAUSTED);
        assert_non_null(strstr(answers[i].why.text, "the quota sandboxes of tenant default is 3"));
        assert_non_null(strstr(answers[i].why.hint, "cay tenant quota default sandboxes="));
    }
    /* Room again as soon as one is gone, and none for two. */
    kill_one(w, id);
    memset(answers, 0, sizeof(answers));
    assert_int_equal(create_at_once(w, 16, answers), 1);
    set_quota(w, QUOTA_SANDBOXES, QUOTA_NONE);
    memory = held(w, TENANT_MEMORY_BYTES) / 3;
    set_quota(w, QUOTA_MEMORY_BYTES, (int64_t)(memory * 5 + memory / 2));
    memset(answers, 0, sizeof(answers));
    assert_int_equal(create_at_once(w, 16, answers), 2);
    assert_int_equal(held(w, TENANT_MEMORY_BYTES), 5 * memory);
}

static void creates_per_minute_are_counted_whatever_becomes_of_them(void **state)
{
    struct world *w = *state;
    struct answer answers[8] = {0};
    struct sandbox_request r = world_request();

    set_quota(w, QUOTA_CREATED_PER_MINUTE, 3);
    r.template_name = "nowhere"; /* refused before it is one */
    world_create_fails(w, &r);
    assert_int_equal(quotas(w).used[QUOTA_CREATED_PER_MINUTE], 0);
    assert_int_equal(create_at_once(w, 8, answers), 3);
    for (unsigned i = 0; i < 8; i++)
        if (answers[i].good)
            kill_one(w, answers[i].id);
    assert_int_equal(held(w, TENANT_SANDBOXES), 0);
    assert_int_equal(quotas(w).used[QUOTA_CREATED_PER_MINUTE], 3);
    memset(answers, 0, sizeof(answers));
    assert_int_equal(create_at_once(w, 8, answers), 0);
    assert_non_null(strstr(answers[0].why.text, "createdPerMinute"));
}

static void a_rate_is_of_the_last_minute(void **state)
{
    struct quota_rate r = {.sum = 0};

    for (int i = 0; i < 5; i++)
        quota_rate_add(&r, 1000);
    quota_rate_add(&r, 1030);
    assert_int_equal(quota_rate_sum(&r, 1030), 6);
    assert_int_equal(quota_rate_sum(&r, 1060), 6); /* 60 s may have gone by, or 59.1 */
    assert_int_equal(quota_rate_sum(&r, 1061), 1);
    assert_int_equal(quota_rate_sum(&r, 1090), 1);
    assert_int_equal(quota_rate_sum(&r, 1091), 0);
    quota_rate_add(&r, 1091);
    assert_int_equal(quota_rate_sum(&r, 1000), 1); /* a clock that goes back forgets nothing */
    assert_int_equal(quota_rate_sum(&r, 900000), 0);
}

static void a_quota_of_zero_permits_none_and_survives_a_restart(void **state)
{
    struct world *w = *state;
    struct answer answers[1] = {0}, paused = {0};
    char id[IDS_SANDBOX_SIZE];

    world_create_default(w, id);
    set_quota(w, QUOTA_SANDBOXES, 0);
    set_quota(w, QUOTA_PAUSED, 0);
    world_stop_core(w);
    world_start_core(w);
    assert_int_equal(quotas(w).most[QUOTA_SANDBOXES], 0);
    assert_int_equal(quotas(w).used[QUOTA_SANDBOXES], 1); /* the one there stays */
    assert_int_equal(quotas(w).most[QUOTA_CPU_MILLI], QUOTA_NONE);
    assert_int_equal(create_at_once(w, 1, answers), 0);
    core_sandbox_pause(w->core, NULL, id, SANDBOX_TIER_FROZEN, world_on_answer, &paused);
    world_run_until(w, &paused.calls, 1);
    assert_int_equal(paused.why.code, ERR_EXHAUSTED);
    assert_non_null(strstr(paused.why.text, "the quota paused"));
    set_quota(w, QUOTA_PAUSED, 1);
    paused.calls = 0;
    core_sandbox_pause(w->core, NULL, id, SANDBOX_TIER_FROZEN, world_on_answer, &paused);
    world_run_until(w, &paused.calls, 1);
    assert_true(paused.good);
    kill_one(w, id);
}

/* The place of one that is being resumed is not another's: it may be paused again. */
static void a_pause_that_waits_for_a_resume_does_not_exceed_a_quota(void **state)
{
    struct world *w = *state;
    struct answer paused = {0}, resumed = {0}, other = {0}, again = {0};
    char a[IDS_SANDBOX_SIZE], b[IDS_SANDBOX_SIZE];

    world_create_default(w, a);
    world_create_default(w, b);
    set_quota(w, QUOTA_PAUSED, 1);
    core_sandbox_pause(w->core, NULL, a, SANDBOX_TIER_FROZEN, world_on_answer, &paused);
    world_run_until(w, &paused.calls, 1);
    assert_true(paused.good);
    for (int permitted = 1; permitted >= 0; permitted--) {
        memset(&resumed, 0, sizeof(resumed));
        memset(&other, 0, sizeof(other));
        memset(&again, 0, sizeof(again));
        fake_set(w->fake, FAKE_HOLD_THAWS, 1);
        core_sandbox_resume(w->core, NULL, a, 0, false, world_on_answer, &resumed);
        core_sandbox_pause(w->core, NULL, b, SANDBOX_TIER_FROZEN, world_on_answer, &other);
        core_sandbox_pause(w->core, NULL, a, SANDBOX_TIER_FROZEN, world_on_answer, &again);
        set_quota(w, QUOTA_PAUSED, permitted);
        fake_set(w->fake, FAKE_HOLD_THAWS, 0);
        world_run_until(w, &other.calls, 1);
        world_run_until(w, &again.calls, 1);
        assert_true(resumed.good);
        assert_int_equal(other.why.code, ERR_EXHAUSTED);
        assert_int_equal(again.why.code, permitted ? ERR_OK : ERR_EXHAUSTED);
        assert_int_equal(held(w, TENANT_PAUSED), permitted);
    }
    kill_one(w, a);
    kill_one(w, b);
}

static void a_tenant_that_was_never_made_has_no_quotas(void **state)
{
    struct world *w = *state;
    const int64_t most[QUOTA_COUNT] = {0};
    const bool given[QUOTA_COUNT] = {true};
    struct core_quotas q;
    struct err e;

    assert_int_equal(core_tenant_quotas(w->core, "nobody", &q, &e), ERR_NOT_FOUND);
    assert_int_equal(core_tenant_set_quotas(w->core, "nobody", most, given, &e), ERR_NOT_FOUND);
    assert_int_equal(world_query(w, "SELECT count(*) FROM tenant_quotas"), 0);
}

/* -- usage ------------------------------------------------------------------------------------- */

static void add_up(void *arg, const struct core_usage *u)
{
    struct core_usage *sum = arg;

    assert_int_equal(u->hour_real_ms % 3600000, 0);
    for (int i = 0; i < USAGE_COUNT; i++)
        sum->n[i] += u->n[i];
}

static struct core_usage usage(struct world *w)
{
    struct core_usage sum = {0};
    struct err e;

    assert_int_equal(core_tenant_usage(w->core, "default", 0, INT64_MAX, add_up, &sum, &e), ERR_OK);
    return sum;
}

static void usage_is_counted_and_written(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE], other[IDS_SANDBOX_SIZE];
    struct core_usage u;
    uint64_t begun_ms = clock_mono_ms(), most_ms, cpu_milli;

    world_create_default(w, id);
    world_create_default(w, other);
    cpu_milli = limits_of(w, id)->cpu_milli;
    world_run_for(w, 20);
    kill_one(w, other);
    world_stop_core(w); /* counts are written */
    world_start_core(w);
    most_ms = clock_mono_ms() - begun_ms;
    u = usage(w);
    assert_int_equal(u.n[USAGE_CREATED], 2);
    assert_true(u.n[USAGE_SANDBOX_MS] >= 40 && u.n[USAGE_SANDBOX_MS] <= 2 * (most_ms + 1));
    /* A sandbox counts from its place on, and its limits from when they are known. */
    assert_in_range(u.n[USAGE_CPU_MILLI_MS], (u.n[USAGE_SANDBOX_MS] - 4) * cpu_milli,
                    u.n[USAGE_SANDBOX_MS] * cpu_milli);
    assert_int_equal(u.n[USAGE_PAUSED_MS], 0);
    assert_true(u.n[USAGE_PEAK_SANDBOXES] >= 2);
    kill_one(w, id);
}

static void old_usage_is_removed(void **state)
{
    struct world *w = *state;
    struct core_usage u = {.hour_real_ms = 3600000};
    struct err e;

    assert_int_equal(store_usage_add(w->core->store, "default", &u, &e), ERR_OK);
    u.hour_real_ms = clock_real_ms() / 3600000 * 3600000;
    assert_int_equal(store_usage_add(w->core->store, "default", &u, &e), ERR_OK);
    usage_on_timer(&w->core->usage_due);
    assert_int_equal(world_query(w, "SELECT count(*) FROM tenant_usage"), 1);
}

/* -- ceiling and credentials ------------------------------------------------------------------- */

static enum err_code ceiling_of(struct tenant *t, char text[static 64])
{
    json_t *ceiling = NULL;
    struct err e;
    enum err_code code = tenant_ceiling(t, &ceiling, &e);
    char *dumped = ceiling ? json_dumps(ceiling, JSON_COMPACT) : NULL;

    (void)snprintf(text, 64, "%s", dumped ? dumped : "");
    json_decref(ceiling);
    free(dumped);
    return code;
}

static void put(struct tenant *t, const char *name, const char *sealed)
{
    json_t *bind = json_pack("{s:s}", "kind", "bearer");
    struct err e;

    assert_int_equal(tenant_put_credential(t, name, bind, sealed, NULL, &e), ERR_OK);
    json_decref(bind);
}

static void assert_sealed(struct tenant *t, const char *name, const char *sealed)
{
    json_t *item = NULL;
    struct err e;

    assert_int_equal(tenant_credential(t, name, &item, &e), ERR_OK);
    assert_string_equal(json_string_value(json_object_get(item, "sealed")), sealed);
    assert_null(json_object_get(item, "token"));
    json_object_set_new(item, "token", json_string("of this caller alone"));
    json_decref(item);
}

static void a_ceiling_is_known_as_long_as_the_object_lives(void **state)
{
    struct world *w = *state;
    struct tenant *t = tenant_get(w->core, "default");
    struct tenant_charge charge = {0};
    json_t *limit = json_pack("{s:s}", "default", "public");
    struct err e;
    char text[64];

    assert_int_equal(ceiling_of(t, text), ERR_OK);
    assert_string_equal(text, "");
    assert_int_equal(tenant_set_ceiling(t, limit, &e), ERR_OK);
    assert_int_equal(ceiling_of(t, text), ERR_OK);
    assert_string_equal(text, "{\"default\":\"public\"}");
    world_query(w, "UPDATE tenants SET ceiling = '{\"default\":\"deny\"}'");
    tenant_charge(t, TENANT_AUDITS, 1, &charge);
    tenant_unref(t); /* the charge holds it, and with it the limit */
    assert_int_equal(ceiling_of(tenant_find(w->core, "default"), text), ERR_OK);
    assert_string_equal(text, "{\"default\":\"public\"}");
    tenant_refund(&charge);
    assert_null(tenant_find(w->core, "default"));
    t = tenant_get(w->core, "default");
    assert_int_equal(ceiling_of(t, text), ERR_OK);
    assert_string_equal(text, "{\"default\":\"deny\"}");
    assert_int_equal(tenant_set_ceiling(t, NULL, &e), ERR_OK);
    assert_int_equal(ceiling_of(t, text), ERR_OK);
    assert_string_equal(text, "");
    tenant_unref(t);
    json_decref(limit);
}

static void a_tenant_that_is_not_there_has_no_ceiling(void **state)
{
    struct world *w = *state;
    struct tenant *t = tenant_get(w->core, "later");
    json_t *limit = json_pack("{s:s}", "default", "public");
    struct err e;
    char text[64];

    for (int i = 0; i < 2; i++)
        assert_int_equal(ceiling_of(t, text), ERR_NOT_FOUND);
    assert_int_equal(tenant_set_ceiling(t, limit, &e), ERR_NOT_FOUND);
    assert_int_equal(tenant_check_made(w->core, "later", &e), ERR_NOT_FOUND);
    world_query(w, "INSERT INTO tenants (id, made_ms) VALUES ('later', 1)");
    assert_int_equal(ceiling_of(t, text), ERR_OK); /* it was not remembered */
    assert_int_equal(tenant_check_made(w->core, "later", &e), ERR_OK);
    tenant_unref(t);
    json_decref(limit);

    t = tenant_get(w->core, "later");
    world_query(w, "DELETE FROM tenants WHERE id = 'later'");
    assert_int_equal(ceiling_of(t, text), ERR_NOT_FOUND);
    tenant_unref(t);
}

static void a_credential_is_never_the_one_of_before(void **state)
{
    struct world *w = *state;
    struct tenant *t = tenant_get(w->core, "default"), *other = tenant_get(w->core, "other");
    struct err e;

    assert_int_equal(tenant_credential(t, "KEY", NULL, &e), ERR_NOT_FOUND);
    put(t, "KEY", "first");
    for (int i = 0; i < 2; i++)
        assert_sealed(t, "KEY", "first");
    put(t, "KEY", "second");
    assert_sealed(t, "KEY", "second");
    assert_int_equal(tenant_renew_credential(t, "KEY", "second", "third", &e), ERR_OK);
    assert_sealed(t, "KEY", "third");
    assert_int_equal(tenant_renew_credential(t, "KEY", "second", "fourth", &e), ERR_NOT_FOUND);
    assert_sealed(t, "KEY", "third");
    assert_int_equal(tenant_credential(other, "KEY", NULL, &e), ERR_NOT_FOUND);
    assert_int_equal(tenant_remove_credential(w->core, other, "other", "KEY", &e), ERR_NOT_FOUND);
    assert_sealed(t, "KEY", "third");
    assert_int_equal(tenant_remove_credential(w->core, t, "default", "KEY", &e), ERR_OK);
    assert_int_equal(tenant_credential(t, "KEY", NULL, &e), ERR_NOT_FOUND);
    tenant_unref(t);
    tenant_unref(other);
}

static void an_object_remembers_so_many_credentials(void **state)
{
    struct world *w = *state;
    struct tenant *t = tenant_get(w->core, "default");
    char name[16];

    for (unsigned i = 0; i < 2 * TENANT_CREDENTIALS_REMEMBERED + 1; i++) {
        (void)snprintf(name, sizeof(name), "KEY_%u", i);
        put(t, name, name);
        assert_sealed(t, name, name);
        assert_true(json_object_size(t->settings.credentials) <= TENANT_CREDENTIALS_REMEMBERED);
    }
    assert_int_equal(json_object_size(t->settings.credentials), 1);
    assert_sealed(t, "KEY_0", "KEY_0");
    tenant_unref(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD(an_object_is_one_for_each_name_and_goes_with_its_last_reference),
        WORLD(a_charge_is_refunded_once_and_by_its_amount),
        WORLD(a_charge_that_is_not_refunded_ends_the_program),
        WORLD(a_sandbox_is_charged_as_its_state_says),
        WORLD(a_create_that_fails_holds_nothing),
        WORLD(builds_and_creates_that_wait_are_charged_until_they_are_gone),
        WORLD(a_follower_is_charged_until_it_ends),
        WORLD(creates_at_once_never_exceed_a_quota),
        WORLD(creates_per_minute_are_counted_whatever_becomes_of_them),
        WORLD(a_rate_is_of_the_last_minute),
        WORLD(a_quota_of_zero_permits_none_and_survives_a_restart),
        WORLD(a_pause_that_waits_for_a_resume_does_not_exceed_a_quota),
        WORLD(a_tenant_that_was_never_made_has_no_quotas),
        WORLD(usage_is_counted_and_written),
        WORLD(old_usage_is_removed),
        WORLD(a_ceiling_is_known_as_long_as_the_object_lives),
        WORLD(a_tenant_that_is_not_there_has_no_ceiling),
        WORLD(a_credential_is_never_the_one_of_before),
        WORLD(an_object_remembers_so_many_credentials),
    };

    return cmocka_run_group_tests_name("core_tenants", tests, NULL, NULL);
}
