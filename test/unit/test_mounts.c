/* The mounts of a create, as clients ask for them: names with ":ro", the two kinds, their order and
 * number, and the fields that refusals name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/mounts.h"

#include <string.h>

#define MANY "{\"name\": \"a\", \"path\": \"/a\"}"

static enum err_code read_texts(const char *volumes, const char *host_dirs, struct mounts *m,
                                json_t **json, struct err *e)
{
    json_t *v = volumes ? json_loads(volumes, 0, NULL) : NULL;
    json_t *h = host_dirs ? json_loads(host_dirs, 0, NULL) : NULL;

    assert_true((v || !volumes) && (h || !host_dirs));
    *m = (struct mounts){.n = 0};
    *json = json_pack("[o*, o*]", v, h); /* keeps the paths */
    assert_non_null(*json);
    return mounts_read(m, v, h, false, e);
}

static void test_both_kinds(void **state)
{
    struct mounts m;
    struct err e;
    json_t *json;

    assert_int_equal(read_texts("[{\"name\": \"data\", \"path\": \"/v\"},"
                                " {\"name\": \"x:ro\", \"path\": \"/w/x\", \"readOnly\": false},"
                                " {\"name\": \":ro\", \"path\": \"/y\", \"readOnly\": true}]",
                                "[{\"name\": \"models\", \"path\": \"/m\"}]", &m, &json, &e),
                     ERR_OK);
    assert_int_equal(m.n, 4);
    assert_string_equal(m.list[0].name, "data");
    assert_string_equal(m.list[0].path, "/v");
    assert_false(m.list[0].read_only || m.list[0].of_host);
    assert_string_equal(m.list[1].name, "x");
    assert_true(m.list[1].read_only);
    assert_string_equal(m.list[2].name, ":ro"); /* no name is before it */
    assert_true(m.list[2].read_only);
    assert_true(m.list[3].of_host);
    assert_string_equal(m.list[3].path, "/m");
    json_decref(json);
    assert_int_equal(read_texts(NULL, NULL, &m, &json, &e), ERR_OK);
    assert_int_equal(m.n, 0);
    json_decref(json);
}

static void test_a_name_is_not_cut_to_another(void **state)
{
    char longer[CORE_VOLUME_NAME_SIZE + 40];
    struct mounts m = {.n = 0};
    struct err e;

    memset(longer, 'a', sizeof(longer));
    longer[sizeof(longer) - 1] = 0;
    assert_int_equal(mounts_add_volume(&m, "volumes", longer, "/v", false, &e), ERR_OK);
    assert_int_equal(strlen(m.list[0].name), CORE_VOLUME_NAME_SIZE); /* a volume's has one less */
}

static void test_refusals_name_the_field(void **state)
{
    static const struct {
        const char *volumes, *host_dirs, *says;
    } wrong[] = {
        {"[null]", NULL, "volumeMounts: each has"},
        {"[{\"name\": \"v\"}]", NULL, "volumeMounts: each has"},
        {"[{\"name\": 1, \"path\": \"/v\"}]", NULL, "volumeMounts: each has"},
        {"[{\"name\": \"v\", \"path\": \"/v\", \"readOnly\": 1}]", NULL, "volumeMounts: each has"},
        {"[{\"name\": \"v\", \"path\": \"v\"}]", NULL, "volumeMounts: \"v\" is no path"},
        {NULL, "[{\"name\": \"d\", \"path\": \"/proc/x\"}]", "hostMounts: \"/proc/x\" is no path"},
        {NULL, "[{\"name\": \"d\", \"path\": \"/d\", \"readOnly\": false}]",
         "hostMounts: 'd': they are read-only"},
        {"[" MANY "," MANY "," MANY "]", "[" MANY "," MANY "]",
         "volumeMounts, hostMounts: 5 of them; a sandbox can have 4"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        struct mounts m;
        struct err e;
        json_t *json;

        assert_int_equal(read_texts(wrong[i].volumes, wrong[i].host_dirs, &m, &json, &e),
                         ERR_INVALID);
        if (strncmp(e.text, wrong[i].says, strlen(wrong[i].says)) != 0)
            fail_msg("not \"%s\": %s", wrong[i].says, e.text);
        json_decref(json);
    }
}

static void test_one_by_one_there_are_no_more(void **state)
{
    struct mounts m = {.n = 0};
    struct err e;

    for (size_t i = 0; i < PRIVSEP_CREATE_VOLUMES; i++)
        assert_int_equal(mounts_add_volume(&m, "volumes", "v", "/v", false, &e), ERR_OK);
    assert_int_equal(mounts_add_volume(&m, "volumes", "v", "/v", false, &e), ERR_INVALID);
    assert_int_equal(m.n, PRIVSEP_CREATE_VOLUMES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_kinds),
        cmocka_unit_test(test_a_name_is_not_cut_to_another),
        cmocka_unit_test(test_refusals_name_the_field),
        cmocka_unit_test(test_one_by_one_there_are_no_more),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
