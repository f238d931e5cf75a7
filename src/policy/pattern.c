/* Names and paths against their patterns. */
#include "policy/internal.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#define PATTERN_PATH_MAX 32768u /* a head's bytes: no path is longer */

/* -- names ------------------------------------------------------------------------------------- */

static bool is_label_char(unsigned char c)
{
    return isalnum(c) || c == '-' || c == '_';
}

/* A last label of digits alone, or "0x...", is what old address parsers take for a number: such a
 * name is no name. */
static bool looks_like_address(const char *name)
{
    const char *last = strrchr(name, '.');

    last = last ? last + 1 : name;
    if (last[strspn(last, "0123456789")] == '\0')
        return true;
    return last[0] == '0' && last[1] == 'x' &&
           last[2 + strspn(last + 2, "0123456789abcdef")] == '\0';
}

int policy_name_normalize(const char *in, char out[static POLICY_NAME_MAX + 1])
{
    char lower[POLICY_NAME_MAX + 1];
    size_t n = strlen(in), label = 0;

    if (n > 0 && in[n - 1] == '.')
        n--;
    if (n == 0 || n > POLICY_NAME_MAX)
        return -EINVAL;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)in[i];

        label = c == '.' ? (label == 0 ? 64 : 0) : label + 1;
        if (label > 63 || (c != '.' && !is_label_char(c)))
            return -EINVAL;
        lower[i] = (char)tolower(c);
    }
    lower[n] = '\0';
    if (label == 0 || looks_like_address(lower))
        return -EINVAL;
    memcpy(out, lower, n + 1);
    return 0;
}

int pattern_domain_normalize(const char *in, char out[static POLICY_NAME_MAX + 3])
{
    bool star = strncmp(in, "*.", 2) == 0;
    char name[POLICY_NAME_MAX + 1];

    if (policy_name_normalize(star ? in + 2 : in, name) < 0)
        return -EINVAL;
    memcpy(out, "*.", 2);
    memcpy(out + (star ? 2 : 0), name, strlen(name) + 1);
    return 0;
}

bool pattern_domain(const char *pattern, const char *name)
{
    size_t n_suffix, n = strlen(name);

    if (pattern[0] != '*')
        return strcmp(pattern, name) == 0;
    n_suffix = strlen(pattern + 1); /* with its dot: evilexample.org does not end with it */
    return n > n_suffix && strcmp(name + n - n_suffix, pattern + 1) == 0;
}

/* -- paths ------------------------------------------------------------------------------------- */

static bool same_exactly(char a, char b)
{
    return a == b;
}

static bool same_without_case(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* One star at a time is kept to go back to, so the time is bounded by the product of the lengths. */
static bool match_path(const char *pattern, const char *path, bool (*same)(char a, char b))
{
    const char *star = NULL, *from = NULL;

    while (*path) {
        if (*pattern == '*' && pattern[1] == '\0')
            return true;
        if (*pattern == '*') {
            star = pattern++;
            from = path;
        } else if (same(*pattern, *path)) {
            pattern++;
            path++;
        } else if (star && *from != '/') {
            pattern = star + 1;
            path = ++from;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}

bool pattern_path(const char *pattern, const char *path)
{
    return match_path(pattern, path, same_exactly);
}

bool pattern_path_denied(const char *pattern, const char *path)
{
    char without[PATTERN_PATH_MAX + 1];
    size_t n = strlen(path);

    if (match_path(pattern, path, same_without_case))
        return true;
    if (n < 2 || n > sizeof(without) || path[n - 1] != '/')
        return false;
    memcpy(without, path, n - 1);
    without[n - 1] = '\0';
    return match_path(pattern, without, same_without_case);
}

static int hex_digit(unsigned char c)
{
    if (isdigit(c))
        return c - '0';
    c = (unsigned char)tolower(c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* An escape of what needs none, of a separator or of a control: some decode it before they look,
 * some do not. 0xc0 and 0xc1 begin nothing in UTF-8 but long forms of ASCII. */
static bool is_ambiguous_escape(const char *at)
{
    int high = hex_digit((unsigned char)at[1]);
    int low = high < 0 ? -1 : hex_digit((unsigned char)at[2]);
    unsigned char c;

    if (low < 0)
        return true;
    c = (unsigned char)(high * 16 + low);
    return c < 0x20 || c == 0x7f || isalnum(c) || c == 0xc0 || c == 0xc1 ||
           (c != 0 && strchr("-._~/\\%;", c));
}

static bool is_dot_segment(const char *segment)
{
    size_t dots = strspn(segment, ".");

    return dots >= 1 && dots <= 2 && (segment[dots] == '\0' || segment[dots] == '/');
}

/* A ';' begins parameters of a segment, which some servers cut off before they look. */
bool pattern_path_is_ambiguous(const char *path)
{
    if (path[0] != '/')
        return true;
    for (const char *at = path; *at; at++) {
        unsigned char c = (unsigned char)*at;

        if (c <= 0x20 || c >= 0x7f || c == '\\' || c == ';' ||
            (c == '%' && is_ambiguous_escape(at)))
            return true;
        if (c == '/' && (at[1] == '/' || is_dot_segment(at + 1)))
            return true;
    }
    return false;
}
