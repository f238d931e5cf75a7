#include "egress/credential/finder.h"

#include "base/util.h"

#include <string.h>

/* -- readings ---------------------------------------------------------------------------------- */

static void copy(struct finder_set *to, const struct finder_set *from)
{
    to->count = from->count;
    for (unsigned i = 0; i < from->count; i++)
        to->list[i] = from->list[i];
}

/* That which has least of a word, of as many as there may be. */
static struct finder_reading *least_of(const struct automaton *a, struct finder_set *set)
{
    struct finder_reading *least = &set->list[0];

    for (unsigned i = 1; i < set->count; i++)
        if (automaton_begun(a, set->list[i].state) < automaton_begun(a, least->state))
            least = &set->list[i];
    return least;
}

static void keep(const struct automaton *a, struct finder_set *set, struct finder_reading r)
{
    struct finder_reading *least;

    if (r.state == 0 && set->count > 0) /* the others' set includes it */
        return;
    for (unsigned i = 0; i < set->count; i++) {
        struct finder_reading *one = &set->list[i];

        if (one->state == r.state) {
            one->more = MAX(one->more, r.more);
            return;
        }
    }
    if (set->count < FINDER_READINGS_MAX) {
        set->list[set->count++] = r;
        return;
    }
    least = least_of(a, set);
    if (automaton_begun(a, least->state) < automaton_begun(a, r.state))
        *least = r;
}

/* Adds the next character, which takes `bytes` of the stream. Returns what a word takes that ends
 * there, or 0. */
static size_t advance(const struct automaton *a, struct finder_reading *r, unsigned char c,
                      unsigned bytes)
{
    size_t word = automaton_step(a, &r->state, c), begun, most;

    if (r->state == 0) {
        r->more = 0;
        return 0;
    }
    r->more += bytes - 1;
    if (r->more == 0) /* as a rule */
        return word;
    word += word ? MIN((size_t)r->more, word * (FINDER_ESCAPE_MAX - 1)) : 0;
    begun = automaton_begun(a, r->state);
    most = begun * (FINDER_ESCAPE_MAX - 1);
    r->more = (uint32_t)MIN((size_t)r->more, most);
    return word;
}

static size_t advance_all(const struct automaton *a, const struct finder_set *from, unsigned char c,
                          unsigned bytes, struct finder_set *to)
{
    size_t longest = 0;
    unsigned i = 0;

    do {
        struct finder_reading r = from->count ? from->list[i] : (struct finder_reading){0};
        size_t word = advance(a, &r, c, bytes);

        longest = MAX(longest, word);
        keep(a, to, r);
    } while (++i < from->count);
    return longest;
}

/* -- escapes ----------------------------------------------------------------------------------- */

enum { NOT_ONE = -2, NOT_WHOLE = -1 }; /* else the character that it stands for */

static bool begins_escape(unsigned char c)
{
    return c == AUTOMATON_STOPS[0] || c == AUTOMATON_STOPS[1] || c == AUTOMATON_STOPS[2];
}

static int digit(unsigned char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* s[0..n): so many hexadecimal digits, of which there may be fewer yet. */
static int read_hex(const unsigned char *s, unsigned n, unsigned wanted)
{
    int value = 0;

    for (unsigned i = 0; i < n; i++) {
        if (digit(s[i]) < 0)
            return NOT_ONE;
        value = MIN(value * 16 + digit(s[i]), 0x10000);
    }
    if (n < wanted)
        return NOT_WHOLE;
    return value > 0xff ? NOT_ONE : value;
}

/* "{" hexadecimal digits "}" */
static int read_braces(const unsigned char *s, unsigned n)
{
    int value = 0;

    for (unsigned i = 1; i < n; i++) {
        if (s[i] == '}')
            return i > 1 && value <= 0xff ? value : NOT_ONE;
        if (digit(s[i]) < 0)
            return NOT_ONE;
        value = MIN(value * 16 + digit(s[i]), 0x10000);
    }
    return n < FINDER_ESCAPE_MAX - 2 ? NOT_WHOLE : NOT_ONE;
}

/* Up to three digits. */
static int read_octal(const unsigned char *s, unsigned n)
{
    int value = 0;

    for (unsigned i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '7')
            return NOT_ONE;
        value = value * 8 + s[i] - '0';
    }
    if (n < 3)
        return NOT_WHOLE;
    return value > 0xff ? NOT_ONE : value;
}

static int read_backslash(const unsigned char *s, unsigned n)
{
    if (n == 1)
        return NOT_WHOLE;
    if (s[1] >= '0' && s[1] <= '7')
        return read_octal(s + 1, n - 1);
    if (s[1] == 'u' && n > 2 && s[2] == '{')
        return read_braces(s + 2, n - 2);
    if (s[1] == 'u')
        return read_hex(s + 2, n - 2, 4);
    if (s[1] == 'U')
        return read_hex(s + 2, n - 2, 8);
    if (s[1] == 'x')
        return read_hex(s + 2, n - 2, 2);
    switch (s[1]) {
    case '"':
    case '\'':
    case '\\':
    case '/':
    case '`':
    case '$':
    case '&':
    case '<':
    case '>': return s[1];
    default: return NOT_ONE;
    }
}

static int read_name(const unsigned char *s, unsigned n)
{
    static const struct {
        char text[8];
        unsigned char c;
    } names[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (strncmp((const char *)s, names[i].text, n) == 0)
            return n == strlen(names[i].text) ? names[i].c : NOT_WHOLE;
    return NOT_ONE;
}

/* "&#" digits ";" or "&#x" hexadecimal digits ";"; without the last: read_open. */
static int read_number(const unsigned char *s, unsigned n)
{
    bool hex = n > 2 && (s[2] | 0x20) == 'x';
    unsigned from = hex ? 3 : 2;
    int value = 0;

    for (unsigned i = from; i < n; i++) {
        int d = digit(s[i]);

        if (s[i] == ';')
            return i > from && value <= 0xff ? value : NOT_ONE;
        if (d < 0 || (!hex && d > 9))
            return NOT_ONE;
        value = MIN(value * (hex ? 16 : 10) + d, 0x10000);
    }
    return n < FINDER_ESCAPE_MAX ? NOT_WHOLE : NOT_ONE;
}

static int read_escape(const unsigned char *s, unsigned n)
{
    if (s[0] == '%' && n > 1 && (s[1] | 0x20) == 'u')
        return read_hex(s + 2, n - 2, 4);
    if (s[0] == '%')
        return read_hex(s + 1, n - 1, 2);
    if (s[0] == '\\')
        return read_backslash(s, n);
    if (n == 1)
        return NOT_WHOLE;
    return s[1] == '#' ? read_number(s, n) : read_name(s, n);
}

/* An escape that is not whole, but ends here where what follows is no more of it: HTML's numbers
 * without their ';', octal ones with fewer digits. NOT_ONE: it is none. */
static int read_open(const unsigned char *s, unsigned n)
{
    bool octal = s[0] == '\\' && n > 1 && s[1] >= '0' && s[1] <= '7',
         number = s[0] == '&' && n > 2 && s[1] == '#';
    bool hex = number && (s[2] | 0x20) == 'x';
    unsigned from = octal ? 1 : hex ? 3 : 2;
    int value = 0;

    if ((!octal && !number) || n == from)
        return NOT_ONE;
    for (unsigned i = from; i < n; i++)
        value = MIN(value * (octal ? 8 : hex ? 16 : 10) + digit(s[i]), 0x10000);
    return value <= 0xff ? value : NOT_ONE;
}

/* -- steps ------------------------------------------------------------------------------------- */

/* The byte as one more of the escape that has begun. */
static size_t step_escape(const struct automaton *a, struct finder *f, unsigned char c,
                          struct finder_set *to)
{
    int value;

    f->escape[f->escape_len++] = c;
    value = read_escape(f->escape, f->escape_len);
    if (value == NOT_WHOLE) {
        value = read_open(f->escape, f->escape_len);
        return value < 0 ? 0 : advance_all(a, &f->before, (unsigned char)value, f->escape_len, to);
    }
    if (value >= 0) {
        size_t longest = advance_all(a, &f->before, (unsigned char)value, f->escape_len, to);

        f->escape_len = 0;
        return longest;
    }
    f->escape_len = 0;
    return 0;
}

size_t finder_step(const struct automaton *a, struct finder *f, unsigned char c)
{
    struct finder_set next;
    size_t longest, escaped = 0;

    next.count = 0;
    if (f->escape_len > 0)
        escaped = step_escape(a, f, c, &next);
    longest = advance_all(a, &f->now, c, 1, &next);
    if (begins_escape(c)) {
        copy(&f->before, &f->now);
        f->escape[0] = c;
        f->escape_len = 1;
    }
    copy(&f->now, &next);
    return MAX(longest, escaped);
}

/* -- runs -------------------------------------------------------------------------------------- */

/* Is there at most one reading, with all its characters unescaped, and has no escape begun? */
static bool is_plain(const struct finder *f)
{
    return f->escape_len == 0 &&
           (f->now.count == 0 || (f->now.count == 1 && f->now.list[0].more == 0));
}

/* An escape may begin at s, where nothing of a word has been seen: do these n bytes show that it
 * stands for no first character of a word, or is none at all? */
static bool leads_nowhere(const struct automaton *a, const unsigned char *s, size_t n)
{
    int value = NOT_WHOLE;

    for (unsigned len = 2; len <= MIN(n, (size_t)FINDER_ESCAPE_MAX) && value == NOT_WHOLE; len++) {
        int open = NOT_ONE;

        value = read_escape(s, len);
        if (value == NOT_WHOLE)
            open = read_open(s, len);
        if (open >= 0 && automaton_begins(a, (unsigned char)open))
            return false;
    }
    return value == NOT_ONE || (value >= 0 && !automaton_begins(a, (unsigned char)value));
}

/* Where nothing of a word has been seen: how many bytes change nothing. */
static size_t skip(const struct automaton *a, const char *data, size_t n)
{
    size_t i = automaton_skip(a, data, n);

    while (i < n && begins_escape((unsigned char)data[i]) &&
           !automaton_begins(a, (unsigned char)data[i]) &&
           leads_nowhere(a, (const unsigned char *)data + i, n - i)) {
        i++;
        i += automaton_skip(a, data + i, n - i);
    }
    return i;
}

/* As far as bytes are what they stand for, from one plain reading. */
static size_t run_plain(const struct automaton *a, struct finder *f, const char *data, size_t n,
                        size_t *word)
{
    automaton_state s = f->now.count ? f->now.list[0].state : 0;
    size_t i = 0, used = 1;

    for (*word = 0; i < n && used > 0 && *word == 0; i += used) {
        if (s == 0)
            i += skip(a, data + i, n - i);
        used = automaton_run(a, &s, data + i, n - i, word);
    }
    f->now.count = 1;
    f->now.list[0] = (struct finder_reading){.state = s};
    return i;
}

size_t finder_run(const struct automaton *a, struct finder *f, const char *data, size_t n,
                  size_t *word)
{
    size_t i = 0;

    for (*word = 0; i < n && *word == 0;) {
        if (is_plain(f))
            i += run_plain(a, f, data + i, n - i, word);
        if (i < n && *word == 0)
            *word = finder_step(a, f, (unsigned char)data[i++]);
    }
    return i;
}
