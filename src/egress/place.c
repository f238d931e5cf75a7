#include "egress/place.h"

#include "egress/credential.h"

#include <ctype.h>
#include <string.h>

static const struct spelling {
    const char *start, *end;
} spellings[] = {{"cay-secret:", ""}, {"${e2b.secrets.", "}"}};

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

static bool find_spelling(const char *text, size_t n, const struct spelling *s, struct place *out)
{
    size_t start = strlen(s->start), end = strlen(s->end);

    for (const char *p = text; (p = memmem(p, n - (size_t)(p - text), s->start, start)); p++) {
        const char *name = p + start;
        size_t left = n - (size_t)(name - text), len = name_length(name, left);

        if (len == 0 || !credential_is_name(name, len) || left - len < end ||
            memcmp(name + len, s->end, end) != 0)
            continue;
        *out = (struct place){(size_t)(p - text), start + len + end, name, len};
        return true;
    }
    return false;
}

bool place_find(const char *text, size_t n, struct place *out)
{
    struct place one;
    bool found = false;

    for (size_t i = 0; i < ARRAY_SIZE(spellings); i++)
        if (find_spelling(text, n, &spellings[i], &one) && (!found || one.at < out->at)) {
            *out = one;
            found = true;
        }
    return found;
}

static bool is_unreserved(unsigned char c)
{
    return isalnum(c) || (c && strchr("-_.~", c));
}

int place_put(struct buf *b, const char *s, enum place_escape how)
{
    int rc = how == PLACE_PLAIN ? buf_append_str(b, s) : 0;

    for (; how != PLACE_PLAIN && *s && rc == 0; s++) {
        unsigned char c = (unsigned char)*s;

        if (how == PLACE_JSON)
            rc = buf_printf(b, c == '"' || c == '\\' ? "\\%c" : "%c", c);
        else if (how == PLACE_PLUS && c == ' ')
            rc = buf_append(b, "+", 1);
        else
            rc = buf_printf(b, is_unreserved(c) ? "%c" : "%%%02X", c);
    }
    return rc;
}
