/* A client's description of a template: read whole, with each count and text within its limit,
 * or refused with a text, and then nothing is given out. The text that the log shows of a step
 * fits. */
#include "api/e2b_build_spec.h"
#include "fuzz.h"
#include "http/json.h"

#define SHOWN 64

static void check_step(const struct build_step *s)
{
    char shown[SHOWN + 1];

    FUZZ_CHECK(build_op_name(s->op)[0] && s->n >= 1);
    for (size_t i = 0; i < s->n; i++)
        FUZZ_CHECK(s->words[i] && strlen(s->words[i]) <= CORE_BUILD_TEXT_MAX);
    if (s->op == BUILD_OP_ENV)
        FUZZ_CHECK(s->n % 2 == 0);
    memset(shown, 0x55, sizeof(shown));
    build_spec_show(s, shown, SHOWN);
    FUZZ_CHECK(memchr(shown, '\0', SHOWN) && shown[SHOWN] == 0x55);
}

static void check(const struct build_spec *s)
{
    FUZZ_CHECK(build_spec_check(s, NULL) == ERR_OK);
    FUZZ_CHECK(s->from && *s->from && s->n <= CORE_BUILD_STEPS_MAX);
    FUZZ_CHECK(!s->start || strlen(s->start) <= CORE_BUILD_COMMAND_MAX);
    FUZZ_CHECK(!s->ready || strlen(s->ready) <= CORE_BUILD_COMMAND_MAX);
    FUZZ_CHECK(s->ready_port >= 0 && s->ready_port <= 65535);
    for (size_t i = 0; i < s->n; i++)
        check_step(&s->steps[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct build_spec s, before;
    struct err e = {.code = ERR_OK};
    json_t *json = NULL;

    if (json_parse((const char *)data, size, true, &json, &e) != ERR_OK)
        return 0;
    memset(&s, 0x55, sizeof(s));
    memcpy(&before, &s, sizeof(s));
    if (e2b_build_spec_read(json, &s, &e) == ERR_OK) {
        check(&s);
        build_spec_free(&s);
    } else {
        FUZZ_CHECK(e.code != ERR_OK && e.text[0] && memcmp(&before, &s, sizeof(s)) == 0);
    }
    json_decref(json);
    return 0;
}
