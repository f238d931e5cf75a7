/* Names and paths against the patterns of rules. Called when a policy is read (normalizing) and
 * for each question (decide.c, rule.c). Pure and linear in the subject, whatever a tenant wrote.
 * A name is normalized before it is compared; one that old parsers take for an address is no
 * name. A path is compared as it was sent, and where servers could read it in more than one way
 * (pattern_path_is_ambiguous) a rule about paths never allows it: escapes of separators, dot
 * segments, parameters, trimmed blanks. */

#include "policy/pattern.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#define PATTERN_PATH_MAX 4096u /* a longer path is ambiguous: rules about paths refuse it */

/* -- names ------------------------------------------------------------------------------------- */

static bool is_label_char(unsigned char c)
{
    return isalnum(c) || c == '-' || c == '_';
}

/* A last label of digits alone, or "0x...", is what old address parsers take for a number: such a
 * name is no name. */
static bool is_like_address(const char *name)
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
    if (label == 0 || is_like_address(lower))
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

bool pattern_domains_overlap(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);

    if (a[0] != '*' || b[0] != '*')
        return a[0] == '*' ? pattern_domain(a, b) : pattern_domain(b, a);
    return n > m ? strcmp(a + n - m + 1, b + 1) == 0 : strcmp(b + m - n + 1, a + 1) == 0;
}

/* -- paths ------------------------------------------------------------------------------------- */

/* Where the literal may stand in the path when what is skipped has no '/'; NULL: nowhere. end: the
 * '/' after path, or the path's end. A literal with a '/' has one such place at most, since its
 * first '/' must be that one. memmem(3) is linear in glibc, and no place is tried again, so the
 * whole is linear in the path, whatever pattern a tenant wrote. */
static const char *find_literal(const char *path, const char *end, const char *literal, size_t n)
{
    const char *slash = memchr(literal, '/', n);

    if (!slash)
        return memmem(path, (size_t)(end - path), literal, n);
    if (slash - literal > end - path)
        return NULL;
    path = end - (slash - literal);
    return strncmp(path, literal, n) == 0 ? path : NULL;
}

/* The last literal, which the path has to end with. */
static bool ends_with(const char *path, const char *literal, size_t n)
{
    size_t len = strlen(path);

    return len >= n && strcspn(path, "/") >= len - n && memcmp(path + len - n, literal, n) == 0;
}

/* A star is anything within a segment, and at the end of a pattern anything at all. The first place
 * of a literal is as good as any: a later star can skip what an earlier one did not. */
static bool match_path(const char *pattern, const char *path)
{
    size_t n = strcspn(pattern, "*");
    const char *end; /* of the segment: looked for once in each, not for each star */

    if (strncmp(pattern, path, n) != 0)
        return false;
    path += n;
    end = path + strcspn(path, "/");
    for (pattern += n; *pattern == '*'; pattern += n) {
        pattern += strspn(pattern, "*");
        n = strcspn(pattern, "*");
        if (n == 0)
            return true;
        if (pattern[n] == '\0')
            return ends_with(path, pattern, n);
        path = find_literal(path, end, pattern, n);
        if (!path)
            return false;
        path += n;
        if (path > end)
            end = path + strcspn(path, "/");
    }
    return *path == '\0';
}

bool pattern_path(const char *pattern, const char *path)
{
    return match_path(pattern, path);
}

static int hex_digit(unsigned char c)
{
    if (isdigit(c))
        return c - '0';
    c = (unsigned char)tolower(c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

#define STAR '\1' /* one that stands for itself: no path that is compared has a control */

/* The next character as a server has it that is asked for: without its escape and its case. */
static char take_decoded(const char **at)
{
    int high = **at == '%' ? hex_digit((unsigned char)(*at)[1]) : -1;
    int low = high < 0 ? -1 : hex_digit((unsigned char)(*at)[2]);
    char c = low < 0 ? **at : (char)(high * 16 + low);

    *at += low < 0 ? 1 : 3;
    if (c == '*')
        return STAR;
    return (char)(c + (c >= 'A' && c <= 'Z' ? 'a' - 'A' : 0)); /* tolower(3) looks it up */
}

static void decode(const char *text, bool is_pattern, char out[static PATTERN_PATH_MAX + 1])
{
    size_t n = 0;

    while (*text && n < PATTERN_PATH_MAX) {
        bool any = is_pattern && *text == '*';

        out[n++] = any ? *text++ : take_decoded(&text);
    }
    out[n] = '\0';
}

/* A pattern with a star that something follows: the path is looked through for that. */
static bool is_denied_within(const char *pattern, const char *path)
{
    char decoded_pattern[PATTERN_PATH_MAX + 1], decoded_path[PATTERN_PATH_MAX + 1];
    size_t n;

    decode(pattern, true, decoded_pattern);
    decode(path, false, decoded_path);
    if (match_path(decoded_pattern, decoded_path))
        return true;
    n = strlen(decoded_path);
    if (n < 2 || decoded_path[n - 1] != '/')
        return false;
    decoded_path[n - 1] = '\0';
    return match_path(decoded_pattern, decoded_path);
}

bool pattern_path_has_inner_star(const char *pattern)
{
    const char *star = strchr(pattern, '*');

    return star && star[strspn(star, "*")] != '\0';
}

/* Without case, without escapes (":" and "%3A" are one to servers), and with a '/' more at the
 * path's end. Most patterns are done with at the first letter that differs. */
bool pattern_path_denied(const char *pattern, const char *path)
{
    const char *p = pattern, *q = path;

    while (*p && *p != '*')
        if (!*q || take_decoded(&p) != take_decoded(&q))
            return false;
    if (*p && pattern_path_has_inner_star(p))
        return is_denied_within(pattern, path);
    return *p || !*q || strcmp(q, "/") == 0;
}

/* Long forms of ASCII in UTF-8 (RFC 3629 section 10), which lenient decoders take: two bytes begin
 * with 0xc0 or 0xc1, three with 0xe0 and below 0xa0, four with 0xf0 and below 0x90. */
static bool is_long_form(unsigned char c, const char *next)
{
    int high = next[0] == '%' ? hex_digit((unsigned char)next[1]) : -1;
    int low = high < 0 ? -1 : hex_digit((unsigned char)next[2]);
    int second = low < 0 ? -1 : high * 16 + low;

    if (c == 0xe0)
        return second < 0xa0;
    return c == 0xc0 || c == 0xc1 || (c == 0xf0 && second < 0x90);
}

/* A blank beside dots, or at an end of a segment: some trim a segment before they look what it is
 * (CVE-2016-5007). */
static bool is_trimmed(const char *path, const char *at)
{
    return (at > path && strchr("./", at[-1])) || strchr("./", at[3]);
}

/* An escape of what needs none, of a separator or of a control: some decode it before they look,
 * some do not. */
static bool is_ambiguous_escape(const char *path, const char *at)
{
    int high = hex_digit((unsigned char)at[1]);
    int low = high < 0 ? -1 : hex_digit((unsigned char)at[2]);
    unsigned char c;

    if (low < 0)
        return true;
    c = (unsigned char)(high * 16 + low);
    return c < 0x20 || c == 0x7f || isalnum(c) || is_long_form(c, at + 3) ||
           (c == ' ' && is_trimmed(path, at)) || strchr("-._~/\\%;", c);
}

static bool is_dot_segment(const char *segment)
{
    size_t dots = strspn(segment, ".");

    return dots >= 1 && dots <= 2 && (segment[dots] == '\0' || segment[dots] == '/');
}

/* A ';' begins parameters of a segment, which some servers cut off before they look. */
bool pattern_path_is_ambiguous(const char *path)
{
    if (path[0] != '/' || strnlen(path, PATTERN_PATH_MAX + 1) > PATTERN_PATH_MAX)
        return true;
    for (const char *at = path; *at; at++) {
        unsigned char c = (unsigned char)*at;

        if (c <= 0x20 || c >= 0x7f || c == '\\' || c == ';' ||
            (c == '%' && is_ambiguous_escape(path, at)))
            return true;
        if (c == '/' && (at[1] == '/' || is_dot_segment(at + 1)))
            return true;
    }
    return false;
}
