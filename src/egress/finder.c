#include "egress/finder.h"

#include "base/util.h"

#include <string.h>

/* -- readings ---------------------------------------------------------------------------------- */

static void keep(const struct automaton *a, struct finder_set *set, struct finder_reading r)
{
    struct finder_reading *least = NULL;

    if (r.state == 0 && set->count > 0) /* what the others have includes it */
        return;
    for (unsigned i = 0; i < set->count; i++) {
        struct finder_reading *one = &set->list[i];

        if (one->state == r.state) {
            one->more = MAX(one->more, r.more);
            return;
        }
        if (!least || automaton_begun(a, one->state) < automaton_begun(a, least->state))
            least = one;
    }
    if (set->count < FINDER_READINGS_MAX)
        set->list[set->count++] = r;
    else if (automaton_begun(a, least->state) < automaton_begun(a, r.state))
        *least = r;
}

/* One reading's next character, which takes `bytes` of the stream. Returns what a word takes that ends
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
    return c == '%' || c == '\\' || c == '&';
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
        value = value * 16 + digit(s[i]);
    }
    if (n < wanted)
        return NOT_WHOLE;
    return value > 0xff ? NOT_ONE : value;
}

static int read_backslash(const unsigned char *s, unsigned n)
{
    if (n == 1)
        return NOT_WHOLE;
    if (s[1] == 'u')
        return read_hex(s + 2, n - 2, 4);
    if (s[1] == 'x')
        return read_hex(s + 2, n - 2, 2);
    return strchr("\"'\\/`$&<>", s[1]) && s[1] ? s[1] : NOT_ONE;
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

/* "&#" digits ";" or "&#x" hexadecimal digits ";" */
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
    if (s[0] == '%')
        return read_hex(s + 1, n - 1, 2);
    if (s[0] == '\\')
        return read_backslash(s, n);
    if (n == 1)
        return NOT_WHOLE;
    return s[1] == '#' ? read_number(s, n) : read_name(s, n);
}

/* -- steps ------------------------------------------------------------------------------------- */

/* The byte as one more of the escape that has begun. */
static size_t step_escape(const struct automaton *a, struct finder *f, unsigned char c,
                          struct finder_set *to)
{
    int value;

    f->escape[f->escape_len++] = c;
    value = read_escape(f->escape, f->escape_len);
    if (value == NOT_WHOLE)
        return 0;
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
        f->before = f->now;
        f->escape[0] = c;
        f->escape_len = 1;
    }
    f->now = next;
    return MAX(longest, escaped);
}

size_t finder_skip(const struct automaton *a, const struct finder *f, const char *data, size_t n)
{
    size_t i = 0;

    if (f->escape_len > 0 || f->now.count > 1 || (f->now.count == 1 && f->now.list[0].state))
        return 0;
    n = automaton_skip(a, data, n);
    while (i < n && !begins_escape((unsigned char)data[i]))
        i++;
    return i;
}
