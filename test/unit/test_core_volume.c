/* Volumes: making and removing them, over failures and restarts of both sides; which sandboxes may
 * have which; what privd and the agent are told. */
#include "base/ids.h"
#include "core/core.h"
#include "core/fork.h"
#include "core/quota.h"
#include "core/volume.h"
#include "core/volume_content.h"
#include "core_world.h"

#include <stdio.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

static void on_volume(void *arg, const struct volume *v, const struct err *why)
{
    struct answer *a = arg;

    a->calls++;
    a->good = v != NULL;
    if (v)
        memcpy(a->id, v->id, sizeof(a->id));
    if (why)
        a->why = *why;
}

static void on_removed(void *arg, const struct err *why)
{
    struct answer *a = arg;

    a->calls++;
    a->good = !why;
    if (why)
        a->why = *why;
}

static struct answer make_of(struct world *w, const char *tenant, const char *name, uint64_t bytes)
{
    struct answer a = {0};

    core_volume_create(w->core, tenant, name, bytes, on_volume, &a);
    world_run_until(w, &a.calls, 1);
    return a;
}

static struct answer make(struct world *w, const char *name)
{
    return make_of(w, "default", name, 4 * MIB);
}

static struct answer remove_volume(struct world *w, const char *name)
{
    struct answer a = {0};

    core_volume_remove(w->core, "default", name, on_removed, &a);
    world_run_until(w, &a.calls, 1);
    return a;
}

static bool is_there(struct world *w, const char *name)
{
    return core_volume_find(w->core, "default", name) != NULL;
}

static uint32_t number_of(struct world *w, const char *name)
{
    return core_volume_find(w->core, "default", name)->number;
}

/* Creates a sandbox that mounts name at /v; the answer. */
static struct answer box_with(struct world *w, const char *name, bool read_only)
{
    struct volume_mount mount = {.path = "/v", .read_only = read_only};
    struct sandbox_request r = world_request();
    struct answer a = {0};

    (void)snprintf(mount.name, sizeof(mount.name), "%s", name);
    r.mounts = &mount;
    r.n_mounts = 1;
    core_sandbox_create(w->core, &r, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    return a;
}

static struct answer pause_files(struct world *w, const char *id)
{
    struct answer a = {0};

    core_sandbox_pause(w->core, "default", id, SANDBOX_TIER_FILES, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    return a;
}

static struct answer resume(struct world *w, const char *id)
{
    struct answer a = {0};

    core_sandbox_resume(w->core, "default", id, 0, false, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    return a;
}

static void end_box(struct world *w, const char *id)
{
    struct answer a = {0};

    core_sandbox_kill(w->core, "default", id, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    assert_true(a.good);
}

/* -- making and removing ----------------------------------------------------------------------- */

static void one_is_made_found_and_removed(void **state)
{
    struct world *w = *state;
    struct answer a = make(w, "data"), b;

    assert_true(a.good && is_there(w, "data") && is_there(w, a.id));
    assert_true(fake_is_volume(w->fake, number_of(w, "data")));
    assert_null(core_volume_find(w->core, "other", "data")); /* another tenant's */
    assert_null(core_volume_find(w->core, "other", a.id));
    b = make(w, "data");
    assert_false(b.good);
    assert_int_equal(b.why.code, ERR_EXISTS);
    assert_true(make_of(w, "other", "data", 4 * MIB).good);
    assert_true(remove_volume(w, a.id).good);
    assert_false(is_there(w, "data") || fake_is_volume(w->fake, 1));
    assert_int_equal(remove_volume(w, "data").why.code, ERR_NOT_FOUND);
    assert_int_equal(world_query(w, "SELECT count(*) FROM volumes"), 1);
}

static void what_is_wrong_is_refused_and_leaves_nothing(void **state)
{
    static const char *const names[] = {"", ".x", "-x", "a/b", "..", "a b", "a\n"};
    struct world *w = *state;
    char longest[CORE_VOLUME_NAME_SIZE + 1];

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        assert_int_equal(make(w, names[i]).why.code, ERR_INVALID);
    memset(longest, 'a', sizeof(longest));
    longest[sizeof(longest) - 1] = '\0';
    assert_int_equal(make(w, longest).why.code, ERR_INVALID);
    longest[sizeof(longest) - 2] = '\0';
    assert_true(make(w, longest).good && remove_volume(w, longest).good);
    assert_int_equal(make_of(w, "default", "x", MIB - 1).why.code, ERR_INVALID);
    assert_int_equal(make_of(w, "default", "x", UINT64_MAX).why.code, ERR_INVALID);
    fake_set(w->fake, FAKE_FAIL_VOLUMES, 1);
    assert_false(make(w, "x").good);
    assert_int_equal(world_query(w, "SELECT count(*) FROM volumes"), 0);
    assert_true(make(w, "x").good);
}

static void a_quota_counts_them_and_their_size(void **state)
{
    struct world *w = *state;
    const int64_t most[QUOTA_COUNT] = {
        [QUOTA_VOLUMES] = 1, [QUOTA_DISK_BYTES] = (int64_t)(8 * MIB)};
    const bool given[QUOTA_COUNT] = {[QUOTA_VOLUMES] = true, [QUOTA_DISK_BYTES] = true};
    struct err e;

    assert_int_equal(core_tenant_set_quotas(w->core, "default", most, given, &e), ERR_OK);
    assert_int_equal(make_of(w, "default", "big", 9 * MIB).why.code, ERR_EXHAUSTED);
    assert_true(make(w, "one").good);
    assert_int_equal(make(w, "two").why.code, ERR_EXHAUSTED);
    world_stop_core(w);
    world_start_core(w); /* volumes there are charged again */
    assert_int_equal(make(w, "two").why.code, ERR_EXHAUSTED);
    assert_true(remove_volume(w, "one").good);
    assert_true(make(w, "two").good);
}

/* -- over restarts ------------------------------------------------------------------------------- */

static bool volume_1_is_there(struct world *w)
{
    return fake_is_volume(w->fake, 1);
}

static bool volume_1_is_gone(struct world *w)
{
    return !fake_is_volume(w->fake, 1);
}

static bool has_no_row(struct world *w)
{
    return world_query(w, "SELECT count(*) FROM volumes") == 0;
}

static bool has_one_row(struct world *w)
{
    return world_query(w, "SELECT count(*) FROM volumes") == 1;
}

/* Killed between the row and the answer of privd, which has not made it, or has. */
static void one_that_was_not_confirmed_goes(void **state)
{
    struct world *w = *state;

    for (int made = 0; made < 2; made++) {
        struct answer a = {0};

        fake_set(w->fake, made ? FAKE_MUTE_VOLUMES : FAKE_HOLD_VOLUMES, 1);
        core_volume_create(w->core, "default", "x", 0, on_volume, &a);
        assert_int_equal(world_query(w, "SELECT count(*) FROM volumes WHERE state = 0"), 1);
        if (made)
            world_run_until_true(w, volume_1_is_there);
        world_stop_core(w);
        assert_true(a.calls == 1 && !a.good); /* the waiting caller is told, once */
        fake_set(w->fake, FAKE_HOLD_VOLUMES, 0);
        fake_set(w->fake, FAKE_MUTE_VOLUMES, 0);
        world_start_core(w);
        world_run_until_true(w, has_no_row);
        assert_false(fake_is_volume(w->fake, 1));
    }
    assert_true(make(w, "x").good);
}

static void a_removal_is_finished_by_the_next_start(void **state)
{
    struct world *w = *state;

    for (int removed = 0; removed < 2; removed++) {
        struct answer a = {0};

        assert_true(make(w, "x").good && (removed || make(w, "y").good));
        fake_set(w->fake, removed ? FAKE_MUTE_VOLUMES : FAKE_HOLD_VOLUMES, 1);
        core_volume_remove(w->core, "default", "x", on_removed, &a);
        assert_false(is_there(w, "x")); /* from here on it cannot be mounted */
        assert_int_equal(world_query(w, "SELECT count(*) FROM volumes WHERE state = 2"), 1);
        if (removed)
            world_run_until_true(w, volume_1_is_gone);
        world_stop_core(w);
        assert_true(a.calls == 1 && !a.good);
        fake_set(w->fake, FAKE_HOLD_VOLUMES, 0);
        fake_set(w->fake, FAKE_MUTE_VOLUMES, 0);
        world_start_core(w);
        world_run_until_true(w, has_one_row);
        assert_true(is_there(w, "y") && volume_1_is_gone(w));
    }
}

/* privd's files are gone (another disk), another's by now, or of a row that was lost. */
static void what_both_have_is_compared(void **state)
{
    struct world *w = *state;
    uint32_t a, b;

    assert_true(make(w, "a").good && make(w, "b").good && make(w, "c").good);
    a = number_of(w, "a");
    b = number_of(w, "b");
    fake_set_volume(w->fake, a, NULL);
    fake_set_volume(w->fake, b, "vanother-tenants");
    fake_set_volume(w->fake, 4, "vof-a-lost-table");
    fake_restart(w->fake, false);
    world_run_until_true(w, has_one_row);
    assert_true(is_there(w, "c") && !is_there(w, "a") && !is_there(w, "b"));
    assert_true(fake_is_volume(w->fake, b) && fake_is_volume(w->fake, 4)); /* left alone */
    world_run_until_true(w, world_is_ready);
    assert_true(make(w, "d").good && make(w, "e").good);
    assert_true(number_of(w, "d") == a && number_of(w, "e") == 5); /* their numbers too */
}

/* -- in sandboxes -------------------------------------------------------------------------------- */

static void privd_and_the_agent_are_told(void **state)
{
    const struct volume_mount mounts[] = {
        {.name = "b", .path = "/data"}, {.name = "a", .path = "/home/user/in", .read_only = true}};
    struct world *w = *state;
    struct sandbox_request r = world_request();
    struct answer a = {0};
    char body[4096];

    assert_true(make(w, "a").good && make(w, "b").good);
    r.mounts = mounts;
    r.n_mounts = ARRAY_SIZE(mounts);
    core_sandbox_create(w->core, &r, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    assert_true(a.good);
    assert_int_equal(fake_mount(w->fake, 0).number, number_of(w, "b"));
    assert_int_equal(fake_mount(w->fake, 0).flags, 0);
    assert_int_equal(fake_mount(w->fake, 1).number, number_of(w, "a"));
    assert_int_equal(fake_mount(w->fake, 1).flags, PRIVSEP_MOUNT_READ_ONLY);
    assert_int_equal(fake_mount(w->fake, 2).number, 0);
    fake_init_body(w->fake, body, sizeof(body));
    assert_non_null(strstr(body, "{\"path\":\"/data\",\"place\":0},"
                                 "{\"path\":\"/home/user/in\",\"place\":1}"));
}

static void mounts_that_are_wrong_are_refused(void **state)
{
    static const char *const paths[] = {"",        "v",       "/",      "/v/",
                                        "/a//b",   "/a/../b", "/./b",   "/proc",
                                        "/proc/x", "/sys/y",  "/dev/z", "/run/volumes/0"};
    struct volume_mount mounts[2] = {{0}};
    struct world *w = *state;
    struct sandbox_request r = world_request();

    assert_true(make(w, "a").good && make(w, "b").good);
    assert_true(make_of(w, "other", "theirs", 4 * MIB).good);
    r.mounts = mounts;
    r.n_mounts = 1;
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        mounts[0] = (struct volume_mount){.name = "a", .path = paths[i]};
        assert_int_equal(world_create_fails(w, &r).why.code, ERR_INVALID);
    }
    mounts[0] = (struct volume_mount){.name = "a", .path = "/v"};
    mounts[1] = (struct volume_mount){.name = "b", .path = "/v/b"};
    r.n_mounts = 2;
    assert_int_equal(world_create_fails(w, &r).why.code, ERR_INVALID);
    r.n_mounts = PRIVSEP_CREATE_VOLUMES + 1; /* refused before any is looked at */
    assert_int_equal(world_create_fails(w, &r).why.code, ERR_INVALID);
    assert_int_equal(box_with(w, "theirs", true).why.code, ERR_NOT_FOUND);
    assert_int_equal(box_with(w, "none", true).why.code, ERR_NOT_FOUND);
    assert_int_equal(world_rows(w), 0);
}

static void one_writes_or_many_read(void **state)
{
    struct world *w = *state;
    struct answer writer, refused, one, two;

    assert_true(make(w, "x").good);
    writer = box_with(w, "x", false);
    assert_true(writer.good);
    refused = box_with(w, "x", true);
    assert_int_equal(refused.why.code, ERR_CONFLICT);
    assert_non_null(strstr(refused.why.text, writer.id)); /* it says who has it */
    assert_int_equal(remove_volume(w, "x").why.code, ERR_CONFLICT);
    end_box(w, writer.id);
    one = box_with(w, "x", true);
    two = box_with(w, "x", true);
    assert_true(one.good && two.good);
    assert_int_equal(box_with(w, "x", false).why.code, ERR_CONFLICT);
    end_box(w, one.id);
    end_box(w, two.id);
    assert_true(remove_volume(w, "x").good);
}

/* Files alone: it has no volume, but needs it again; frozen, it has it still. */
static void a_pause_with_the_files_lends_it(void **state)
{
    struct world *w = *state;
    struct answer first, second, back;

    assert_true(make(w, "x").good);
    first = box_with(w, "x", false);
    assert_true(first.good && pause_files(w, first.id).good);
    assert_int_equal(remove_volume(w, "x").why.code, ERR_CONFLICT);
    second = box_with(w, "x", false);
    assert_true(second.good);
    back = resume(w, first.id);
    assert_false(back.good);
    assert_int_equal(back.why.code, ERR_CONFLICT);
    assert_non_null(strstr(back.why.text, second.id));
    assert_int_equal(core_sandbox_find(w->core, "default", first.id)->state, SANDBOX_KEPT);
    end_box(w, second.id);
    world_stop_core(w);
    world_start_core(w); /* what it has is in its row */
    assert_true(resume(w, first.id).good);
    assert_int_equal(fake_mount(w->fake, 0).number, number_of(w, "x"));
    assert_int_equal(box_with(w, "x", true).why.code, ERR_CONFLICT);
}

struct forked {
    unsigned calls;
    char id[IDS_SANDBOX_SIZE];
    struct err why;
};

static void on_forked(void *arg, const struct core_fork *forks, size_t n, const struct err *why)
{
    struct forked *f = arg;

    f->calls++;
    if (n == 1)
        memcpy(f->id, forks[0].id, sizeof(f->id));
    if (why)
        f->why = *why;
}

static void forks_read_what_their_source_reads(void **state)
{
    struct world *w = *state;
    struct forked refused = {0}, made = {0};
    struct answer box;

    assert_true(make(w, "x").good);
    box = box_with(w, "x", false);
    core_sandbox_fork(w->core, "default", box.id,
                      &(struct core_fork_request){.count = 1, .ttl_ms = 60000}, on_forked,
                      &refused);
    world_run_until(w, &refused.calls, 1);
    assert_int_equal(refused.why.code, ERR_CONFLICT);
    end_box(w, box.id);
    box = box_with(w, "x", true);
    core_sandbox_fork(w->core, "default", box.id,
                      &(struct core_fork_request){.count = 1, .ttl_ms = 60000}, on_forked, &made);
    world_run_until(w, &made.calls, 1);
    assert_true(made.id[0]);
    assert_int_equal(fake_mount(w->fake, 0).flags, PRIVSEP_MOUNT_READ_ONLY);
    end_box(w, box.id);
    assert_int_equal(remove_volume(w, "x").why.code, ERR_CONFLICT); /* the fork has it */
}

/* cayd's own look is for the error: privd decides. */
static void what_privd_refuses_ends_the_create(void **state)
{
    struct world *w = *state;
    struct answer a;

    assert_true(make(w, "x").good);
    fake_set_volume(w->fake, number_of(w, "x"), "vanother-tenants");
    a = box_with(w, "x", false);
    assert_false(a.good);
    assert_int_equal(fake_counts(w->fake).live, 0);
    assert_int_equal(world_rows(w), 0);
}

/* -- directories of the host ------------------------------------------------------------------- */

static void has_host_dirs(struct world *w, const char *third)
{
    world_stop_core(w);
    memset(w->config.host_dirs, 0, sizeof(w->config.host_dirs));
    assert_null(host_dir_parse("deps:/srv/deps:other,more", &w->config.host_dirs[1]));
    assert_null(host_dir_parse(third, &w->config.host_dirs[2]));
    world_start_core(w);
}

/* Of two directories, or of one where the second is NULL, at /v and /w, and of tenant. */
static struct answer box_of(struct world *w, const char *tenant, const char *one, const char *two)
{
    struct volume_mount mounts[] = {{.of_host = true, .path = "/v"},
                                    {.of_host = true, .path = "/w"}};
    struct sandbox_request r = world_request();
    struct answer a = {0};

    r.tenant = tenant;
    r.mounts = mounts;
    r.n_mounts = two ? 2 : 1;
    (void)snprintf(mounts[0].name, sizeof(mounts[0].name), "%s", one);
    (void)snprintf(mounts[1].name, sizeof(mounts[1].name), "%s", two ? two : "");
    core_sandbox_create(w->core, &r, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    return a;
}

static void a_directory_of_the_host_is_one_that_its_tenant_may_have(void **state)
{
    struct world *w = *state;
    struct answer none, theirs;
    char name[PRIVSEP_OWNER_SIZE + 1], body[4096];

    has_host_dirs(w, "sixteen-letters_:/srv/models");
    assert_true(box_of(w, "default", "sixteen-letters_", NULL).good);
    assert_int_equal(fake_mount(w->fake, 0).number, 3);
    assert_int_equal(fake_mount(w->fake, 0).flags, PRIVSEP_MOUNT_HOST_DIR);
    fake_host_dir(w->fake, name);
    assert_string_equal(name, "sixteen-letters_");
    fake_init_body(w->fake, body, sizeof(body));
    assert_non_null(strstr(body, "{\"path\":\"/v\",\"place\":0}"));
    assert_true(box_of(w, "other", "deps", "sixteen-letters_").good);
    assert_int_equal(fake_mount(w->fake, 0).number, 2);
    assert_int_equal(fake_mount(w->fake, 1).number, 3);
    /* Another tenant's is answered as one that is not there. */
    none = box_of(w, "default", "deqs", NULL);
    theirs = box_of(w, "default", "deps", NULL);
    assert_int_equal(none.why.code, ERR_NOT_FOUND);
    assert_int_equal(theirs.why.code, ERR_NOT_FOUND);
    *strstr(none.why.text, "deqs") = ' ';
    *strstr(theirs.why.text, "deps") = ' ';
    none.why.text[strcspn(none.why.text, "q")] = 'p';
    assert_string_equal(none.why.text, theirs.why.text);
    assert_string_equal(none.why.hint, theirs.why.hint);
    assert_int_equal(box_of(w, "other", "deps", "deps").why.code, ERR_INVALID); /* twice */
    assert_int_equal(box_of(w, "others", "deps", NULL).why.code, ERR_NOT_FOUND);
    assert_int_equal(box_of(w, "other,more", "deps", NULL).why.code, ERR_NOT_FOUND);
}

static void one_that_is_taken_away_is_missed_at_the_resume(void **state)
{
    struct world *w = *state;
    struct answer a, b;

    has_host_dirs(w, "models:/srv/models");
    a = box_of(w, "default", "models", NULL);
    assert_true(a.good && pause_files(w, a.id).good);
    has_host_dirs(w, "models:/srv/models:other");
    b = resume(w, a.id);
    assert_int_equal(b.why.code, ERR_NOT_FOUND);
    assert_non_null(strstr(b.why.text, "models"));
    has_host_dirs(w, "models:/srv/others:default");
    assert_true(resume(w, a.id).good);
    assert_int_equal(fake_mount(w->fake, 0).flags, PRIVSEP_MOUNT_HOST_DIR);
    end_box(w, a.id);
}

/* -- contents without a sandbox ---------------------------------------------------------------- */

static struct answer serve(struct world *w, const char *name, bool writes)
{
    struct answer a = {0};

    core_volume_serve(w->core, core_volume_find(w->core, "default", name)->id, writes,
                      world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    return a;
}

static void contents_are_served_by_one_that_no_call_finds(void **state)
{
    struct world *w = *state;
    char token[CORE_TOKEN_SIZE + 1], body[512];
    const struct volume *v;
    struct answer a, b;

    assert_true(make(w, "data").good);
    v = core_volume_find(w->core, "default", "data");
    core_sandbox_token(w->core, v->id, token);
    assert_true(core_volume_is_token(w->core, v->id, token));
    assert_false(core_volume_is_token(w->core, "vnone", token));
    token[0] ^= 1;
    assert_false(core_volume_is_token(w->core, v->id, token));
    a = serve(w, "data", true);
    b = serve(w, "data", false);
    assert_true(a.good && b.good);
    assert_string_equal(a.id, b.id);
    assert_int_equal(fake_counts(w->fake).creates, 1);
    fake_init_body(w->fake, body, sizeof(body));
    assert_non_null(strstr(body, "serveVolume"));
    assert_null(core_sandbox_find(w->core, "default", a.id));
    assert_int_equal(core_tenant_sandboxes(w->core, "default"), 1); /* it counts */
}

static void what_serves_makes_way(void **state)
{
    struct world *w = *state;
    struct answer a, b;

    assert_true(make(w, "data").good);
    a = serve(w, "data", true);
    assert_true(a.good);
    b = box_with(w, "data", false);
    assert_true(b.good);
    assert_false(fake_lives(w->fake, a.id));
    assert_int_equal(fake_counts(w->fake).volume_ends, 1);
    a = serve(w, "data", false);
    assert_int_equal(a.why.code, ERR_CONFLICT);
    assert_non_null(strstr(a.why.text, b.id));
    end_box(w, b.id);
    b = box_with(w, "data", true);
    assert_int_equal(serve(w, "data", true).why.code, ERR_CONFLICT);
    a = serve(w, "data", false);
    assert_true(a.good);
    assert_int_equal(fake_mount(w->fake, 0).flags, PRIVSEP_MOUNT_READ_ONLY);
    end_box(w, b.id);
    assert_true(serve(w, "data", true).good); /* another, which writes */
    assert_false(fake_lives(w->fake, a.id));
    assert_true(remove_volume(w, "data").good);
    assert_int_equal(fake_counts(w->fake).live, 0);
}

static void calls_under_way_keep_it(void **state)
{
    struct world *w = *state;
    struct answer a, b;

    assert_true(make(w, "data").good);
    fake_set(w->fake, FAKE_VOLUME_BUSY, 1);
    a = serve(w, "data", true);
    b = box_with(w, "data", false);
    assert_int_equal(b.why.code, ERR_CONFLICT);
    assert_non_null(strstr(b.why.text, "under way"));
    assert_true(fake_lives(w->fake, a.id));
    assert_int_equal(core_tenant_sandboxes(w->core, "default"), 1);
    fake_set(w->fake, FAKE_VOLUME_BUSY, 0);
    assert_true(box_with(w, "data", false).good);
}

static void a_resume_waits_as_a_create_does(void **state)
{
    struct world *w = *state;
    struct answer a, box;

    assert_true(make(w, "data").good);
    box = box_with(w, "data", false);
    assert_true(box.good && pause_files(w, box.id).good);
    a = serve(w, "data", true);
    assert_true(a.good);
    fake_set(w->fake, FAKE_VOLUME_BUSY, 1);
    assert_int_equal(resume(w, box.id).why.code, ERR_CONFLICT);
    fake_set(w->fake, FAKE_VOLUME_BUSY, 0);
    assert_true(resume(w, box.id).good);
    assert_false(fake_lives(w->fake, a.id));
    end_box(w, box.id);
}

static bool nothing_lives(struct world *w)
{
    return fake_counts(w->fake).live == 0;
}

static void a_start_ends_what_served(void **state)
{
    struct world *w = *state;
    struct answer a;

    assert_true(make(w, "data").good);
    a = serve(w, "data", true);
    assert_true(a.good);
    world_stop_core(w);
    world_start_core(w);
    world_run_until_true(w, nothing_lives);
    assert_true(serve(w, "data", true).good);
    fake_end(w->fake, a.id, PRIVSEP_CAUSE_OOM);
    assert_true(serve(w, "data", true).good);
}

static void what_cannot_be_made_is_said(void **state)
{
    struct world *w = *state;

    assert_true(make(w, "data").good);
    fake_set(w->fake, FAKE_FAIL_CREATES, 1);
    assert_false(serve(w, "data", true).good);
    assert_true(serve(w, "data", true).good);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD(one_is_made_found_and_removed),
        WORLD(what_is_wrong_is_refused_and_leaves_nothing),
        WORLD(a_quota_counts_them_and_their_size),
        WORLD(one_that_was_not_confirmed_goes),
        WORLD(a_removal_is_finished_by_the_next_start),
        WORLD(what_both_have_is_compared),
        WORLD(privd_and_the_agent_are_told),
        WORLD(mounts_that_are_wrong_are_refused),
        WORLD(one_writes_or_many_read),
        WORLD(a_pause_with_the_files_lends_it),
        WORLD(forks_read_what_their_source_reads),
        WORLD(what_privd_refuses_ends_the_create),
        WORLD(a_directory_of_the_host_is_one_that_its_tenant_may_have),
        WORLD(one_that_is_taken_away_is_missed_at_the_resume),
        WORLD(contents_are_served_by_one_that_no_call_finds),
        WORLD(what_serves_makes_way),
        WORLD(calls_under_way_keep_it),
        WORLD(a_resume_waits_as_a_create_does),
        WORLD(a_start_ends_what_served),
        WORLD(what_cannot_be_made_is_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
