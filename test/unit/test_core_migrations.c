/* Migrations are only appended. test/unit/migrations.txt has the SHA-256 of each step of the schema, in
 * order. A step whose line differs was changed after databases had been written with it: take the
 * change back, and append a step instead. */
#include "core/store_internal.h"

#include <openssl/sha.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HEX_SIZE (2 * SHA256_DIGEST_LENGTH + 1)

static void hash(const char *sql, char out[static HEX_SIZE])
{
    unsigned char sum[SHA256_DIGEST_LENGTH];

    SHA256((const unsigned char *)sql, strlen(sql), sum);
    for (size_t i = 0; i < sizeof(sum); i++)
        (void)snprintf(out + 2 * i, 3, "%02x", sum[i]);
}

/* The next line of the file without its end; false: there is none. */
static bool next_line(FILE *f, char line[static HEX_SIZE + 1])
{
    if (!fgets(line, HEX_SIZE + 1, f))
        return false;
    line[strcspn(line, "\n")] = '\0';
    return true;
}

static void steps_are_those_that_were_released(void **state)
{
    const char *path = getenv("CAY_MIGRATIONS");
    FILE *f = path ? fopen(path, "re") : NULL;
    char line[HEX_SIZE + 1], have[HEX_SIZE];
    size_t i;

    assert_non_null(f);
    for (i = 0; store_migration(i); i++) {
        hash(store_migration(i), have);
        if (!next_line(f, line))
            fail_msg("step %zu of the schema is new: append its line to %s: %s", i, path, have);
        if (strcmp(line, have) != 0)
            fail_msg("step %zu of the schema was changed: append a step instead", i);
    }
    assert_true(i > 0);
    if (next_line(f, line))
        fail_msg("step %zu of the schema was removed", i);
    fclose(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_those_that_were_released),
    };

    return cmocka_run_group_tests_name("core_migrations", tests, NULL, NULL);
}
