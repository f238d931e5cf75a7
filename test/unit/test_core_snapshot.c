/* Snapshots: to which of two the name belongs, sandboxes made of one boot anew on; forks: what they
 * have of the metadata. */
#include "core/core.h"
#include "core/fork.h"
#include "core/snapshot.h"
#include "core_world.h"

#include <string.h>

#define REFUSE_READY                                                                    \
    "CREATE TRIGGER refuse BEFORE UPDATE OF state ON snapshots WHEN NEW.state = 1 AND " \
    "OLD.state = 0 BEGIN SELECT RAISE(ABORT, 'refused'); END"

static void on_snapshot(void *arg, const struct snapshot *s, const struct err *why)
{
    struct answer *a = arg;

    a->calls++;
    a->good = s != NULL;
    if (s)
        memcpy(a->id, s->id, sizeof(a->id));
    if (why)
        a->why = *why;
}

static void on_deleted(void *arg, const struct err *why)
{
    struct answer *a = arg;

    a->calls++;
    a->good = !why;
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

static struct answer snapshot(struct world *w, const char *sandbox, const char *name)
{
    struct answer a = {0};

    core_snapshot_create(w->core, "default", sandbox, name, SNAPSHOT_PLAIN, on_snapshot, &a);
    world_run_until(w, &a.calls, 1);
    return a;
}

static const char *named(struct world *w, const char *name)
{
    const struct snapshot *s = core_snapshot_find(w->core, "default", name);

    return s ? s->id : "";
}

static void a_name_moves_to_the_newer(void **state)
{
    struct world *w = *state;
    char box[IDS_SANDBOX_SIZE];
    struct answer a, b;

    world_create_default(w, box);
    a = snapshot(w, box, "x");
    assert_true(a.good);
    assert_string_equal(named(w, "x"), a.id);
    b = snapshot(w, box, "x");
    assert_true(b.good);
    assert_string_equal(named(w, "x"), b.id);
    assert_string_equal(named(w, a.id), a.id);
    assert_int_equal(world_query(w, "SELECT count(*) FROM snapshots WHERE name = 'x'"), 1);
}

static void one_that_is_not_written_takes_no_name(void **state)
{
    struct world *w = *state;
    char box[IDS_SANDBOX_SIZE];
    struct answer a, b;

    world_create_default(w, box);
    a = snapshot(w, box, "x");
    world_query(w, REFUSE_READY);
    b = snapshot(w, box, "x");
    assert_false(b.good);
    assert_string_equal(named(w, "x"), a.id);
    assert_int_equal(world_query(w, "SELECT count(*) FROM snapshots WHERE name = 'x' AND "
                                    "state = 1"),
                     1);
    world_query(w, "DROP TRIGGER refuse");
    assert_true(snapshot(w, box, "x").good);
}

/* Its source stands still: that is told, and it is let go on, or seen as what it is. */
static void a_source_that_does_not_go_on_is_paused(void **state)
{
    struct world *w = *state;
    char box[IDS_SANDBOX_SIZE];
    struct answer a, resumed = {0};
    const struct sandbox *s;

    world_create_default(w, box);
    fake_set(w->fake, FAKE_STUCK_COPIES, 1);
    a = snapshot(w, box, "x");
    assert_false(a.good);
    assert_int_equal(a.why.code, ERR_INTERNAL);
    for (int i = 0; i < 1000 && fake_is_frozen(w->fake, box); i++)
        world_run_for(w, 2);
    assert_false(fake_is_frozen(w->fake, box));
    assert_true(snapshot(w, box, "x").good);

    fake_set(w->fake, FAKE_STUCK_COPIES, 1);
    fake_set(w->fake, FAKE_FAIL_THAWS, 1);
    assert_false(snapshot(w, box, "y").good);
    s = core_sandbox_find(w->core, "default", box);
    for (int i = 0; i < 1000 && s->state != SANDBOX_PAUSED; i++)
        world_run_for(w, 2);
    assert_int_equal(s->state, SANDBOX_PAUSED);
    assert_string_equal(core_pause_reason_name(s->pause_reason), "error");
    assert_true(fake_is_frozen(w->fake, box));
    assert_int_equal(world_query(w, "SELECT state FROM sandboxes"), SANDBOX_PAUSED);
    core_sandbox_resume(w->core, "default", box, 0, false, world_on_answer, &resumed);
    world_run_until(w, &resumed.calls, 1);
    assert_true(resumed.good);
    assert_int_equal(s->state, SANDBOX_RUNNING);
    assert_false(fake_is_frozen(w->fake, box));
}

/* The key that an MCP session is found by again is the source's alone. */
static void a_fork_has_the_metadata_but_for_cays_own(void **state)
{
    struct world *w = *state;
    struct sandbox_request r = world_request();
    struct forked f = {0};
    const struct sandbox *s;
    char box[IDS_SANDBOX_SIZE];

    r.metadata = json_pack("{s:s, s:s, s:s, s:s}", "cay.mcp", "1", "user", "u", "cay.mcp.session",
                           "some", "cayenne", "red");
    world_create(w, &r, box);
    json_decref(r.metadata);
    core_sandbox_fork(w->core, "default", box,
                      &(struct core_fork_request){.count = 1, .ttl_ms = 60000}, on_forked, &f);
    world_run_until(w, &f.calls, 1);
    s = core_sandbox_find(w->core, "default", f.id);
    assert_non_null(s);
    assert_int_equal(json_object_size(s->metadata), 2);
    assert_non_null(json_object_get(s->metadata, "user"));
    assert_non_null(json_object_get(s->metadata, "cayenne"));
    assert_int_equal(json_object_size(core_sandbox_find(w->core, "default", box)->metadata), 4);
}

/* Environment and snapshot are asked for at once: whichever fails, or comes last, the call ends once,
 * and no snapshot is left. */
static void a_fork_that_has_one_of_its_halves_ends_without_the_other(void **state)
{
    const struct core_fork_request r = {.count = 1, .ttl_ms = 60000};
    struct world *w = *state;
    struct forked held = {0}, stuck = {0}, silent = {0};
    char box[IDS_SANDBOX_SIZE];

    world_create_default(w, box);
    fake_set(w->fake, FAKE_HOLD_COPIES, 1);
    core_sandbox_fork(w->core, "default", box, &r, on_forked, &held);
    world_run_for(w, 50);
    assert_int_equal(held.calls, 0);
    fake_set(w->fake, FAKE_HOLD_COPIES, 0);
    world_run_until(w, &held.calls, 1);
    assert_true(held.id[0] != '\0');

    fake_set(w->fake, FAKE_STUCK_COPIES, 1);
    core_sandbox_fork(w->core, "default", box, &r, on_forked, &stuck);
    world_run_until(w, &stuck.calls, 1);
    assert_true(stuck.id[0] == '\0' && stuck.why.code == ERR_INTERNAL);

    fake_set(w->fake, FAKE_AGENT_SILENT, 1);
    core_sandbox_fork(w->core, "default", box, &r, on_forked, &silent);
    world_run_for(w, 50);
    assert_int_equal(silent.calls, 0);
    world_stop_core(w);
    assert_int_equal(silent.calls, 1);
    assert_int_equal(silent.why.code, ERR_CANCELED);
    fake_set(w->fake, FAKE_AGENT_SILENT, 0);
    world_start_core(w);
    for (int i = 0; i < 1000 && world_query(w, "SELECT count(*) FROM snapshots") > 0; i++)
        world_run_for(w, 2);
    assert_int_equal(world_query(w, "SELECT count(*) FROM snapshots"), 0);
}

/* The agent does not answer while its sandbox stands still for the snapshot: it is asked again, once. */
static void a_fork_asks_again_for_what_its_source_did_not_say_as_it_stood_still(void **state)
{
    const struct core_fork_request r = {.count = 1, .ttl_ms = 60000};
    struct world *w = *state;
    struct forked late = {0}, never = {0};
    char box[IDS_SANDBOX_SIZE];

    world_create_default(w, box);
    world_run_for(w, 1100); /* no socket is left that is to be used */
    fake_set(w->fake, FAKE_HOLD_COPIES, 1);
    fake_set(w->fake, FAKE_CONNECT_ERRNO, EIO);
    core_sandbox_fork(w->core, "default", box, &r, on_forked, &late);
    world_run_for(w, 50);
    assert_int_equal(late.calls, 0);
    fake_set(w->fake, FAKE_CONNECT_ERRNO, 0);
    fake_set(w->fake, FAKE_HOLD_COPIES, 0);
    world_run_until(w, &late.calls, 1);
    assert_true(late.id[0] != '\0');

    world_run_for(w, 1100);
    fake_set(w->fake, FAKE_CONNECT_ERRNO, EIO);
    core_sandbox_fork(w->core, "default", box, &r, on_forked, &never);
    world_run_until(w, &never.calls, 1);
    assert_true(never.id[0] == '\0' && never.why.code == ERR_UNAVAILABLE);
    fake_set(w->fake, FAKE_CONNECT_ERRNO, 0);
}

static void a_fork_has_the_name_and_the_times_that_are_asked_for(void **state)
{
    struct core_fork_request r = {.count = 1, .idle_ms = 60000, .name = "fork"};
    struct world *w = *state;
    struct forked f = {0}, taken = {0}, two = {0}, endless = {0};
    const struct sandbox *s;
    char box[IDS_SANDBOX_SIZE];

    world_create_default(w, box);
    core_sandbox_fork(w->core, "default", box, &r, on_forked, &f);
    world_run_until(w, &f.calls, 1);
    s = core_sandbox_find(w->core, "default", f.id);
    assert_non_null(s);
    assert_string_equal(s->name, "fork");
    assert_int_equal(s->idle_ms, 60000);
    assert_int_equal(s->last_end_real_ms, 0);
    core_sandbox_fork(w->core, "default", box, &r, on_forked, &taken);
    world_run_until(w, &taken.calls, 1);
    assert_int_equal(taken.why.code, ERR_EXISTS);
    r.count = 2;
    r.name = "forks";
    core_sandbox_fork(w->core, "default", box, &r, on_forked, &two);
    world_run_until(w, &two.calls, 1);
    assert_int_equal(two.why.code, ERR_INVALID);
    core_sandbox_fork(w->core, "default", box, &(struct core_fork_request){.count = 1}, on_forked,
                      &endless);
    world_run_until(w, &endless.calls, 1);
    assert_int_equal(endless.why.code, ERR_INVALID);
}

/* Not on another copy of the snapshot, whose number may be another tenant's by then. */
static void one_of_a_snapshot_boots_anew_on_its_own_files(void **state)
{
    struct world *w = *state;
    struct sandbox_request r = world_request();
    struct answer made, paused = {0}, resumed = {0};
    char box[IDS_SANDBOX_SIZE], id[IDS_SANDBOX_SIZE];
    uint32_t of_snapshot, own;

    world_create_default(w, box);
    made = snapshot(w, box, "x");
    of_snapshot = core_snapshot_find(w->core, "default", made.id)->number;
    r.template_name = made.id;
    world_create(w, &r, id);
    core_sandbox_pause(w->core, "default", id, SANDBOX_TIER_FILES, world_on_answer, &paused);
    world_run_until(w, &paused.calls, 1);
    own = core_sandbox_find(w->core, "default", id)->kept;
    assert_true(paused.good && own != 0 && own != of_snapshot && fake_is_kept(w->fake, own));
    core_sandbox_resume(w->core, "default", id, 0, false, world_on_answer, &resumed);
    world_run_until(w, &resumed.calls, 1);
    assert_true(resumed.good);
    assert_false(fake_is_kept(w->fake, own)); /* its own were taken */
    assert_true(fake_is_kept(w->fake, of_snapshot));
}

/* Numbers are used again: one that is another's by now is neither given out nor removed. */
static void what_is_anothers_by_now_is_left_alone(void **state)
{
    struct world *w = *state;
    struct sandbox_request r = world_request();
    struct answer made, refused = {0}, deleted = {0};
    char box[IDS_SANDBOX_SIZE];
    uint32_t number;

    world_create_default(w, box);
    made = snapshot(w, box, "x");
    number = core_snapshot_find(w->core, "default", made.id)->number;
    fake_set_owner(w->fake, number, "sanother-tenants");
    r.template_name = made.id;
    core_sandbox_create(w->core, &r, world_on_answer, &refused);
    world_run_until(w, &refused.calls, 1);
    assert_false(refused.good);
    core_snapshot_delete(w->core, "default", made.id, on_deleted, &deleted);
    world_run_until(w, &deleted.calls, 1);
    assert_true(deleted.good && fake_is_kept(w->fake, number));
    assert_int_equal(world_query(w, "SELECT count(*) FROM snapshots"), 0);
}

/* At a start, by what privd says of its numbers. */
static void a_snapshot_whose_number_is_anothers_is_forgotten(void **state)
{
    struct world *w = *state;
    char box[IDS_SANDBOX_SIZE];
    struct answer a, b;
    uint32_t number;

    world_create_default(w, box);
    a = snapshot(w, box, "x");
    b = snapshot(w, box, "y");
    number = core_snapshot_find(w->core, "default", a.id)->number;
    fake_set_owner(w->fake, number, "sanother-tenants");
    world_restart_privd(w, false);
    assert_string_equal(named(w, "x"), "");
    assert_string_equal(named(w, "y"), b.id);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD(a_name_moves_to_the_newer),
        WORLD(a_source_that_does_not_go_on_is_paused),
        WORLD(one_that_is_not_written_takes_no_name),
        WORLD(a_fork_has_the_metadata_but_for_cays_own),
        WORLD(a_fork_that_has_one_of_its_halves_ends_without_the_other),
        WORLD(a_fork_asks_again_for_what_its_source_did_not_say_as_it_stood_still),
        WORLD(a_fork_has_the_name_and_the_times_that_are_asked_for),
        WORLD(one_of_a_snapshot_boots_anew_on_its_own_files),
        WORLD(what_is_anothers_by_now_is_left_alone),
        WORLD(a_snapshot_whose_number_is_anothers_is_forgotten)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
