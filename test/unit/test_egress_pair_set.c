/* That sixteen pairs at a time find what one pair at a time finds, and what a search without tables
 * finds: sets from empty to full, texts of few and of all bytes, of every length up to some steps and
 * at every alignment, with a pair at every place. */
#include "egress/credential/pair_set.h"

#include "base/util.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LENGTH_MAX 80u
#define ROUNDS     400
#define PAIRS_MAX  64u

static uint64_t seed = UINT64_C(88172645463325252);

static unsigned below(unsigned n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (unsigned)(seed >> 20) % n;
}

struct sample {
    struct pair_set set;
    unsigned char pairs[PAIRS_MAX][2];
    unsigned count;
};

/* Of letters only, so that texts of letters have some, or of any bytes. */
static unsigned char some_byte(bool letters)
{
    return (unsigned char)(letters ? 'a' + below(6) : below(256));
}

static void fill(struct sample *s, unsigned count, bool letters)
{
    memset(s, 0, sizeof(*s));
    s->count = count;
    for (unsigned i = 0; i < count; i++) {
        s->pairs[i][0] = some_byte(letters);
        s->pairs[i][1] = some_byte(letters);
        pair_set_add(&s->set, s->pairs[i][0], s->pairs[i][1]);
    }
}

static size_t by_hand(const struct sample *s, const char *data, size_t n)
{
    for (size_t i = 0; i + 1 < n; i++)
        for (unsigned k = 0; k < s->count; k++)
            if (memcmp(data + i, s->pairs[k], 2) == 0)
                return i;
    return n ? n - 1 : 0;
}

/* The text lies at the end of what was allocated: a reader beyond it is seen by the sanitizer. */
static void check(const struct sample *s, const char *text, size_t n)
{
    char *data = malloc(n + !n);

    assert_non_null(data);
    memcpy(data, text, n);
    assert_int_equal(pair_set_find(&s->set, data, n), by_hand(s, data, n));
    assert_int_equal(pair_set_find_plain(&s->set, data, n), by_hand(s, data, n));
    free(data);
}

static void random_sets_and_texts(void **state)
{
    struct sample s;
    char text[LENGTH_MAX + 16];

    (void)state;
    for (unsigned round = 0; round < ROUNDS; round++) {
        bool letters = round % 2;

        fill(&s, below(round % 3 ? 6 : PAIRS_MAX), letters);
        for (size_t n = 0; n <= LENGTH_MAX; n++) {
            unsigned shift = below(16);

            for (size_t i = 0; i < sizeof(text); i++)
                text[i] = (char)some_byte(letters);
            check(&s, text + shift, n);
        }
    }
}

static void one_pair_at_every_place(void **state)
{
    struct sample s;
    char text[LENGTH_MAX] = {0};

    (void)state;
    for (unsigned first = 0; first < 256; first += 5) {
        fill(&s, 1, false);
        for (size_t at = 0; at + 1 < sizeof(text); at++) {
            memset(text, s.pairs[0][1] ^ 0x10, sizeof(text));
            memcpy(text + at, s.pairs[0], 2);
            check(&s, text, sizeof(text));
            check(&s, text, at + 1); /* its second byte is not there yet */
        }
    }
}

/* Bytes whose nibbles are those of two pairs, crossed, are candidates and no pair. */
static void nibbles_of_two_pairs(void **state)
{
    struct sample s = {.pairs = {{0x41, 0x52}, {0x47, 0x69}}, .count = 2};
    const char crossed[] =
        "\x41\x69\x41\x62\x47\x52\x47\x59\x41\x69\x41\x62\x47\x52\x47\x59\x41\x69";

    (void)state;
    for (unsigned i = 0; i < s.count; i++)
        pair_set_add(&s.set, s.pairs[i][0], s.pairs[i][1]);
    assert_true(pair_set_has(&s.set, "\x47\x69"));
    assert_false(pair_set_has(&s.set, "\x41\x69"));
    check(&s, crossed, sizeof(crossed) - 1);
    assert_int_equal(pair_set_find(&s.set, crossed, sizeof(crossed) - 1), sizeof(crossed) - 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_sets_and_texts),
        cmocka_unit_test(one_pair_at_every_place),
        cmocka_unit_test(nibbles_of_two_pairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
