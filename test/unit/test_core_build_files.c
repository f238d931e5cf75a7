/* Archives for builds: whose go when all tenants together have as many as they may. */
#include "core/build_files_internal.h"
#include "core/core_internal.h"
#include "core_world.h"

#include <stdio.h>
#include <unistd.h>

#define TENANTS (unsigned)(CORE_BUILD_FILES_ALL / CORE_BUILD_FILES_BYTES)
#define EACH    (unsigned)(CORE_BUILD_FILES_BYTES / CORE_BUILD_FILE_MAX)

static void hash_number(unsigned number, char out[static CORE_BUILD_HASH_MAX + 1])
{
    (void)snprintf(out, CORE_BUILD_HASH_MAX + 1, "%064x", number);
}

/* Nothing is written: only the number of bytes is told. */
static enum err_code upload(struct world *w, const char *tenant, unsigned number)
{
    char hash[CORE_BUILD_HASH_MAX + 1], token[CORE_BUILD_UPLOAD_TOKEN];
    struct core_build_upload u = {.fd = -1};
    struct err e = {0};

    hash_number(number, hash);
    core_build_upload_token(w->core, tenant, hash, token);
    if (core_build_upload_begin(w->core, hash, token, &u, &e) != ERR_OK)
        return e.code;
    close(u.fd);
    return core_build_upload_end(w->core, u.number, CORE_BUILD_FILE_MAX, true, &e);
}

static bool present(struct world *w, const char *tenant, unsigned number)
{
    char hash[CORE_BUILD_HASH_MAX + 1];
    bool is_there = false;
    struct err e;

    hash_number(number, hash);
    assert_int_equal(core_build_file_present(w->core, tenant, hash, &is_there, &e), ERR_OK);
    return is_there;
}

static unsigned left(struct world *w)
{
    unsigned n = 0;
    char tenant[16];

    for (unsigned t = 0; t < TENANTS; t++) {
        (void)snprintf(tenant, sizeof(tenant), "t%u", t);
        for (unsigned i = 0; i < EACH; i++)
            n += present(w, tenant, i);
    }
    return n;
}

static void fill(struct world *w)
{
    char tenant[16];

    for (unsigned t = 0; t < TENANTS; t++) {
        (void)snprintf(tenant, sizeof(tenant), "t%u", t);
        for (unsigned i = 0; i < EACH; i++)
            assert_int_equal(upload(w, tenant, i), ERR_OK);
    }
    assert_int_equal(left(w), TENANTS * EACH);
}

static void a_newcomer_takes_of_who_has_most(void **state)
{
    struct world *w = *state;

    fill(w);
    assert_int_equal(upload(w, "new", 1), ERR_OK);
    assert_true(present(w, "new", 1));
    assert_int_equal(left(w), TENANTS * EACH - 1);
}

static void who_has_most_gives_its_own(void **state)
{
    struct world *w = *state;
    bool lost_own = false;

    fill(w);
    assert_int_equal(upload(w, "t3", 77), ERR_OK);
    assert_true(present(w, "t3", 77));
    for (unsigned i = 0; i < EACH; i++)
        lost_own |= !present(w, "t3", i);
    assert_true(lost_own);
}

/* A fast client's archives are used in one millisecond: by the clock alone the newest would go. */
static void of_uses_in_one_millisecond_the_first_goes(void **state)
{
    struct world *w = *state;

    for (unsigned i = 0; i < EACH; i++)
        assert_int_equal(upload(w, "t", i), ERR_OK);
    assert_true(present(w, "t", 0)); /* a use of its own */
    for (struct build_file *f = w->core->build_files->files; f; f = f->next)
        f->used_real_ms = INT64_MAX - 1; /* before the next one */
    for (unsigned i = EACH; i < EACH + 2; i++) {
        assert_int_equal(upload(w, "t", i), ERR_OK);
        w->core->build_files->files->used_real_ms = INT64_MAX;
    }
    assert_false(present(w, "t", 1));
    assert_false(present(w, "t", 2));
    assert_true(present(w, "t", 0));
    assert_true(present(w, "t", 3));
}

static void what_is_being_received_stays_and_takes_no_more_than_its_share(void **state)
{
    struct world *w = *state;
    char hash[CORE_BUILD_HASH_MAX + 1], token[CORE_BUILD_UPLOAD_TOKEN];
    struct core_build_upload u;
    struct err e;

    fill(w);
    hash_number(5, hash);
    core_build_upload_token(w->core, "new", hash, token);
    for (unsigned i = 0; i < CORE_BUILD_UPLOADS; i++) {
        enum err_code code = core_build_upload_begin(w->core, hash, token, &u, &e);

        if (i + 1 < CORE_BUILD_UPLOADS) {
            assert_int_equal(code, ERR_OK);
            close(u.fd);
        } else {
            assert_int_equal(code, ERR_NO_SPACE); /* it would have as much as those with most */
        }
    }
    assert_int_equal(left(w), TENANTS * EACH - (CORE_BUILD_UPLOADS - 1));
}

static bool none_is_old(struct world *w)
{
    for (struct build_file *f = w->core->build_files->files; f; f = f->next)
        if (f->used_real_ms == 1)
            return false;
    return true;
}

/* No call comes: they go by the timer, which is armed again. */
static void what_was_not_used_for_long_goes_by_itself(void **state)
{
    struct world *w = *state;
    struct build_files *all = w->core->build_files;

    assert_int_equal(upload(w, "t", 1), ERR_OK);
    assert_int_equal(upload(w, "t", 2), ERR_OK);
    assert_true(timer_armed(&all->sweep));
    all->files->used_real_ms = 1; /* the second's */
    assert_false(none_is_old(w));
    timers_set(&w->core->timers, &all->sweep, 0);
    world_run_until_true(w, none_is_old);
    assert_true(timer_armed(&all->sweep));
    assert_true(present(w, "t", 1));
    assert_false(present(w, "t", 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD(a_newcomer_takes_of_who_has_most),
        WORLD(who_has_most_gives_its_own),
        WORLD(of_uses_in_one_millisecond_the_first_goes),
        WORLD(what_is_being_received_stays_and_takes_no_more_than_its_share),
        WORLD(what_was_not_used_for_long_goes_by_itself),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
