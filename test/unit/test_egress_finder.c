/* That the search which leaves bytes out finds what one finds that looks at each of them, and what there is to be found:
 * random words in random texts, some of their characters escaped, in pieces of random sizes. */
#include "base/util.h"
#include "egress/credential/finder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define ROUNDS    3000
#define TEXT_MAX  1024
#define WORDS_MAX 5
#define LONG_TEXT 6000000

static uint64_t seed = UINT64_C(88172645463325252);

static unsigned below(unsigned n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (unsigned)(seed >> 20) % n;
}

struct words {
    size_t count;
    char text[WORDS_MAX][16];
    struct automaton *a;
};

/* Characters that words and escapes have in common are what it is about. */
static char some_char(void)
{
    static const char all[] = "aab%\\&/u4x6#;1\"{}";

    return all[below(sizeof(all) - 1)];
}

static struct words make_words(void)
{
    struct words w = {.count = 1 + below(WORDS_MAX), .a = automaton_new()};

    for (size_t i = 0; i < w.count; i++) {
        size_t n = (below(8) == 0 ? 1 : 3) + below(6);

        for (size_t k = 0; k < n; k++)
            w.text[i][k] = some_char();
        assert_int_equal(automaton_add(w.a, w.text[i], n), 0);
    }
    assert_int_equal(automaton_build(w.a), 0);
    return w;
}

#define FORMS 20u

/* The character as a server may write it, one way or the other; 0: not this way. */
static size_t put_form(char out[static 16], char c, unsigned form)
{
    unsigned u = (unsigned char)c;

    switch (form) {
    case 0: *out = c; return 1;
    case 1: return (size_t)sprintf(out, "%%%02x", u);
    case 2: return (size_t)sprintf(out, "%%%02X", u);
    case 3: return (size_t)sprintf(out, "\\u%04x", u);
    case 4: return (size_t)sprintf(out, "\\u%04X", u);
    case 5: return (size_t)sprintf(out, "\\x%02x", u);
    case 6: return (size_t)sprintf(out, "\\x%02X", u);
    case 7: return (size_t)sprintf(out, "&#%u;", u);
    case 8: return (size_t)sprintf(out, "&#x%x;", u);
    case 9: return (size_t)sprintf(out, "&#x%04x;", u);
    case 10: return (size_t)sprintf(out, "&#%u", u);
    case 11: return (size_t)sprintf(out, "&#x%X", u);
    case 12: return (size_t)sprintf(out, "\\%o", u);
    case 13: return (size_t)sprintf(out, "\\%03o", u);
    case 14: return (size_t)sprintf(out, "\\u{%x}", u);
    case 15: return (size_t)sprintf(out, "\\u{%06x}", u);
    case 16: return (size_t)sprintf(out, "\\U%08x", u);
    case 17: return (size_t)sprintf(out, "&#x%06x;", u);
    case 18: return (size_t)sprintf(out, "%%u%04X", u);
    default: return strchr("\"'\\/`$&<>", c) ? (size_t)sprintf(out, "\\%c", c) : 0;
    }
}

static size_t put_escaped(char *out, char c)
{
    char text[16];
    size_t n = put_form(text, c, below(2) ? 0 : below(FORMS));

    memcpy(out, text, n);
    return n;
}

/* Words, beginnings of words, and anything. */
static size_t make_text(const struct words *w, char text[static TEXT_MAX])
{
    size_t n = 0, most = below(TEXT_MAX - 200);

    while (n < most) {
        const char *word = w->text[below((unsigned)w->count)];
        size_t len = below(3) ? strlen(word) : below((unsigned)strlen(word) + 1);

        switch (below(4)) {
        case 0:
            for (size_t k = 0; k < len; k++)
                n += put_escaped(text + n, word[k]);
            break;
        case 1: n += put_escaped(text + n, some_char()); break;
        case 2: text[n++] = (char)below(256); break;
        default:
            for (unsigned k = below(60); k > 0; k--) /* nothing that begins anything, as a rule */
                text[n++] = (char)('c' + below(20));
        }
    }
    return n;
}

/* For each byte, how many bytes the longest word takes that ends with it. */
static void find_by_step(const struct words *w, const char *text, size_t n, size_t *ends)
{
    struct finder f = {0};

    for (size_t i = 0; i < n; i++)
        ends[i] = finder_step(w->a, &f, (unsigned char)text[i]);
}

static void find_by_run(const struct words *w, const char *text, size_t n, size_t *ends)
{
    struct finder f = {0};

    memset(ends, 0, n * sizeof(*ends));
    for (size_t at = 0; at < n;) {
        size_t piece = MIN(n - at, (size_t)1 + below(below(2) ? 8 : 600)), used = 0;

        while (used < piece) {
            size_t word, took = finder_run(w->a, &f, text + at + used, piece - used, &word);

            assert_in_range(took, 1, piece - used);
            used += took;
            if (word > 0)
                ends[at + used - 1] = word;
            else
                assert_int_equal(used, piece);
        }
        at += piece;
    }
}

static void test_same_as_each_byte(void **state)
{
    static char text[TEXT_MAX];
    static size_t by_step[TEXT_MAX], by_run[TEXT_MAX];
    size_t found = 0;

    for (unsigned i = 0; i < ROUNDS; i++) {
        struct words w = make_words();
        size_t n = make_text(&w, text);

        find_by_step(&w, text, n, by_step);
        find_by_run(&w, text, n, by_run);
        for (size_t k = 0; k < n; k++) {
            if (by_step[k] != by_run[k])
                fail_msg("round %u, byte %zu: %zu, by steps %zu", i, k, by_run[k], by_step[k]);
            found += by_run[k] > 0;
        }
        automaton_unref(w.a);
    }
    assert_in_range(found, ROUNDS, SIZE_MAX);
}

/* -- another judge ----------------------------------------------------------------------------- */

/* Where a word that begins at s may end: its lengths as bits; the word's characters one after the other. */
static uint64_t lengths_of(const char *word, const char *s, size_t n)
{
    uint64_t now = 1;

    for (; *word; word++) {
        uint64_t next = 0;

        for (size_t at = 0; at < MIN(n, (size_t)54); at++) {
            if (!(now >> at & 1))
                continue;
            for (unsigned form = 0; form < FORMS; form++) {
                char text[16];
                size_t len = put_form(text, *word, form);

                if (len > 0 && len <= n - at && memcmp(s + at, text, len) == 0)
                    next |= UINT64_C(1) << (at + len);
            }
        }
        now = next;
    }
    return now;
}

static void check_all_found(const struct words *w, const char *text, size_t n, const size_t *ends)
{
    for (size_t from = 0; from < n; from++)
        for (size_t i = 0; i < w->count; i++) {
            uint64_t lengths = lengths_of(w->text[i], text + from, n - from);

            for (size_t len = 1; len < 64; len++)
                if (lengths >> len & 1 && ends[from + len - 1] < len)
                    fail_msg("%s at %zu, %zu bytes of %.*s", w->text[i], from, len, (int)n, text);
        }
}

static void test_all_is_found(void **state)
{
    static char text[TEXT_MAX];
    static size_t ends[TEXT_MAX];

    for (unsigned i = 0; i < ROUNDS / 10; i++) {
        struct words w = make_words();
        size_t n = make_text(&w, text);

        find_by_run(&w, text, n, ends);
        check_all_found(&w, text, n, ends);
        automaton_unref(w.a);
    }
}

/* -- long words -------------------------------------------------------------------------------- */

/* A word of one character, then that character escaped: each escape has the finder come back to the word's end, and
 * leaves it. Without strong_fail that takes as many steps as the word is long, each time: longer than a test may take. */
static void test_long_run_is_left_at_once(void **state)
{
    static char word[AUTOMATON_WORD_MAX], text[LONG_TEXT];
    struct words w = {.a = automaton_new()};
    struct finder f = {0};
    size_t found = 0;

    memset(word, 'a', sizeof(word));
    memset(text, 'a', sizeof(word));
    for (size_t i = sizeof(word); i < sizeof(text); i++)
        text[i] = "%61"[(i - sizeof(word)) % 3];
    assert_int_equal(automaton_add(w.a, word, sizeof(word)), 0);
    assert_int_equal(automaton_build(w.a), 0);
    for (size_t at = 0; at < sizeof(text);) {
        size_t word_len;

        at += finder_run(w.a, &f, text + at, sizeof(text) - at, &word_len);
        found += word_len >= sizeof(word);
    }
    assert_int_equal(found, 1 + (sizeof(text) - sizeof(word)) / 3);
    automaton_unref(w.a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_as_each_byte),
        cmocka_unit_test(test_all_is_found),
        cmocka_unit_test(test_long_run_is_left_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
