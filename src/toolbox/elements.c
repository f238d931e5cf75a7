#include "toolbox/elements.h"

#include "http/json.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

struct text {
    const char *at, *end;
};

static void skip_space(struct text *t)
{
    while (t->at < t->end && memchr(" \t\r\n", *t->at, 4))
        t->at++;
}

/* Takes the characters of word, with blanks before each. */
static bool take(struct text *t, char c)
{
    skip_space(t);
    if (t->at == t->end || *t->at != c)
        return false;
    t->at++;
    return true;
}

static bool take_name(struct text *t, const char *name)
{
    size_t n = strlen(name);

    if (!take(t, '"') || (size_t)(t->end - t->at) < n || memcmp(t->at, name, n) != 0)
        return false;
    t->at += n;
    return take(t, '"');
}

/* Bytes of the object at t, by its brackets; 0: it does not end within ELEMENT_BYTES_MAX. */
static size_t object_len(const struct text *t)
{
    size_t len = (size_t)(t->end - t->at), depth = 0;
    bool in_string = false;

    for (size_t i = 0; i < len && i < ELEMENT_BYTES_MAX; i++) {
        char c = t->at[i];

        if (in_string && c == '\\')
            i++;
        else if (c == '"')
            in_string = !in_string;
        else if (!in_string && c == '{')
            depth++;
        else if (!in_string && c == '}' && --depth == 0)
            return i + 1;
    }
    return 0;
}

static int take_object(struct text *t, int (*fn)(void *arg, const json_t *element), void *arg)
{
    json_t *one;
    size_t n;
    int rc;

    skip_space(t);
    n = t->at < t->end && *t->at == '{' ? object_len(t) : 0;
    one = n ? json_load_answer(t->at, n) : NULL;
    if (!one)
        return n && json_memory_was_out() ? -ENOMEM : -EBADMSG;
    t->at += n;
    rc = fn(arg, one);
    json_decref(one);
    return rc;
}

int elements_each(const char *text, size_t len, const char *name,
                  int (*fn)(void *arg, const json_t *element), void *arg)
{
    struct text t = {text, text + len};
    bool more;
    int rc = 0;

    if (!take(&t, '{') || !take_name(&t, name) || !take(&t, ':') || !take(&t, '['))
        return -EBADMSG;
    for (more = !take(&t, ']'); more && rc == 0;) {
        rc = take_object(&t, fn, arg);
        more = rc == 0 && take(&t, ',');
        if (rc == 0 && !more && !take(&t, ']'))
            rc = -EBADMSG;
    }
    if (rc == 0 && !take(&t, '}'))
        rc = -EBADMSG;
    skip_space(&t);
    return rc == 0 && t.at < t.end ? -EBADMSG : rc;
}
