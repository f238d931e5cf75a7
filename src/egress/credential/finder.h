#pragma once
/* Words of an automaton in one stream, however single characters of them are escaped there: as they
 * are, in percent-encoding (%2f, %2F; %u002f), as in a string of JSON, JavaScript or C (\/, \",
 * \u002f, \U0000002f, \u{2f}, \x2f, \57) or as HTML's numbers, with ';' or without, and the five
 * names of XML (&#47;, &#x2f;, &amp;), one way beside the other in one word.
 *
 * A text in the form of an escape may also be meant literally. Both readings are followed at once:
 * a finder is a set of states of the automaton, as a rule one, at most FINDER_READINGS_MAX; beyond
 * that the readings with least of a word are given up. An escape of an escape is not followed:
 * words in the forms that are usual inside another are added to the automaton themselves
 * (response_secrets.c).
 *
 * Pure: no I/O; no memory but its own. The stream's bytes are not kept. */

#include "egress/credential/automaton.h"

#define FINDER_READINGS_MAX 8u
#define FINDER_ESCAPE_MAX   10u /* bytes of the longest: &#x00002f;, \U0000002f */

struct finder_reading {
    automaton_state state;
    uint32_t
        more; /* bytes that what it has of a word is longer than the word's characters, or fewer */
};

struct finder_set {
    unsigned count; /* 0: one reading, which has nothing */
    struct finder_reading list[FINDER_READINGS_MAX];
};

/* All zero: at the start of a stream. */
struct finder {
    struct finder_set now;
    struct finder_set before;                /* the escape that has begun, if one has */
    unsigned char escape[FINDER_ESCAPE_MAX]; /* the part of the escape that has come */
    unsigned escape_len;
};

/* The next n bytes, up to the first that ends a word: *word is then how many bytes of the stream
 * the longest takes that ends there, else 0. Where escapes stand shortly before it, some bytes more
 * may be counted, never fewer. How many bytes were taken: all n, where *word is 0. The same is
 * found as by finder_step, in less time. */
size_t finder_run(const struct automaton *a, struct finder *f, const char *data, size_t n,
                  size_t *word);

/* The next byte. Returns what finder_run has as *word. */
size_t finder_step(const struct automaton *a, struct finder *f, unsigned char c);
