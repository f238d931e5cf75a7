/* Snapshots: to which of two the name belongs. */
#include "core/internal.h"
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

static struct answer snapshot(struct world *w, const char *sandbox, const char *name)
{
    struct answer a = {0};

    core_snapshot_create(w->core, "default", sandbox, name, false, on_snapshot, &a);
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

int main(void)
{
    const struct CMUnitTest tests[] = {WORLD(a_name_moves_to_the_newer),
                                       WORLD(one_that_is_not_written_takes_no_name)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
