/* Events that cay-egress, taken over, sends to cayd by itself: lines that become events of tenants. The first
 * byte seeds how they are cut, on which the outcome must not depend. Core is stood in for: it knows one
 * sandbox, and writes down what is made of the lines. */
#include "core/egress_event_reader.h"
#include "core/egress_query.h"
#include "core/renewal.h"

#include "base/log.h"
#include "base/util.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/sandbox.h"
#include "core/tenant.h"
#include "fuzz.h"

#include <string.h>

static struct tenant its = {.name = "default"};
static struct sandbox_obj known = {
    .known_to_privd = true, .tenant = &its, .s = {.id = "i1", .slot = 4, .gen = 2}};
static char *said; /* what became of one input, a line each */

/* Lines that are too long are complained of, which is not looked at. */
void log_write(enum log_level level, const char *fmt, ...)
{
}

static void note(const char *what, json_t *fields)
{
    char *text = json_dumps(fields, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY), *all = NULL;

    FUZZ_CHECK(text);
    FUZZ_CHECK(asprintf(&all, "%s%s %s\n", said ? said : "", what, text) > 0);
    free(said);
    free(text);
    said = all;
    json_decref(fields);
}

struct sandbox_obj *sandbox_get(struct core *c, const char *tenant, const char *id)
{
    FUZZ_CHECK(!tenant && id);
    return strcmp(id, known.s.id) == 0 ? &known : NULL;
}

void events_add(struct tenant *t, enum event_type type, const char *sandbox, json_t *fields)
{
    static const char *const never[] = {"event", "sandbox", "tenant", "slot", "gen", "id", "type"};

    /* Whose event it is comes from core, and nothing of the line can say otherwise. */
    FUZZ_CHECK((type == EVENT_VIOLATION || type == EVENT_ASK) && t == known.tenant &&
               sandbox == known.s.id);
    FUZZ_CHECK(json_is_object(fields));
    for (size_t i = 0; i < ARRAY_SIZE(never); i++)
        FUZZ_CHECK(!json_object_get(fields, never[i]));
    note("denial", fields);
}

bool events_are_followed(const struct tenant *t, enum event_type type, const char *sandbox)
{
    FUZZ_CHECK(type == EVENT_ASK && t == known.tenant && sandbox == known.s.id);
    return true;
}

void egress_ask_unfollowed(struct core *c, const struct sandbox *s, const char *ask)
{
    FUZZ_CHECK(false);
}

void events_add_dropped(struct tenant *t, const char *sandbox, int64_t count, const char *reason)
{
    FUZZ_CHECK(t == known.tenant && sandbox == known.s.id && count > 0);
    note(reason, json_integer(count));
}

void events_all_lost(struct core *c)
{
    FUZZ_CHECK(false); /* memory is not out */
}

void renewals_wanted(struct core *c, const struct sandbox *s, const char *name, uint64_t serial,
                     bool rejected)
{
    FUZZ_CHECK(s == &known.s && name);
    note("renewal", json_string(name));
}

/* All that was made of it; the caller frees it. NULL: nothing. */
static char *run(const uint8_t *data, size_t size, uint32_t *seed)
{
    static struct egress_event_reader reader;
    char *all;

    memset(&reader, 0, sizeof(reader));
    for (size_t at = 0; at < size;) {
        size_t n = seed ? fuzz_piece(seed, size - at) : size - at;

        egress_event_reader_take(NULL, &reader, (const char *)data + at, n);
        FUZZ_CHECK(reader.len <= sizeof(reader.line));
        at += n;
    }
    all = said;
    said = NULL;
    return all;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint32_t seed;
    char *whole, *cut;

    if (size == 0 || size > 100000)
        return 0;
    seed = data[0];
    whole = run(data + 1, size - 1, NULL);
    cut = run(data + 1, size - 1, &seed);
    FUZZ_CHECK(!whole == !cut && (!whole || strcmp(whole, cut) == 0));
    free(whole);
    free(cut);
    return 0;
}
