/* The stream that cayd reads of a program's output for POST .../exec: envelopes that an agent inside a
 * sandbox sends. The first byte seeds how they are cut and how much output is kept: the outcome must not
 * depend on the one, and never have more than the other. */
#include "core/exec_stream.h"

#include "fuzz.h"

static bool run(struct exec_stream *s, size_t max, const uint8_t *data, size_t size, uint32_t *seed)
{
    bool good = true;

    exec_stream_init(s, max);
    for (size_t at = 0; at < size && good;) {
        size_t n = seed ? fuzz_piece(seed, size - at) : size - at;

        good = exec_stream_feed(s, (const char *)data + at, n);
        at += n;
    }
    FUZZ_CHECK(s->out[EXEC_STDOUT].len + s->out[EXEC_STDERR].len + s->left == max);
    FUZZ_CHECK(!s->started || s->pid > 0);
    FUZZ_CHECK(strlen(s->signal) < sizeof(s->signal) && strlen(s->message) < sizeof(s->message));
    return good;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct exec_stream whole, cut;
    size_t max;
    uint32_t seed;
    bool good;

    if (size == 0 || size > 100000)
        return 0;
    seed = data[0];
    max = (size_t)data[0] * 16;
    good = run(&whole, max, data + 1, size - 1, NULL);
    FUZZ_CHECK(run(&cut, max, data + 1, size - 1, &seed) == good);
    FUZZ_CHECK(whole.exit_code == cut.exit_code && whole.ended == cut.ended &&
               whole.pid == cut.pid);
    FUZZ_CHECK(whole.truncated == cut.truncated && strcmp(whole.signal, cut.signal) == 0);
    FUZZ_CHECK(strcmp(whole.error, cut.error) == 0 && strcmp(whole.message, cut.message) == 0);
    for (int i = EXEC_STDOUT; i <= EXEC_STDERR; i++)
        FUZZ_CHECK(whole.out[i].len == cut.out[i].len &&
                   (whole.out[i].len == 0 ||
                    memcmp(whole.out[i].data, cut.out[i].data, whole.out[i].len) == 0));
    exec_stream_free(&whole);
    exec_stream_free(&cut);
    return 0;
}
