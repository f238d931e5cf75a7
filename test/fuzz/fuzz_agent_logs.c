/* An agent's log lines as the control plane reads them. A sandbox may answer anything. The part is
 * private to its file, so the file is taken in whole; the library's own copy is not linked then. */
#include "../../src/core/logs.c"

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct sandbox_log items[AGENT_LINES_MAX + 1];
    char note[LINE_SIZE_MAX];
    json_t *root = NULL;
    size_t n;

    if (json_parse((const char *)data, size, false, &root, NULL) != ERR_OK)
        root = NULL;
    n = add_inside(NULL, 200, root, note, items);
    FUZZ_CHECK(n <= AGENT_LINES_MAX);
    qsort(items, n, sizeof(*items), by_time);
    for (size_t i = 0; i < n; i++) {
        FUZZ_CHECK(items[i].at_real_ms >= 0 && strlen(items[i].message) <= MESSAGE_SIZE_MAX);
        FUZZ_CHECK(known_level(items[i].level) == items[i].level || !root);
        FUZZ_CHECK(!items[i].fields || json_is_object(items[i].fields));
        FUZZ_CHECK(i == 0 || items[i - 1].at_real_ms <= items[i].at_real_ms);
    }
    json_decref(root);
    return 0;
}
