/* The syntax of the parts of a head: bytes by class, authorities, lists. The tables of gate.c's
 * rules; pure. */

#include "http/gate_value.h"

#include <string.h>
#include <strings.h>

#define MAX_AUTHORITY 261

/* The classes that each byte belongs to. */
static const unsigned char classes[256] = {
    ['\t'] = GATE_VALUE,
    [' '] = GATE_VALUE,
    ['!'] = GATE_TOKEN | GATE_VALUE | GATE_TARGET,
    ['"'] = GATE_VALUE | GATE_TARGET,
    ['#'] = GATE_TOKEN | GATE_VALUE,
    ['$' ... '\''] = GATE_TOKEN | GATE_VALUE | GATE_TARGET,
    ['(' ... ')'] = GATE_VALUE | GATE_TARGET,
    ['*' ... '+'] = GATE_TOKEN | GATE_VALUE | GATE_TARGET,
    [','] = GATE_VALUE | GATE_TARGET,
    ['-' ... '.'] = GATE_TOKEN | GATE_VALUE | GATE_TARGET | GATE_NAME,
    ['/'] = GATE_VALUE | GATE_TARGET,
    ['0' ... '9'] = GATE_TOKEN | GATE_VALUE | GATE_TARGET | GATE_NAME,
    [':' ... '@'] = GATE_VALUE | GATE_TARGET,
    ['A' ... 'Z'] = GATE_TOKEN | GATE_VALUE | GATE_TARGET | GATE_NAME,
    ['[' ... ']'] = GATE_VALUE | GATE_TARGET,
    ['^'] = GATE_TOKEN | GATE_VALUE | GATE_TARGET,
    ['_'] = GATE_TOKEN | GATE_VALUE | GATE_TARGET | GATE_NAME,
    ['`'] = GATE_TOKEN | GATE_VALUE | GATE_TARGET,
    ['a' ... 'z'] = GATE_TOKEN | GATE_VALUE | GATE_TARGET | GATE_NAME,
    ['{'] = GATE_VALUE | GATE_TARGET,
    ['|'] = GATE_TOKEN | GATE_VALUE | GATE_TARGET,
    ['}'] = GATE_VALUE | GATE_TARGET,
    ['~'] = GATE_TOKEN | GATE_VALUE | GATE_TARGET,
    [0x80 ... 0xff] = GATE_VALUE,
};

bool gate_is_token(unsigned char c)
{
    return classes[c] & GATE_TOKEN;
}

bool gate_is_value(unsigned char c)
{
    return classes[c] & GATE_VALUE;
}

bool gate_all_of(const char *s, size_t n, unsigned char class)
{
    for (size_t i = 0; i < n; i++)
        if (!(classes[(unsigned char)s[i]] & class))
            return false;
    return true;
}

/* -- authority --------------------------------------------------------------------------------- */

static bool is_port(const char *s)
{
    size_t n = strspn(s, "0123456789");
    unsigned value = 0;

    if (n == 0 || n > 5 || s[n] != '\0')
        return false;
    for (size_t i = 0; i < n; i++)
        value = value * 10 + (unsigned)(s[i] - '0');
    return value <= 65535;
}

bool gate_is_authority(const char *s)
{
    size_t n;

    if (strlen(s) > MAX_AUTHORITY)
        return false;
    if (s[0] == '[') {
        n = strspn(s + 1, "0123456789abcdefABCDEF:.");
        if (n < 2 || s[1 + n] != ']')
            return false;
        s += n + 2;
    } else {
        for (n = 0; classes[(unsigned char)s[n]] & GATE_NAME; n++)
            ;
        if (n == 0 || n > 255)
            return false;
        s += n;
    }
    return *s == '\0' || (*s == ':' && is_port(s + 1));
}

/* -- lists ------------------------------------------------------------------------------------- */

bool gate_list_next(const char **p, const char **out, size_t *len)
{
    const char *s = *p;
    size_t n;

    s += strspn(s, ", \t");
    if (*s == '\0')
        return false;
    n = strcspn(s, ",");
    *p = s + n;
    while (n > 0 && (s[n - 1] == ' ' || s[n - 1] == '\t'))
        n--;
    *out = s;
    *len = n;
    return true;
}

bool gate_span_is(const char *s, size_t n, const char *word)
{
    return strlen(word) == n && strncasecmp(s, word, n) == 0;
}

bool gate_list_has(const char *value, const char *token)
{
    const char *item;
    size_t n;

    while (gate_list_next(&value, &item, &n))
        if (gate_span_is(item, n, token))
            return true;
    return false;
}
