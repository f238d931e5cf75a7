/* Kept files that become an archive (core/archive_file.h): by a call, by age, and what comes first. */

#include "core/archive_file.h"
#include "core/keep.h"
#include "core/sandbox.h"
#include "core_world.h"

#include <errno.h>
#include <string.h>

#define MINUTE_MS (60 * 1000)

static struct sandbox_obj *object(struct world *w, const char *id)
{
    return sandbox_get(w->core, NULL, id);
}

static void make_stopped(struct world *w, char id[static IDS_SANDBOX_SIZE])
{
    struct sandbox_request r = world_request();
    struct answer a = {0};

    r.ttl_ms = 0;
    r.idle_ms = MINUTE_MS;
    r.on_timeout = SANDBOX_ON_TIMEOUT_PAUSE;
    r.timeout_tier = SANDBOX_TIER_FILES;
    world_create(w, &r, id);
    core_sandbox_pause(w->core, "default", id, SANDBOX_TIER_FILES, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    assert_true(a.good);
    assert_int_equal(object(w, id)->s.state, SANDBOX_KEPT);
}

static struct answer archived(struct world *w, const char *tenant, const char *id)
{
    struct answer a = {0};

    core_sandbox_archive_files(w->core, tenant, id, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    return a;
}

static const char *tier(struct world *w, const char *id)
{
    return core_pause_tier_name(&object(w, id)->s);
}

static void it_is_told_until_it_runs(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];
    struct answer a = {0};

    make_stopped(w, id);
    assert_string_equal(tier(w, id), "files");
    assert_true(archived(w, "default", id).good);
    assert_string_equal(tier(w, id), "archive");
    assert_true(archived(w, "default", id).good); /* it is so already */
    world_stop_core(w);
    world_start_core(w);
    assert_string_equal(tier(w, id), "archive");
    core_sandbox_resume(w->core, "default", id, 0, false, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    assert_true(a.good);
    a = archived(w, "default", id);
    assert_int_equal(a.why.code, ERR_CONFLICT); /* it runs */
    a = (struct answer){0};
    core_sandbox_pause(w->core, "default", id, SANDBOX_TIER_FILES, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    assert_string_equal(tier(w, id), "files");
}

static void another_tenant_is_told_of_none(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];

    make_stopped(w, id);
    assert_int_equal(archived(w, "another", id).why.code, ERR_NOT_FOUND);
    assert_string_equal(tier(w, id), "files");
}

static void a_refusal_is_told_and_changes_nothing(void **state)
{
    static const struct {
        int status;
        enum err_code code;
    } answers[] = {{-EOPNOTSUPP, ERR_CONFLICT}, {-EALREADY, ERR_CONFLICT}, {-ENOSPC, ERR_NO_SPACE},
                   {-EAGAIN, ERR_UNAVAILABLE},  {-EBUSY, ERR_UNAVAILABLE}, {-EIO, ERR_UNAVAILABLE}};
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];

    make_stopped(w, id);
    for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
        fake_set(w->fake, FAKE_ARCHIVE_ERRNO, answers[i].status);
        assert_int_equal(archived(w, "default", id).why.code, answers[i].code);
        assert_string_equal(tier(w, id), "files");
    }
    fake_set(w->fake, FAKE_ARCHIVE_ERRNO, 0);
    assert_true(archived(w, "default", id).good);
}

static void a_start_comes_first(void **state)
{
    struct world *w = *state;
    struct answer archive = {0}, start[2] = {{0}, {0}};
    char id[IDS_SANDBOX_SIZE];

    make_stopped(w, id);
    fake_set(w->fake, FAKE_HOLD_ARCHIVES, 1);
    core_sandbox_archive_files(w->core, "default", id, world_on_answer, &archive);
    assert_true(object(w, id)->archiving);
    for (size_t i = 0; i < 2; i++)
        core_sandbox_resume(w->core, "default", id, 0, false, world_on_answer, &start[i]);
    for (size_t i = 0; i < 2; i++) {
        world_run_until(w, &start[i].calls, 1);
        assert_true(start[i].good);
    }
    assert_int_equal(archive.calls, 1);
    assert_int_equal(archive.why.code, ERR_UNAVAILABLE);
    assert_int_equal(object(w, id)->s.state, SANDBOX_RUNNING);
    assert_false(object(w, id)->archiving);
}

static void an_end_comes_first(void **state)
{
    struct world *w = *state;
    struct answer archive = {0}, end = {0};
    char id[IDS_SANDBOX_SIZE];

    make_stopped(w, id);
    fake_set(w->fake, FAKE_HOLD_ARCHIVES, 1);
    core_sandbox_archive_files(w->core, "default", id, world_on_answer, &archive);
    core_sandbox_kill(w->core, "default", id, world_on_answer, &end);
    world_run_until(w, &end.calls, 1);
    world_run_until(w, &archive.calls, 1);
    assert_true(end.good);
    assert_false(archive.good);
    fake_set(w->fake, FAKE_HOLD_ARCHIVES, 0); /* its answer comes to a sandbox that is not there */
    world_run_until_ended(w, id);
}

static void a_broken_channel_is_told(void **state)
{
    struct world *w = *state;
    struct answer archive = {0};
    char id[IDS_SANDBOX_SIZE];

    make_stopped(w, id);
    fake_set(w->fake, FAKE_HOLD_ARCHIVES, 1);
    core_sandbox_archive_files(w->core, "default", id, world_on_answer, &archive);
    world_restart_privd(w, false);
    world_run_until(w, &archive.calls, 1);
    assert_int_equal(archive.why.code, ERR_UNAVAILABLE);
    fake_set(w->fake, FAKE_HOLD_ARCHIVES, 0);
    assert_false(object(w, id)->archiving);
    assert_true(archived(w, "default", id).good);
}

static char ids[3][IDS_SANDBOX_SIZE];

static bool all_are_archived(struct world *w)
{
    for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
        if (strcmp(tier(w, ids[i]), "archive") != 0)
            return false;
    return true;
}

static void by_age_one_after_the_other(void **state)
{
    struct world *w = *state;

    for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
        make_stopped(w, ids[i]);
    world_stop_core(w);
    w->config.archive_after_ms = 1;
    world_start_core(w);
    world_run_until_true(w, all_are_archived);
    WORLD_RUN_UNTIL_COUNTED(w, archives, ARRAY_SIZE(ids));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD(it_is_told_until_it_runs),
        WORLD(another_tenant_is_told_of_none),
        WORLD(a_refusal_is_told_and_changes_nothing),
        WORLD(a_start_comes_first),
        WORLD(an_end_comes_first),
        WORLD(a_broken_channel_is_told),
        WORLD(by_age_one_after_the_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
