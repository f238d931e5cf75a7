/* docs/privsep.md says what privd permits: its tables are compared with what permit.c answers. */
#include "permit_fixture.h"

#include "base/util.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char page[256 * 1024];

static int read_page(void **state)
{
    const char *path = getenv("CAY_PRIVSEP_DOC");
    FILE *f = path ? fopen(path, "re") : NULL;
    size_t n = f ? fread(page, 1, sizeof(page) - 1, f) : 0;

    if (f)
        fclose(f);
    page[n] = '\0';
    return n > 0 && n < sizeof(page) - 1 ? 0 : -1;
}

/* The text of a table, cut at its end mark; the page is searched anew each time. */
static void find_table(const char *name, char *out, size_t size)
{
    char mark[64];
    const char *from, *to;

    snprintf(mark, sizeof(mark), "<!-- table: %s -->\n", name);
    from = strstr(page, mark);
    assert_non_null(from);
    from += strlen(mark);
    to = strstr(from, "<!-- end -->");
    assert_non_null(to);
    assert_true((size_t)(to - from) < size);
    memcpy(out, from, (size_t)(to - from));
    out[to - from] = '\0';
}

/* -- permits ----------------------------------------------------------------------------------- */

static const char *const state_names[SLOT_STATE_COUNT] = {
    [SLOT_EMPTY] = "empty",       [SLOT_MAKING] = "making",         [SLOT_READY] = "ready",
    [SLOT_STARTING] = "starting", [SLOT_RUNNING] = "running",       [SLOT_KILLING] = "killing",
    [SLOT_ENDING] = "ending",     [SLOT_FREEZING] = "freezing",     [SLOT_FROZEN] = "frozen",
    [SLOT_COPYING] = "copying",   [SLOT_PRESTARTED] = "prestarted", [SLOT_DUMPING] = "dumping",
};

static const char *answer_name(int answer)
{
    if (answer == 0)
        return "yes";
    return answer == -ESTALE ? "stale" : answer == -EBUSY ? "busy" : "another answer";
}

/* The table as the code has it; every request that names a sandbox has a row. */
static void print_permits(char *out, size_t size)
{
    size_t n = (size_t)snprintf(out, size, "| request |");

    for (int s = 0; s < SLOT_STATE_COUNT; s++)
        n += (size_t)snprintf(out + n, size - n, " %s |", state_names[s]);
    n += (size_t)snprintf(out + n, size - n,
                          "\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (uint16_t op = 1; op < PRIVSEP_REQUEST_COUNT; op++) {
        struct privsep_msg m = {.op = op, .gen = 9};

        if (!permit_needs_sandbox(op))
            continue;
        n += (size_t)snprintf(out + n, size - n, "| %s |", privsep_op_name(op));
        for (int s = 0; s < SLOT_STATE_COUNT; s++)
            n += (size_t)snprintf(out + n, size - n, " %s |",
                                  answer_name(permit_state(&m, (enum slot_state)s, 9)));
        n += (size_t)snprintf(out + n, size - n, "\n");
    }
}

static void permits_are_as_documented(void **state)
{
    char documented[4096], is[4096];

    find_table("permits", documented, sizeof(documented));
    print_permits(is, sizeof(is));
    assert_string_equal(documented, is);
}

/* -- ranges ------------------------------------------------------------------------------------ */

#define IN(field) offsetof(struct privsep_msg, field), sizeof(((struct privsep_msg *)0)->field)

static const struct {
    const char *name;
    uint16_t op;
    size_t offset, size;
} fields[] = {
    {"template_number", PRIVSEP_CREATE, IN(u.create.template_number)},
    {"level", PRIVSEP_CREATE, IN(u.create.level)},
    {"memory_bytes", PRIVSEP_CREATE, IN(u.create.limits.memory_bytes)},
    {"disk_bytes", PRIVSEP_CREATE, IN(u.create.limits.disk_bytes)},
    {"cpu_milli", PRIVSEP_CREATE, IN(u.create.limits.cpu_milli)},
    {"pids", PRIVSEP_CREATE, IN(u.create.limits.pids)},
    {"open_files", PRIVSEP_CREATE, IN(u.create.limits.open_files)},
    {"connect.count", PRIVSEP_CONNECT, IN(u.connect.count)},
    {"command_sandbox.number", PRIVSEP_COMMAND_SANDBOX_END, IN(u.command_sandbox.number)},
    {"kept.number", PRIVSEP_DROP, IN(u.kept.number)},
    {"volume.number", PRIVSEP_VOLUME_MAKE, IN(u.volume.number)},
    {"volume.bytes", PRIVSEP_VOLUME_MAKE, IN(u.volume.bytes)},
    {"resize.memory_bytes", PRIVSEP_RESIZE, IN(u.resize.memory_bytes)},
    {"resize.disk_bytes", PRIVSEP_RESIZE, IN(u.resize.disk_bytes)},
    {"resize.cpu_milli", PRIVSEP_RESIZE, IN(u.resize.cpu_milli)},
    {"exchange.number", PRIVSEP_IMPORT, IN(u.exchange.number)},
    {"exchange.template_number", PRIVSEP_EXPORT, IN(u.exchange.template_number)},
    {"exchange.level", PRIVSEP_IMPORT, IN(u.exchange.level)},
    {"exchange.memory_bytes", PRIVSEP_EXPORT, IN(u.exchange.memory_bytes)},
    {"exchange.disk_bytes", PRIVSEP_EXPORT, IN(u.exchange.disk_bytes)},
    {"exchange.cpu_milli", PRIVSEP_EXPORT, IN(u.exchange.cpu_milli)},
    {"slot", PRIVSEP_STAT, IN(slot)},
    {"gen", PRIVSEP_STAT, IN(gen)},
};

static struct privsep_msg good(uint16_t op)
{
    struct privsep_msg m = {.version = PRIVSEP_VERSION, .op = op, .seq = 1};

    if (op == PRIVSEP_CREATE)
        return good_create();
    m.gen = op != PRIVSEP_DROP && op != PRIVSEP_VOLUME_MAKE && op != PRIVSEP_ARCHIVE &&
            op != PRIVSEP_ARCHIVE_STOP && op != PRIVSEP_FETCH && op != PRIVSEP_EXPORT &&
            op != PRIVSEP_IMPORT;
    if (op == PRIVSEP_CONNECT)
        m.u.connect.count = 1;
    if (op == PRIVSEP_COMMAND_SANDBOX_END)
        m.u.command_sandbox.number = 1;
    if (op == PRIVSEP_KEEP || op == PRIVSEP_COPY || op == PRIVSEP_DUMP || op == PRIVSEP_ARCHIVE ||
        op == PRIVSEP_ARCHIVE_STOP || op == PRIVSEP_FETCH) {
        m.u.kept.number = 1;
        m.u.kept.owner[0] = 1;
    }
    if (op == PRIVSEP_EXPORT || op == PRIVSEP_IMPORT) {
        m.u.exchange.number = m.u.exchange.template_number = 1;
        m.u.exchange.owner[0] = 1;
    }
    if (op == PRIVSEP_EXPORT) {
        strcpy(m.u.exchange.template_name, "base");
        m.u.exchange.memory_bytes = m.u.exchange.disk_bytes = 1 << 30;
        m.u.exchange.cpu_milli = 1000;
    }
    if (op == PRIVSEP_RESIZE) {
        m.u.resize.memory_bytes = m.u.resize.disk_bytes = 1 << 30;
        m.u.resize.cpu_milli = 1000;
    }
    if (op == PRIVSEP_VOLUME_MAKE) {
        m.u.volume.number = 1;
        m.u.volume.bytes = 1 << 20;
        m.u.volume.owner[0] = 1;
    }
    return m;
}

static int answer_to(size_t field, uint64_t value)
{
    struct privsep_msg m = good(fields[field].op);

    memcpy((char *)&m + fields[field].offset, &value, fields[field].size); /* little-endian */
    return permit_fields(&m, &bounds);
}

static uint64_t to_number(const char *text)
{
    char *end;
    unsigned long long n;

    if (strcmp(text, "the host's hard limit") == 0)
        return OPEN_FILES;
    if (strcmp(text, "slots_max - 1") == 0)
        return SLOTS - 1;
    n = strtoull(text, &end, 10);
    assert_true(end != text && *end == '\0');
    return n;
}

static void check_field(size_t field, uint64_t least, uint64_t most)
{
    uint64_t top = fields[field].size == 4 ? UINT32_MAX : UINT64_MAX;

    assert_int_equal(answer_to(field, least), 0);
    assert_int_equal(answer_to(field, most), 0);
    if (least > 0)
        assert_int_equal(answer_to(field, least - 1), -EINVAL);
    if (most < top)
        assert_int_equal(answer_to(field, most + 1), -EINVAL);
}

static void ranges_are_as_documented(void **state)
{
    char table[4096], name[64], least[64], most[64], *save = NULL;
    size_t rows = 0;

    find_table("ranges", table, sizeof(table));
    for (char *line = strtok_r(table, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (sscanf(line, "| %63[^|] | %63[^|] | %63[^|]", name, least, most) != 3 ||
            strncmp(name, "field", 5) == 0 || name[0] == '-')
            continue;
        name[strcspn(name, " ")] = least[strcspn(least, " ")] = '\0';
        if (most[0] != '\0' && most[strlen(most) - 1] == ' ')
            most[strlen(most) - 1] = '\0';
        assert_true(rows < ARRAY_SIZE(fields));
        assert_string_equal(name, fields[rows].name);
        check_field(rows, to_number(least), to_number(most));
        rows++;
    }
    assert_int_equal(rows, ARRAY_SIZE(fields));
}

/* Every request has a row in the table of messages. */
static void every_request_is_documented(void **state)
{
    for (uint32_t op = 1; op < PRIVSEP_REQUEST_COUNT; op++) {
        char row[64];

        snprintf(row, sizeof(row), "\n| `%s` | ", privsep_op_name(op));
        if (!strstr(page, row))
            fail_msg("no row for %s", privsep_op_name(op));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(permits_are_as_documented),
        cmocka_unit_test(ranges_are_as_documented),
        cmocka_unit_test(every_request_is_documented),
    };

    return cmocka_run_group_tests_name("privsep_doc", tests, read_page, NULL);
}
