#include "egress/credential/placeholder.h"

#include "egress/credential/credential.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* A byte that is often percent-encoded stands for both spellings. */
static const struct spelling {
    const char *start, *end;
} spellings[] = {{"cay-secret:", ""}, {"${e2b.secrets.", "}"}};

static bool is_escape_of(const char *text, char c)
{
    char escape[4];

    snprintf(escape, sizeof(escape), "%%%02X", (unsigned char)c);
    return strncasecmp(text, escape, 3) == 0;
}

/* How many bytes of text[0..n) are `what`, with some of its characters as %XX; 0: it is not. */
static size_t match(const char *text, size_t n, const char *what, bool *encoded)
{
    size_t at = 0;

    for (; *what; what++) {
        if (at < n && text[at] == *what) {
            at++;
        } else if (n - at >= 3 && text[at] == '%' && is_escape_of(text + at, *what)) {
            at += 3;
            *encoded = true;
        } else {
            return 0;
        }
    }
    return at;
}

static size_t name_length(const char *s, size_t n)
{
    size_t len = 0;

    while (len < n && len < POLICY_CREDENTIAL_MAX &&
           (isalnum((unsigned char)s[len]) || strchr("-_.", s[len])) && s[len])
        len++;
    while (len > 0 && s[len - 1] == '.') /* a sentence's end */
        len--;
    return len;
}

/* Reads a placeholder that begins at text. */
static bool read_spelling(const char *text, size_t n, const struct spelling *s,
                          struct placeholder *out)
{
    bool encoded = false;
    size_t start = match(text, n, s->start, &encoded), len, end;

    if (start == 0)
        return false;
    len = name_length(text + start, n - start);
    if (len == 0 || !credential_is_name(text + start, len))
        return false;
    end = match(text + start + len, n - start - len, s->end, &encoded);
    if (end == 0 && *s->end)
        return false;
    *out = (struct placeholder){0, start + len + end, text + start, len, encoded};
    return true;
}

bool placeholder_find(const char *text, size_t n, struct placeholder *out)
{
    for (size_t at = 0; at < n; at++) {
        if (text[at] != 'c' && text[at] != '$' && text[at] != '%')
            continue;
        for (size_t i = 0; i < ARRAY_SIZE(spellings); i++)
            if (read_spelling(text + at, n - at, &spellings[i], out)) {
                out->at = at;
                return true;
            }
    }
    return false;
}

static bool is_unreserved(unsigned char c)
{
    return isalnum(c) || (c && strchr("-_.~", c));
}

int placeholder_put(struct buf *b, const char *s, enum placeholder_escape how)
{
    int rc = how == PLACEHOLDER_PLAIN ? buf_append_str(b, s) : 0;

    for (; how != PLACEHOLDER_PLAIN && *s && rc == 0; s++) {
        unsigned char c = (unsigned char)*s;

        if (how == PLACEHOLDER_JSON)
            rc = buf_printf(b, c == '"' || c == '\\' ? "\\%c" : "%c", c);
        else if (how == PLACEHOLDER_PLUS && c == ' ')
            rc = buf_append(b, "+", 1);
        else
            rc = buf_printf(b, is_unreserved(c) ? "%c" : "%%%02X", c);
    }
    return rc;
}
