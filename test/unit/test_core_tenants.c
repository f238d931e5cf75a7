/* Units of src/core: the object of a tenant, what is charged to it while its sandboxes live, and that
 * all of it is given back. */
#include "core/events.h"
#include "core/internal.h"
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

    tenant_charge(t, TENANT_CPU_MILLI, 1500, &one);
    tenant_charge(t, TENANT_CPU_MILLI, 500, &two);
    tenant_charge(t, TENANT_CPU_MILLI, 0, &none);
    tenant_unref(t); /* the charges hold it */
    assert_int_equal(held(w, TENANT_CPU_MILLI), 2000);
    assert_int_equal(w->core->tenants.charged[TENANT_CPU_MILLI], 2000);
    tenant_recharge(t, TENANT_CPU_MILLI, 250, &two);
    assert_int_equal(held(w, TENANT_CPU_MILLI), 1750);
    tenant_refund(&one);
    tenant_refund(&one);
    tenant_refund(&none);
    assert_int_equal(held(w, TENANT_CPU_MILLI), 250);
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
            tenant_charge(tenant_get(w->core, "default"), TENANT_EXECS, 1, &charge);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD(an_object_is_one_for_each_name_and_goes_with_its_last_reference),
        WORLD(a_charge_is_refunded_once_and_by_its_amount),
        WORLD(a_charge_that_is_not_refunded_ends_the_program),
        WORLD(a_sandbox_is_charged_as_its_state_says),
        WORLD(a_create_that_fails_holds_nothing),
        WORLD(a_follower_is_charged_until_it_ends),
    };

    return cmocka_run_group_tests_name("core_tenants", tests, NULL, NULL);
}
