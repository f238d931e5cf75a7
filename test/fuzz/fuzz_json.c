/* JSON bodies: parsing is bounded, the typed getters never read a wrong type, text written by
 * json_append_text is JSON whatever the bytes were. */
#include "base/buf.h"
#include "fuzz.h"
#include "http/json.h"

static void use(const json_t *value)
{
    const char *s = "";
    json_t *sub = NULL;
    int64_t i = 0;
    bool b = false;
    struct err e;

    if (json_get_str(value, "a", "b", JSON_OPTIONAL, 100, &s, &e) == ERR_OK)
        FUZZ_CHECK(strlen(s) <= 100);
    if (json_get_int(value, "a", "b", JSON_OPTIONAL, -5, 5, &i, &e) == ERR_OK)
        FUZZ_CHECK(i >= -5 && i <= 5);
    (void)json_get_bool(value, "a", NULL, JSON_REQUIRED, &b, &e);
    if (json_get_obj(value, "a", NULL, JSON_OPTIONAL, &sub, &e) == ERR_OK && sub)
        (void)json_check_str_map(sub, "a", 3, 20, &e);
    if (json_get_arr(value, "a", NULL, JSON_REQUIRED, &sub, &e) == ERR_OK)
        FUZZ_CHECK(json_is_array(sub));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf text CLEANUP_BUF;
    json_t *value = NULL;
    struct err e = {0};

    buf_init(&text, 1u << 22);
    if (size > 200000)
        return 0;
    if (json_parse((const char *)data, size, size % 2, &value, &e) == ERR_OK) {
        use(value);
        json_decref(value);
    } else {
        FUZZ_CHECK(e.text[0] && !strpbrk(e.text, "\r\n"));
    }
    FUZZ_CHECK(json_append_text(&text, (const char *)data, size) == 0);
    if (!memchr(data, 0, size)) { /* jansson refuses NUL in strings; others do not mind */
        FUZZ_CHECK(json_parse(text.data, text.len, false, &value, &e) == ERR_OK);
        FUZZ_CHECK(json_is_string(value));
        json_decref(value);
    }
    return 0;
}
