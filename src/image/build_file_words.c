/* Words of a build file, with quotes and variables: texts of which these are replaced, the pairs of
 * ENV and LABEL, and commands put together for a shell. */
#include "image/build_file.h"

#include "base/util.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define VARIABLE_MAX 256u /* bytes of a variable's name */
#define BLANKS       " \t"

/* -- words ------------------------------------------------------------------------------------- */

static bool is_name_byte(char c, bool first)
{
    return isalpha((unsigned char)c) || c == '_' || (!first && isdigit((unsigned char)c));
}

/* A word's variables have the values of env, or are left to a shell. */
struct words {
    const json_t *env;
    bool for_shell;
};

/* Puts a byte that means itself. */
static enum err_code put_byte(struct buf *out, const struct words *w, char c, struct err *e)
{
    if (out && ((w->for_shell && strchr("$\"`\\", c) && buf_append(out, "\\", 1) < 0) ||
                buf_append(out, &c, 1) < 0))
        return err_set(e, ERR_TOO_LARGE, "it is too long");
    return ERR_OK;
}

/* *at is behind a dollar. Puts the variable's value to out, NULL: only looks. */
static enum err_code expand_one(const char **at, const struct words *w, struct buf *out,
                                struct err *e)
{
    bool braces = **at == '{';
    const char *name = *at + (braces ? 1 : 0), *end = name, *value;
    char copy[VARIABLE_MAX];

    while (is_name_byte(*end, end == name))
        end++;
    if (end == name && !braces)
        return put_byte(out, w, '$', e);
    if (end == name || (braces && *end != '}') || (size_t)(end - name) >= sizeof(copy))
        return err_set(e, ERR_INVALID,
                       "after $ only a variable's name is understood, or ${NAME}; not %.20s", *at);
    snprintf(copy, sizeof(copy), "%.*s", (int)(end - name), name);
    value = json_string_value(json_object_get(w->env, copy));
    *at = end + (braces ? 1 : 0);
    if (out && (w->for_shell ? buf_printf(out, "${%s}", copy)
                             : buf_append_str(out, value ? value : "")) < 0)
        return err_set(e, ERR_TOO_LARGE, "it is too long");
    return ERR_OK;
}

/* A word, to its end or to a blank outside of quotes (all: to the end of the text). */
static enum err_code take_word(const char **at, bool all, const struct words *w, struct buf *out,
                               struct err *e)
{
    char quote = '\0';

    for (; **at && (all || quote || !strchr(BLANKS, **at)); (*at)++) {
        char c = **at;

        if (c == quote || (!quote && (c == '"' || c == '\''))) {
            quote = quote ? '\0' : c;
            continue;
        }
        if (c == '\\' && quote != '\'' && (*at)[1] && (!quote || strchr("\"\\$", (*at)[1]))) {
            c = *++*at;
        } else if (c == '$' && quote != '\'') {
            (*at)++;
            if (expand_one(at, w, out, e) != ERR_OK)
                return e->code;
            (*at)--;
            continue;
        }
        if (put_byte(out, w, c, e) != ERR_OK)
            return e->code;
    }
    return quote ? err_set(e, ERR_INVALID, "a quote %c is not closed", quote) : ERR_OK;
}

enum err_code build_file_expand(const char *text, const json_t *env, struct buf *out, struct err *e)
{
    return take_word(&text, true, &(struct words){.env = env}, out, e);
}

/* -- ENV, LABEL -------------------------------------------------------------------------------- */

/* Names of labels have dots and dashes; a variable of such a name is of no use to a shell, and can
 * be there. */
static size_t name_length(const char *name)
{
    size_t len = 0;

    while (is_name_byte(name[len], len == 0) || (len > 0 && name[len] && strchr(".-", name[len])))
        len++;
    return len;
}

static enum err_code set_variable(json_t *set, const char *name, size_t len, struct buf *value,
                                  struct err *e)
{
    char copy[VARIABLE_MAX];

    snprintf(copy, sizeof(copy), "%.*s", (int)len, name);
    if (value->len > 0 && memchr(value->data, '\0', value->len))
        return err_set(e, ERR_INVALID, "%s has a NUL in it", copy);
    if (json_object_set_new(set, copy, json_stringn(value->data, value->len)) < 0)
        return err_set(e, ERR_INVALID, "the value of %s is not UTF-8", copy);
    return ERR_OK;
}

/* The text's end is the name's in the old form alone, where the value is missed next. */
static bool ends_name(char c, bool old_form)
{
    return old_form ? c == '\0' || strchr(BLANKS, c) : c == '=';
}

/* "NAME=VALUE", or with a blank instead ("NAME VALUE to the end"). *at moves behind it, and *room
 * is less by the value. */
static enum err_code take_pair(const char **at, bool old_form, const struct words *w, json_t *set,
                               size_t *room, struct err *e)
{
    const char *name = *at;
    size_t len = name_length(name);
    CLEANUP_BUF struct buf value;

    buf_init(&value, *room + 1);
    if (len == 0 || len >= VARIABLE_MAX || !ends_name(name[len], old_form))
        return err_set(e, ERR_INVALID, "it is NAME=VALUE... or NAME VALUE; not \"%.40s\"", name);
    *at = name + len + (old_form ? strspn(name + len, BLANKS) : 1);
    if (old_form && !**at)
        return err_set(e, ERR_INVALID, "%.*s has no value", (int)len, name);
    if (buf_reserve(&value, 1) < 0)
        return err_set(e, ERR_EXHAUSTED, "out of memory");
    if (take_word(at, old_form, w, &value, e) != ERR_OK)
        return e->code;
    if (value.len > *room)
        return err_set(e, ERR_TOO_LARGE, "it is too long");
    *room -= value.len;
    return set_variable(set, name, len, &value, e);
}

/* Each use of a variable brings its whole value: without a maximum a short text would fill the
 * memory. */
static enum err_code take_pairs(const char *text, const struct words *w, json_t *set, struct err *e)
{
    bool old_form = text[strcspn(text, BLANKS "=")] != '=';
    size_t room = BUILD_FILE_VALUES_MAX;

    for (const char *at = text; *at; at += strspn(at, BLANKS))
        if (take_pair(&at, old_form, w, set, &room, e) != ERR_OK)
            return e->code;
    return ERR_OK;
}

/* Docker's rule: variables of one ENV do not see one another. */
enum err_code build_file_env(const char *text, const json_t *env, json_t *set, struct err *e)
{
    return take_pairs(text, &(struct words){.env = env}, set, e);
}

enum err_code build_file_env_for_shell(const char *text, json_t *set, struct err *e)
{
    return take_pairs(text, &(struct words){.for_shell = true}, set, e);
}

/* -- for a shell ------------------------------------------------------------------------------- */

char *build_file_quote(const char *first, const json_t *words)
{
    CLEANUP_BUF struct buf out;
    json_t *word;
    size_t i;

    buf_init(&out, 8u * BUILD_FILE_MAX_BYTES);
    if (buf_append_str(&out, first) < 0)
        return NULL;
    json_array_foreach (words, i, word) {
        if (buf_append_str(&out, " '") < 0)
            return NULL;
        for (const char *p = json_string_value(word); *p; p++)
            if ((*p == '\'' ? buf_append_str(&out, "'\\''") : buf_append(&out, p, 1)) < 0)
                return NULL;
        if (buf_append_str(&out, "'") < 0)
            return NULL;
    }
    return buf_append(&out, "", 1) < 0 ? NULL : buf_take(&out);
}
