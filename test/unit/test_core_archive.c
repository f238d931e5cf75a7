/* Kept files that become an archive (core/archive_file.h): by a call, by age, and what comes first. */

#include "core/archive_file.h"
#include "core/core_internal.h"
#include "core/events.h"
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

static void make_stopped_of(struct world *w, const char *tenant, char id[static IDS_SANDBOX_SIZE])
{
    struct sandbox_request r = world_request();
    struct answer a = {0};

    r.tenant = tenant;
    r.ttl_ms = 0;
    r.idle_ms = MINUTE_MS;
    r.on_timeout = SANDBOX_ON_TIMEOUT_PAUSE;
    r.timeout_tier = SANDBOX_TIER_FILES;
    world_create(w, &r, id);
    core_sandbox_pause(w->core, tenant, id, SANDBOX_TIER_FILES, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    assert_true(a.good);
    assert_int_equal(object(w, id)->s.state, SANDBOX_KEPT);
}

static void make_stopped(struct world *w, char id[static IDS_SANDBOX_SIZE])
{
    make_stopped_of(w, "default", id);
}

static bool one_is_being_archived(struct world *w)
{
    for (size_t i = 0; i < w->core->registry.n; i++)
        if (w->core->registry.order[i]->archiving)
            return true;
    return false;
}

static bool none_is_being_archived(struct world *w)
{
    return !one_is_being_archived(w);
}

/* privd holds its answer. */
static void begin_archive(struct world *w, const char *id, struct answer *a)
{
    fake_set(w->fake, FAKE_HOLD_ARCHIVES, 1);
    core_sandbox_archive_files(w->core, "default", id, world_on_answer, a);
    world_run_until_true(w, one_is_being_archived);
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

static void make_kept_with_memory(struct world *w, enum sandbox_tier tier,
                                  char id[static IDS_SANDBOX_SIZE])
{
    struct sandbox_request r = world_request();
    struct answer a = {0};

    world_create(w, &r, id);
    core_sandbox_pause(w->core, "default", id, tier, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    assert_true(a.good);
    assert_true(core_sandbox_has_memory(&object(w, id)->s));
}

/* By age, or by a call, only of a sandbox whose owner allowed that its files alone are kept: the
 * others keep their memory for as long as they are paused. */
static void memory_is_given_up_only_where_that_is_allowed(void **state)
{
    struct world *w = *state;
    char allowed[IDS_SANDBOX_SIZE], kept[IDS_SANDBOX_SIZE], lines[EVENTS_LINE_MAX];
    struct answer a = {0};

    world_stop_core(w);
    w->config.archive_after_ms = 100;
    world_start_core(w);
    make_kept_with_memory(w, SANDBOX_TIER_MEMORY, kept);
    make_kept_with_memory(w, SANDBOX_TIER_MEMORY_OR_FILES, allowed);
    assert_int_equal(archived(w, "default", kept).why.code, ERR_CONFLICT);
    world_run_for(w, 400);
    assert_string_equal(tier(w, kept), "memory");
    assert_string_equal(tier(w, allowed), "archive");
    assert_non_null(strstr(core_sandbox_fell(&object(w, allowed)->s), "given up"));
    assert_true(core_sandbox_is_stopped(&object(w, allowed)->s));
    world_events(w, allowed, 1u << EVENT_SANDBOX_PAUSED, lines);
    assert_non_null(strstr(lines, "\"tier\":\"archive\""));
    assert_non_null(strstr(lines, "\"memoryError\":\"its memory was given up"));
    world_stop_core(w);
    world_start_core(w);
    assert_string_equal(tier(w, kept), "memory");
    assert_string_equal(tier(w, allowed), "archive");
    core_sandbox_resume(w->core, "default", allowed, 0, false, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    assert_true(a.good);
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
    begin_archive(w, id, &archive);
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
    begin_archive(w, id, &archive);
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
    begin_archive(w, id, &archive);
    world_restart_privd(w, false);
    world_run_until(w, &archive.calls, 1);
    assert_int_equal(archive.why.code, ERR_UNAVAILABLE);
    fake_set(w->fake, FAKE_HOLD_ARCHIVES, 0);
    assert_false(object(w, id)->archiving);
    assert_true(archived(w, "default", id).good);
}

static char ids_sent[IDS_SANDBOX_SIZE];

static struct answer resumed(struct world *w, const char *id)
{
    struct answer a = {0};

    core_sandbox_resume(w->core, "default", id, 0, false, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    return a;
}

/* The fetch fails: the start is refused with its reason, and the next one asks again. */
static void an_archive_is_fetched_before_its_start(void **state)
{
    struct world *w = *state;
    struct answer a, both[2] = {{0}, {0}};
    char id[IDS_SANDBOX_SIZE];

    make_stopped(w, id);
    assert_true(archived(w, "default", id).good);
    fake_set(w->fake, FAKE_FETCH_ERRNO, -EIO);
    a = resumed(w, id);
    assert_int_equal(a.why.code, ERR_UNAVAILABLE);
    assert_non_null(strstr(a.why.text, "the bucket is away"));
    assert_string_equal(tier(w, id), "archive");
    fake_set(w->fake, FAKE_FETCH_ERRNO, -ENOSPC);
    assert_int_equal(resumed(w, id).why.code, ERR_NO_SPACE);
    fake_set(w->fake, FAKE_FETCH_ERRNO, 0);
    for (size_t i = 0; i < 2; i++)
        core_sandbox_resume(w->core, "default", id, 0, false, world_on_answer, &both[i]);
    for (size_t i = 0; i < 2; i++) {
        world_run_until(w, &both[i].calls, 1);
        assert_true(both[i].good);
    }
    assert_int_equal(object(w, id)->s.state, SANDBOX_RUNNING);
    WORLD_RUN_UNTIL_COUNTED(w, fetches, 3);
}

static bool it_was_sent(struct world *w)
{
    return object(w, ids_sent)->archive_sent;
}

/* It is archived all the same, and tried again: after a while, and by the next cayd at once. */
static void a_bucket_that_is_away_is_tried_again(void **state)
{
    struct world *w = *state;

    w->config.archive_bucket = true;
    world_stop_core(w);
    world_start_core(w);
    make_stopped(w, ids_sent);
    fake_set(w->fake, FAKE_ARCHIVE_STAYS, 1);
    assert_true(archived(w, "default", ids_sent).good);
    assert_string_equal(tier(w, ids_sent), "archive");
    assert_false(object(w, ids_sent)->archive_sent);
    assert_true(object(w, ids_sent)->archive_not_before_ms > 0);
    fake_set(w->fake, FAKE_ARCHIVE_STAYS, 0);
    world_stop_core(w);
    world_start_core(w);
    world_run_until_true(w, it_was_sent);
    WORLD_RUN_UNTIL_COUNTED(w, archives, 2);
    assert_string_equal(tier(w, ids_sent), "archive");
    assert_true(resumed(w, ids_sent).good);
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

static void a_server_that_is_busy_is_asked_again(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];

    make_stopped(w, id);
    fake_set(w->fake, FAKE_ARCHIVE_ERRNO, -EBUSY);
    assert_int_equal(archived(w, "default", id).why.code, ERR_UNAVAILABLE);
    assert_false(object(w, id)->archive_tried); /* it is due by age, after a while */
    assert_true(object(w, id)->archive_not_before_ms > 0);
    fake_set(w->fake, FAKE_ARCHIVE_ERRNO, -EOPNOTSUPP);
    assert_int_equal(archived(w, "default", id).why.code, ERR_CONFLICT);
    assert_true(object(w, id)->archive_tried);
    fake_set(w->fake, FAKE_ARCHIVE_ERRNO, -EBUSY);
    archive_file_try(object(w, id)); /* no caller waits: the wish stays */
    WORLD_RUN_UNTIL_COUNTED(w, archives, 3);
    world_run_until_true(w, none_is_being_archived);
    assert_true(object(w, id)->archive_requested);
    fake_set(w->fake, FAKE_ARCHIVE_ERRNO, 0);
}

/* Four of one tenant wait, and then one of another: it is the next. */
static void tenants_have_turns(void **state)
{
    struct world *w = *state;
    char many[4][IDS_SANDBOX_SIZE], other[IDS_SANDBOX_SIZE];
    struct answer of_many[4] = {0}, of_other = {0};
    struct err e;
    char key[CORE_TOKEN_SIZE];

    assert_int_equal(world_key(w, "other", "k", key, &e), ERR_OK);
    for (size_t i = 0; i < ARRAY_SIZE(many); i++)
        make_stopped(w, many[i]);
    make_stopped_of(w, "other", other);
    begin_archive(w, many[0], &of_many[0]);
    for (size_t i = 1; i < ARRAY_SIZE(many); i++)
        core_sandbox_archive_files(w->core, "default", many[i], world_on_answer, &of_many[i]);
    core_sandbox_archive_files(w->core, "other", other, world_on_answer, &of_other);
    fake_set(w->fake, FAKE_HOLD_ARCHIVES, 0);
    world_run_until(w, &of_other.calls, 1);
    assert_true(of_other.good);
    assert_int_equal(of_many[2].calls + of_many[3].calls, 0);
    for (size_t i = 0; i < ARRAY_SIZE(many); i++) {
        world_run_until(w, &of_many[i].calls, 1);
        assert_true(of_many[i].good);
    }
}

/* Its turn has not come: it is started, and is not archived when it is stopped again. */
static void a_start_takes_a_wish_back(void **state)
{
    struct world *w = *state;
    char first[IDS_SANDBOX_SIZE], id[IDS_SANDBOX_SIZE];
    struct answer of_first = {0}, archive = {0}, start = {0}, end = {0};

    make_stopped(w, first);
    make_stopped(w, id);
    begin_archive(w, first, &of_first);
    core_sandbox_archive_files(w->core, "default", id, world_on_answer, &archive);
    core_sandbox_resume(w->core, "default", id, 0, false, world_on_answer, &start);
    world_run_until(w, &start.calls, 1);
    world_run_until(w, &archive.calls, 1);
    assert_true(start.good);
    assert_int_equal(archive.why.code, ERR_UNAVAILABLE);
    assert_false(object(w, id)->archive_requested);
    archive = (struct answer){0};
    core_sandbox_archive_files(w->core, "default", id, world_on_answer, &archive);
    world_run_until(w, &archive.calls, 1);
    assert_int_equal(archive.why.code, ERR_CONFLICT); /* it runs */
    core_sandbox_kill(w->core, "default", first, world_on_answer, &end);
    world_run_until(w, &end.calls, 1);
    fake_set(w->fake, FAKE_HOLD_ARCHIVES, 0);
    world_run_until(w, &of_first.calls, 1);
}

static void an_end_takes_a_wish_back(void **state)
{
    struct world *w = *state;
    char first[IDS_SANDBOX_SIZE], id[IDS_SANDBOX_SIZE];
    struct answer of_first = {0}, archive = {0}, end = {0};

    make_stopped(w, first);
    make_stopped(w, id);
    begin_archive(w, first, &of_first);
    core_sandbox_archive_files(w->core, "default", id, world_on_answer, &archive);
    core_sandbox_kill(w->core, "default", id, world_on_answer, &end);
    world_run_until(w, &end.calls, 1);
    world_run_until(w, &archive.calls, 1);
    assert_true(end.good);
    assert_false(archive.good);
    fake_set(w->fake, FAKE_HOLD_ARCHIVES, 0);
    world_run_until(w, &of_first.calls, 1);
    assert_true(of_first.good);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD(it_is_told_until_it_runs),
        WORLD(memory_is_given_up_only_where_that_is_allowed),
        WORLD(another_tenant_is_told_of_none),
        WORLD(a_refusal_is_told_and_changes_nothing),
        WORLD(a_start_comes_first),
        WORLD(an_end_comes_first),
        WORLD(a_broken_channel_is_told),
        WORLD(an_archive_is_fetched_before_its_start),
        WORLD(a_bucket_that_is_away_is_tried_again),
        WORLD(by_age_one_after_the_other),
        WORLD(a_server_that_is_busy_is_asked_again),
        WORLD(tenants_have_turns),
        WORLD(a_start_takes_a_wish_back),
        WORLD(an_end_takes_a_wish_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
