/* Words are added, then the automaton is built, and only searched from then on: nothing may be
 * added to a built one (automaton_clone gives one that may be). Built ones are shared by count
 * of references. A search keeps its state with the caller, so that a text may come in pieces. */

#include "egress/credential/automaton.h"

#include "base/util.h"
#include "egress/credential/pair_set.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NO_TABLE  UINT32_MAX
#define FIRST     256u /* nodes made at first, and then twice as many each time */
#define NODES_MAX (AUTOMATON_TOTAL_MAX + 1)

/* A beginning of some word. Children are a list through `next`, in the order in which they were
 * added; a node with many has a table besides. 16 bytes: a sandbox may have half a million. */
struct node {
    uint32_t fail;      /* while it is built: the longest proper end of this beginning that is a
                         * beginning too; then, of such ends, the longest with a child unlike its
                         * own */
    uint32_t child;     /* the first, or 0 */
    uint32_t next : 24; /* of the same parent, or 0 */
    uint32_t c : 8;     /* last byte of this beginning */
    uint16_t depth;     /* its length */
    uint16_t word;      /* length of the longest word that it ends with, or 0 */
};

_Static_assert(AUTOMATON_TOTAL_MAX + 1 < 1u << 24, "a node's number has 24 bits");
_Static_assert(AUTOMATON_WORD_MAX <= UINT16_MAX, "a length has 16 bits");

struct table {
    uint32_t node;
    uint32_t children[256];
};

struct automaton {
    unsigned refs;
    bool built;
    size_t words, total;
    struct node *nodes; /* nodes[0]: the empty beginning */
    uint32_t count, capacity;
    struct table *tables; /* by node, rising; the first is the root's */
    uint32_t table_count;
    struct pair_set pairs; /* automaton_skip ends where one of them begins */
};

/* -- life -------------------------------------------------------------------------------------- */

struct automaton *automaton_new(void)
{
    struct automaton *a = calloc(1, sizeof(*a));

    if (a)
        a->refs = 1;
    return a;
}

struct automaton *automaton_ref(struct automaton *a)
{
    a->refs++;
    return a;
}

static void free_nodes(struct node *nodes, size_t n)
{
    if (nodes)
        explicit_bzero(nodes, n * sizeof(*nodes));
    free(nodes);
}

void automaton_unref(struct automaton *a)
{
    if (!a || --a->refs > 0)
        return;
    free_nodes(a->nodes, a->count);
    if (a->tables)
        explicit_bzero(a->tables, a->table_count * sizeof(*a->tables));
    free(a->tables);
    explicit_bzero(&a->pairs, sizeof(a->pairs));
    free(a);
}

/* Copies the words' own ends alone, without what building added. */
static void copy_nodes(const struct automaton *from, struct automaton *to)
{
    for (uint32_t i = 0; i < from->count; i++) {
        const struct node *n = &from->nodes[i];

        to->nodes[i] = *n;
        to->nodes[i].fail = 0;
        to->nodes[i].word = n->word == n->depth ? n->word : 0;
    }
}

struct automaton *automaton_clone(const struct automaton *a)
{
    struct automaton *c = automaton_new();

    if (!c)
        return NULL;
    c->words = a->words;
    c->total = a->total;
    c->nodes = calloc(MAX(a->count, 1u), sizeof(*c->nodes));
    if (!c->nodes) {
        free(c);
        return NULL;
    }
    c->capacity = c->count = MAX(a->count, 1u);
    copy_nodes(a, c);
    return c;
}

/* -- words ------------------------------------------------------------------------------------- */

/* Not realloc, which would leave a copy of what a secret is made of. */
static int make_space(struct automaton *a, size_t more)
{
    size_t capacity = a->capacity ? a->capacity : FIRST;
    struct node *grown;

    while (capacity < a->count + more)
        capacity *= 2;
    capacity = MIN(capacity, (size_t)NODES_MAX);
    if (capacity <= a->capacity)
        return 0;
    grown = calloc(capacity, sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    if (a->nodes)
        memcpy(grown, a->nodes, a->count * sizeof(*grown));
    free_nodes(a->nodes, a->count);
    a->nodes = grown;
    a->capacity = (uint32_t)capacity;
    a->count = MAX(a->count, 1u);
    return 0;
}

static uint32_t child_in_list(const struct automaton *a, uint32_t node, unsigned char c)
{
    uint32_t i = a->nodes[node].child;

    while (i && a->nodes[i].c != c)
        i = a->nodes[i].next;
    return i;
}

static uint32_t add_child(struct automaton *a, uint32_t parent, unsigned char c)
{
    uint32_t i = a->count++;

    a->nodes[i] = (struct node){
        .c = c, .next = a->nodes[parent].child, .depth = (uint16_t)(a->nodes[parent].depth + 1)};
    a->nodes[parent].child = i;
    return i;
}

int automaton_add(struct automaton *a, const char *word, size_t n)
{
    uint32_t at = 0;
    int rc;

    if (a->built)
        return -EINVAL;
    if (n == 0 || n > AUTOMATON_WORD_MAX)
        return -EMSGSIZE;
    rc = make_space(a, MIN(n, AUTOMATON_TOTAL_MAX - a->total) + 1);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        uint32_t next = child_in_list(a, at, (unsigned char)word[i]);

        if (!next && (a->words >= AUTOMATON_WORDS_MAX || a->total + n > AUTOMATON_TOTAL_MAX))
            return -EMSGSIZE; /* beginnings that were made meanwhile are found, and end nowhere */
        at = next ? next : add_child(a, at, (unsigned char)word[i]);
    }
    if (rc < 0 || a->nodes[at].word)
        return rc;
    if (a->words >= AUTOMATON_WORDS_MAX || a->total + n > AUTOMATON_TOTAL_MAX)
        return -EMSGSIZE;
    a->nodes[at].word = (uint16_t)n;
    a->words++;
    a->total += n;
    return 0;
}

size_t automaton_count(const struct automaton *a)
{
    return a->words;
}

size_t automaton_total(const struct automaton *a)
{
    return a->total;
}

bool automaton_is_built(const struct automaton *a)
{
    return a->built;
}

/* -- building ---------------------------------------------------------------------------------- */

static size_t count_children(const struct automaton *a, uint32_t node)
{
    size_t n = 0;

    for (uint32_t i = a->nodes[node].child; i; i = a->nodes[i].next)
        n++;
    return n;
}

static bool wants_table(const struct automaton *a, uint32_t node)
{
    return node == 0 || count_children(a, node) > AUTOMATON_LIST_MAX;
}

static int make_tables(struct automaton *a)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < a->count; i++)
        n += wants_table(a, i);
    a->tables = calloc(n, sizeof(*a->tables));
    if (!a->tables)
        return -ENOMEM;
    for (uint32_t i = 0; i < a->count; i++) {
        struct table *t = &a->tables[a->table_count];

        if (!wants_table(a, i))
            continue;
        t->node = i;
        for (uint32_t k = a->nodes[i].child; k; k = a->nodes[k].next)
            t->children[a->nodes[k].c] = k;
        a->table_count++;
    }
    return 0;
}

/* A node with more than AUTOMATON_LIST_MAX children is rare: the list's end tells that there is a
 * table. */
static uint32_t child_of(const struct automaton *a, uint32_t node, unsigned char c)
{
    uint32_t i = a->nodes[node].child, low = 0, high = a->table_count;

    if (node == 0)
        return a->tables[0].children[c];
    for (unsigned n = 0; i && n < AUTOMATON_LIST_MAX; n++, i = a->nodes[i].next)
        if (a->nodes[i].c == c)
            return i;
    if (!i)
        return 0;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;

        if (a->tables[middle].node <= node)
            low = middle;
        else
            high = middle;
    }
    return a->tables[low].children[c];
}

static uint32_t fail_of(const struct automaton *a, uint32_t parent, unsigned char c)
{
    uint32_t at = a->nodes[parent].fail, next;

    if (parent == 0)
        return 0;
    while (!(next = child_of(a, at, c)) && at != 0)
        at = a->nodes[at].fail;
    return next;
}

/* Does every child of `of` have its like among those of `among`? */
static bool has_children_of(const struct automaton *a, uint32_t among, uint32_t of)
{
    uint32_t i = a->nodes[of].child;

    while (i && child_of(a, among, (unsigned char)a->nodes[i].c))
        i = a->nodes[i].next;
    return i == 0;
}

/* Where a node has no child for a byte, neither have those whose children are all like its own
 * (Knuth, Morris and Pratt, 1977). Without them a run of one character, say, is left in one step
 * instead of as many as it is long: a finder may come back to its end again and again, so that they
 * would not be few on average. */
static uint32_t strong_fail(const struct automaton *a, uint32_t node)
{
    uint32_t at = a->nodes[node].fail;

    while (at != 0 && has_children_of(a, node, at))
        at = a->nodes[at].fail;
    return at;
}

/* Breadth first, so that what a node falls back to is known before it; and is strong by then. */
static void link_fails(struct automaton *a, uint32_t *queue)
{
    uint32_t first = 0, last = 0;

    queue[last++] = 0;
    while (first < last) {
        uint32_t parent = queue[first++];

        for (uint32_t i = a->nodes[parent].child; i; i = a->nodes[i].next) {
            struct node *n = &a->nodes[i];

            n->fail = fail_of(a, parent, (unsigned char)n->c);
            if (!n->word) /* else its own is the longest */
                n->word = a->nodes[n->fail].word;
            queue[last++] = i;
        }
        a->nodes[parent].fail = strong_fail(a, parent);
    }
}

static bool is_stop(unsigned char c)
{
    return c == AUTOMATON_STOPS[0] || c == AUTOMATON_STOPS[1] || c == AUTOMATON_STOPS[2];
}

/* After the byte c alone, does a second one bring it on? A word of one byte ends with any. */
static bool goes_on(const struct automaton *a, unsigned char c, unsigned char second)
{
    uint32_t first = a->tables[0].children[c];

    if (is_stop(c))
        return true;
    return first && (is_stop(second) || a->nodes[first].word || child_of(a, first, second));
}

static void make_pairs(struct automaton *a)
{
    for (unsigned i = 0; i < PAIR_SET_PAIRS; i++)
        if (goes_on(a, (unsigned char)(i >> 8), (unsigned char)i))
            pair_set_add(&a->pairs, (unsigned char)(i >> 8), (unsigned char)i);
}

int automaton_build(struct automaton *a)
{
    uint32_t *queue;
    int rc = a->built ? 0 : make_space(a, 1);

    if (a->built || rc < 0)
        return rc;
    queue = calloc(a->count, sizeof(*queue));
    rc = queue ? make_tables(a) : -ENOMEM;
    if (rc == 0) {
        link_fails(a, queue);
        make_pairs(a);
    }
    free(queue);
    a->built = rc == 0;
    return rc;
}

/* -- searching --------------------------------------------------------------------------------- */

bool automaton_begins(const struct automaton *a, unsigned char c)
{
    return a->tables[0].children[c] != 0;
}

size_t automaton_skip(const struct automaton *a, const char *data, size_t n)
{
    size_t i = pair_set_find(&a->pairs, data, n);

    if (i < n && !automaton_begins(a, (unsigned char)data[i]) && !is_stop((unsigned char)data[i]))
        i++;
    return i;
}

/* The first child is looked at without a call, and most nodes have no other: 4.2 ns a byte instead
 * of 5.9 where a text leads to a word's end and back from it with each byte. */
static inline uint32_t follow(const struct automaton *a, uint32_t at, unsigned char c)
{
    const struct node *nodes = a->nodes;
    uint32_t next;

    while (at != 0) {
        next = nodes[at].child;
        if (next && nodes[next].c == c)
            return next;
        if (next && nodes[next].next && (next = child_of(a, at, c)))
            return next;
        at = nodes[at].fail;
    }
    return a->tables[0].children[c];
}

size_t automaton_step(const struct automaton *a, automaton_state *s, unsigned char c)
{
    *s = follow(a, *s, c);
    return a->nodes[*s].word;
}

size_t automaton_run(const struct automaton *a, automaton_state *s, const char *data, size_t n,
                     size_t *word)
{
    uint32_t at = *s;
    size_t i = 0;

    for (*word = 0; i < n && !is_stop((unsigned char)data[i]) && *word == 0;) {
        at = follow(a, at, (unsigned char)data[i++]);
        *word = a->nodes[at].word;
        if (at == 0)
            break;
        if (a->nodes[at].depth == 1 && i < n && !pair_set_has(&a->pairs, data + i - 1)) {
            at = 0; /* where a text is full of such bytes, it would never be left out */
            break;
        }
    }
    *s = at;
    return i;
}

size_t automaton_begun(const struct automaton *a, automaton_state s)
{
    while (s && !a->nodes[s].child)
        s = a->nodes[s].fail;
    return a->nodes[s].depth;
}
