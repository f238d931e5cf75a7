#pragma once
/* Many words searched for in one pass over a text (Aho and Corasick, 1975). The cost of a byte does
 * not depend on how many words there are or on what they have in common: at most two steps on
 * average, each at most AUTOMATON_LIST_MAX comparisons or one look into a table. Where no word has
 * begun, the bytes before the next pair of bytes that begins one are left out (pair_set.h).
 *
 * Words are added, then the automaton is built once; from then on it does not change and may be
 * shared by any number of searches, each of which is one automaton_state. Words may be secrets:
 * what held them is wiped. Pure: no I/O. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AUTOMATON_WORDS_MAX 1024u
#define AUTOMATON_WORD_MAX  32768u /* bytes of one */
#define AUTOMATON_TOTAL_MAX \
    (512u * 1024u)            /* bytes of all; 16 bytes of memory for each, as a rule */
#define AUTOMATON_LIST_MAX 4u /* children that are compared one after the other */

struct automaton;

/* Of one search. 0: nothing of any word has been seen. */
typedef uint32_t automaton_state;

struct automaton *automaton_new(void); /* one reference; NULL: memory is out */
struct automaton *automaton_ref(struct automaton *a);
void automaton_unref(struct automaton *a);

/* A copy with the same words, to which more can be added. NULL: memory is out. */
struct automaton *automaton_clone(const struct automaton *a);

/* Copies the word; one that is there already is no second one. Before automaton_build. 0; -EINVAL:
 * it was built; -EMSGSIZE; -ENOMEM. */
int automaton_add(struct automaton *a, const char *word, size_t n);
size_t automaton_count(const struct automaton *a);

/* Bytes of all words. */
size_t automaton_total(const struct automaton *a);
bool automaton_is_built(const struct automaton *a);

/* 0, also when it was built before; -ENOMEM. */
int automaton_build(struct automaton *a);

/* Bytes that a caller may read otherwise than as themselves, alone or with what follows
 * (finder.h). */
#define AUTOMATON_STOPS "%\\&"

/* While nothing of any word has been seen: how many of the next n bytes change nothing. Each of
 * them is no stop, and is the first of no word or is followed by what is neither that word's second
 * nor a stop. */
size_t automaton_skip(const struct automaton *a, const char *data, size_t n);

/* Is c the first of a word? */
bool automaton_begins(const struct automaton *a, unsigned char c);

/* The next n bytes, as automaton_step has them one after the other, up to the first that ends a
 * word (*word is its length, else 0), after which nothing of any word has been seen that goes on
 * with the next, or that is a stop (which is not taken). How many were taken. */
size_t automaton_run(const struct automaton *a, automaton_state *s, const char *data, size_t n,
                     size_t *word);

/* The next byte. Returns the length of the longest word that ends with it, or 0. */
size_t automaton_step(const struct automaton *a, automaton_state *s, unsigned char c);

/* Bytes at the end of what was seen that may be the beginning of a word which has not ended. */
size_t automaton_begun(const struct automaton *a, automaton_state s);
