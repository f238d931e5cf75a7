/* Snapshots as files (core/transfer.h): the queue of exports, who counts until when, and what is left of an import that did not
 * begin. Their bytes are in test_snapshot_file.py. */
#include "core/core_internal.h"
#include "core/snapshot.h"
#include "core/transfer.h"
#include "core_world.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

struct exported {
    unsigned calls;
    int fd;
    uint64_t bytes;
    struct err why;
};

static void on_exported(void *arg, int fd, uint64_t bytes, const struct err *why)
{
    struct exported *x = arg;

    x->calls++;
    x->fd = fd;
    x->bytes = bytes;
    x->why = why ? *why : (struct err){.code = ERR_OK};
}

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

static void make(struct world *w, const char *tenant, char id[static IDS_SANDBOX_SIZE])
{
    struct sandbox_request r = world_request();
    char box[IDS_SANDBOX_SIZE];
    struct answer a = {0};

    r.tenant = tenant;
    world_create(w, &r, box);
    core_snapshot_create(w->core, tenant, box, NULL, SNAPSHOT_PLAIN, on_snapshot, &a);
    world_run_until(w, &a.calls, 1);
    assert_true(a.good);
    memcpy(id, a.id, IDS_SANDBOX_SIZE);
}

static struct exported export(struct world *w, const char *tenant, const char *id)
{
    struct exported x = {0};

    core_snapshot_export(w->core, tenant, id, on_exported, &x);
    world_run_until(w, &x.calls, 1);
    return x;
}

static bool none_is_under_way(struct world *w)
{
    return !w->core->transfers;
}

static void an_export_counts_until_it_was_read(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE], other[IDS_SANDBOX_SIZE], text[8];
    size_t before = world_open_descriptors();
    struct exported x, y;
    int copy;

    make(w, "default", id);
    make(w, "other", other);
    x = export(w, "default", id);
    assert_int_equal(x.why.code, ERR_OK);
    assert_int_equal(x.bytes, 4);
    assert_int_equal(read(x.fd, text, sizeof(text)), 4);
    assert_memory_equal(text, "file", 4);
    copy = dup(x.fd);
    close(x.fd);
    world_run_for(w, 1500); /* a look finds that it is read still */
    y = export(w, "default", id);
    assert_int_equal(y.why.code, ERR_EXHAUSTED);
    y = export(w, "other", other); /* a neighbour has its own */
    assert_int_equal(y.why.code, ERR_OK);
    close(y.fd);
    close(copy);
    world_run_until_true(w, none_is_under_way);
    x = export(w, "default", id);
    assert_int_equal(x.why.code, ERR_OK);
    close(x.fd);
    world_run_until_true(w, none_is_under_way);
    assert_true(world_open_descriptors() <= before + 16); /* of the core's own connections */
}

static void exports_wait_for_each_other(void **state)
{
    struct world *w = *state;
    char ids[3][IDS_SANDBOX_SIZE];
    static const char *const tenants[] = {"default", "one", "two"};
    struct exported all[3] = {{0}};

    for (size_t i = 0; i < 3; i++)
        make(w, tenants[i], ids[i]);
    fake_set(w->fake, FAKE_HOLD_TRANSFERS, 1);
    for (size_t i = 0; i < 3; i++)
        core_snapshot_export(w->core, tenants[i], ids[i], on_exported, &all[i]);
    WORLD_RUN_UNTIL_COUNTED(w, exports, 0);
    world_run_for(w, 100);
    assert_int_equal(all[0].calls + all[1].calls + all[2].calls, 0);
    fake_set(w->fake, FAKE_HOLD_TRANSFERS, 0);
    for (size_t i = 0; i < 3; i++) {
        world_run_until(w, &all[i].calls, 1);
        assert_int_equal(all[i].why.code, ERR_OK);
        close(all[i].fd);
    }
    world_run_until_true(w, none_is_under_way);
}

static void a_refusal_is_told(void **state)
{
    static const struct {
        int status;
        enum err_code code;
    } answers[] = {{-EOPNOTSUPP, ERR_CONFLICT}, {-EALREADY, ERR_CONFLICT},
                   {-ENOSPC, ERR_NO_SPACE},     {-EAGAIN, ERR_UNAVAILABLE},
                   {-EACCES, ERR_UNAVAILABLE},  {-ENOENT, ERR_NOT_FOUND}};
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];
    struct exported x;

    make(w, "default", id);
    assert_int_equal(export(w, "other", id).why.code, ERR_NOT_FOUND);
    assert_int_equal(export(w, "default", "none").why.code, ERR_NOT_FOUND);
    for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
        fake_set(w->fake, FAKE_EXPORT_ERRNO, answers[i].status);
        x = export(w, "default", id);
        assert_int_equal(x.why.code, answers[i].code);
        assert_non_null(strstr(x.why.text, "a part of it cannot be in one"));
        assert_int_equal(!!strstr(x.why.hint, "cay template export"), x.why.code == ERR_CONFLICT);
        assert_true(none_is_under_way(w));
    }
}

/* While it waits for its turn. */
static void a_snapshot_that_has_gone_is_said(void **state)
{
    struct world *w = *state;
    char one[IDS_SANDBOX_SIZE], two[IDS_SANDBOX_SIZE];
    struct exported x = {0}, y = {0};
    struct answer gone = {0};

    make(w, "default", one);
    make(w, "other", two);
    fake_set(w->fake, FAKE_HOLD_TRANSFERS, 1);
    core_snapshot_export(w->core, "default", one, on_exported, &x);
    core_snapshot_export(w->core, "other", two, on_exported, &y);
    core_snapshot_delete(w->core, "other", two, on_deleted, &gone);
    world_run_until(w, &gone.calls, 1);
    fake_set(w->fake, FAKE_HOLD_TRANSFERS, 0);
    world_run_until(w, &x.calls, 1);
    world_run_until(w, &y.calls, 1);
    assert_int_equal(x.why.code, ERR_OK);
    close(x.fd);
    assert_int_equal(y.why.code, ERR_NOT_FOUND);
}

static void the_end_tells_who_waits(void **state)
{
    struct world *w = *state;
    char one[IDS_SANDBOX_SIZE], two[IDS_SANDBOX_SIZE];
    struct exported x = {0}, y = {0};

    make(w, "default", one);
    make(w, "other", two);
    fake_set(w->fake, FAKE_HOLD_TRANSFERS, 1);
    core_snapshot_export(w->core, "default", one, on_exported, &x);
    core_snapshot_export(w->core, "other", two, on_exported, &y);
    world_stop_core(w);
    assert_int_equal(x.calls, 1);
    assert_int_equal(y.calls, 1);
    assert_int_not_equal(x.why.code, ERR_OK);
    assert_int_not_equal(y.why.code, ERR_OK);
    fake_set(w->fake, FAKE_HOLD_TRANSFERS, 0);
    world_start_core(w);
}

/* This world has no directory of images. */
static void an_import_that_does_not_begin_leaves_nothing(void **state)
{
    struct world *w = *state;
    struct core_build_upload file = {.fd = -1};
    struct answer a = {0};
    struct err e;

    assert_int_equal(core_snapshot_import_begin(w->core, "default", "no/name", &file, &e),
                     ERR_INVALID);
    assert_int_not_equal(core_snapshot_import_begin(w->core, "default", "name", &file, &e), ERR_OK);
    assert_int_equal(file.fd, -1);
    assert_true(none_is_under_way(w));
    assert_int_equal(world_query(w, "SELECT count(*) FROM snapshots"), 0);
    core_snapshot_import_drop(w->core, 7);
    core_snapshot_import_end(w->core, "default", 7, on_snapshot, &a);
    assert_int_equal(a.why.code, ERR_TIMEOUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD(an_export_counts_until_it_was_read),
        WORLD(exports_wait_for_each_other),
        WORLD(a_refusal_is_told),
        WORLD(a_snapshot_that_has_gone_is_said),
        WORLD(the_end_tells_who_waits),
        WORLD(an_import_that_does_not_begin_leaves_nothing),
    };

    return cmocka_run_group_tests_name("core_transfer", tests, NULL, NULL);
}
