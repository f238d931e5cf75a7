/* In order: each instruction, the file; words, ENV and LABEL are build_file_words.c's. The text is
 * read once, and nothing of it is understood in part: text outside of the language is an error. */
#include "image/build_file.h"

#include "base/plain_name.h"
#include "base/port.h"
#include "base/util.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLANKS " \t"

/* -- one instruction --------------------------------------------------------------------------- */

static enum err_code read_words(struct build_file_step *s, bool must, struct err *e)
{
    json_t *word;
    size_t i;

    if (s->text[0] != '[' && !must)
        return ERR_OK;
    s->words = json_loads(s->text, 0, NULL);
    if (!json_is_array(s->words) || json_array_size(s->words) == 0 ||
        json_array_size(s->words) > BUILD_WORDS_MAX) {
        json_decref(s->words);
        s->words = NULL;
        /* As in Docker: what only looks like JSON is for the shell ([ -f x ] && ...). */
        return must ? err_set(e, ERR_INVALID, "it is not a list of words") : ERR_OK;
    }
    json_array_foreach (s->words, i, word)
        if (!json_is_string(word) || strlen(json_string_value(word)) == 0)
            return err_set(e, ERR_INVALID, "its words have to be texts in double quotes");
    return ERR_OK;
}

/* RUN <<EOF of newer Dockerfiles; <<< of a shell and shifts are not meant. */
static bool has_here_document(const char *text)
{
    for (const char *p = strstr(text, "<<"); p; p = strstr(p + 2, "<<")) {
        char next = p[2] == '-' ? p[3] : p[2];

        if (p[2] == '<')
            p++;
        else if (isalpha((unsigned char)next) || next == '_' || next == '"' || next == '\'')
            return true;
    }
    return false;
}

static enum err_code read_command(enum build_file_form form, struct build_file_step *s,
                                  struct err *e)
{
    if (strncmp(s->text, "--", 2) == 0)
        return err_set(e, ERR_INVALID, "options of RUN (%.30s) are not supported", s->text);
    if (has_here_document(s->text))
        return err_set(e, ERR_INVALID, "here documents (<<) are not supported: COPY a script");
    return read_words(s, false, e);
}

/* --chown, --chmod; moves text behind them. */
static enum err_code read_copy_options(struct build_file_step *s, char **text, struct err *e)
{
    while (strncmp(*text, "--", 2) == 0) {
        size_t len = strcspn(*text, BLANKS);
        const char *value = *text + 8; /* behind both names and = */

        if (strncmp(*text, "--chown=", 8) == 0 && len > 8 &&
            strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:") ==
                len - 8 &&
            value[0] != '-' && !s->owner)
            s->owner = strndup(value, len - 8);
        else if (strncmp(*text, "--chmod=", 8) == 0 && len >= 11 && len <= 12 &&
                 strspn(value, "01234567") == len - 8)
            snprintf(s->mode, sizeof(s->mode), "%.*s", (int)(len - 8), value);
        else
            return err_set(e, ERR_INVALID,
                           "COPY understands --chown=USER[:GROUP] and --chmod=0755; not %.*s",
                           (int)MIN(len, (size_t)60), *text);
        *text += len + strspn(*text + len, BLANKS);
    }
    return ERR_OK;
}

/* Sources name files below the folder of the build, and nothing else. */
static enum err_code check_source(enum build_file_form form, const char *source, struct err *e)
{
    if (strpbrk(source, form == BUILD_FILE_OF_IMAGE ? "$" : "*?[$"))
        return err_set(e, ERR_INVALID,
                       "COPY takes names as they are: patterns and variables in \"%.60s\" are not "
                       "supported",
                       source);
    return ERR_OK;
}

static enum err_code read_copy(enum build_file_form form, struct build_file_step *s, struct err *e)
{
    char *text = s->text;
    const char *at;
    json_t *word;
    size_t i;

    if (read_copy_options(s, &text, e) != ERR_OK)
        return e->code;
    if (has_here_document(text))
        return err_set(e, ERR_INVALID, "here documents (<<) are not supported: COPY a file");
    if (text[0] == '[') {
        s->words = json_loads(text, 0, NULL);
    } else {
        s->words = json_array();
        for (at = text; *at; at += strspn(at, BLANKS)) {
            size_t len = strcspn(at, BLANKS);

            json_array_append_new(s->words, json_stringn(at, len));
            at += len;
        }
    }
    if (json_array_size(s->words) < 2 || json_array_size(s->words) > BUILD_WORDS_MAX)
        return err_set(e, ERR_INVALID, "COPY is SOURCE... TARGET");
    json_array_foreach (s->words, i, word) {
        if (!json_is_string(word) || !json_string_value(word)[0])
            return err_set(e, ERR_INVALID, "the names of COPY have to be texts");
        if (i + 1 < json_array_size(s->words) &&
            check_source(form, json_string_value(word), e) != ERR_OK)
            return e->code;
    }
    return ERR_OK;
}

static enum err_code read_port(enum build_file_form form, struct build_file_step *s, struct err *e)
{
    size_t len = strspn(s->text, "0123456789");

    if (!port_from_digits(s->text, len) || (s->text[len] && strcmp(s->text + len, "/tcp") != 0))
        return err_set(e, ERR_INVALID, "EXPOSE is one TCP port, 1 to 65535; not \"%.40s\"",
                       s->text);
    return ERR_OK;
}

static enum err_code read_user(enum build_file_form form, struct build_file_step *s, struct err *e)
{
    if (strpbrk(s->text, BLANKS ":$"))
        return err_set(e, ERR_INVALID, "USER is the name of one user; not \"%.40s\"", s->text);
    return ERR_OK;
}

static enum err_code read_workdir(enum build_file_form form, struct build_file_step *s,
                                  struct err *e)
{
    return build_file_expand(s->text, NULL, NULL, e);
}

/* Names of what was set are of no use yet: only looks whether the text is right. */
static enum err_code read_env(enum build_file_form form, struct build_file_step *s, struct err *e)
{
    json_t *set = json_object();
    enum err_code code = build_file_env(s->text, NULL, set, e);

    json_decref(set);
    return code;
}

static enum err_code read_from(enum build_file_form form, struct build_file_step *s, struct err *e)
{
    if (form == BUILD_FILE_OF_IMAGE && strpbrk(s->text, BLANKS "$"))
        return err_set(e, ERR_INVALID, "it is one image, without options, variables and AS");
    if (form == BUILD_FILE_OF_TEMPLATE && !plain_name_is_valid(s->text, BUILD_NAME_MAX))
        return err_set(e, ERR_INVALID,
                       "it is one name of a template or a snapshot, as `cay template ls` and `cay "
                       "snapshot ls` have them; not \"%.60s\". An image becomes a template by "
                       "`cay template import NAME docker://IMAGE`",
                       s->text);
    return ERR_OK;
}

/* -- the file ---------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    enum err_code (*read)(enum build_file_form form, struct build_file_step *s, struct err *e);
} ops[] = {
    [BUILD_FROM] = {"FROM", read_from},          [BUILD_RUN] = {"RUN", read_command},
    [BUILD_COPY] = {"COPY", read_copy},          [BUILD_ENV] = {"ENV", read_env},
    [BUILD_WORKDIR] = {"WORKDIR", read_workdir}, [BUILD_USER] = {"USER", read_user},
    [BUILD_EXPOSE] = {"EXPOSE", read_port},      [BUILD_CMD] = {"CMD", read_command},
    [BUILD_LABEL] = {"LABEL", read_env},         [BUILD_ENTRYPOINT] = {"ENTRYPOINT", read_command},
};

const char *build_file_op_name(enum build_file_op op)
{
    return ops[op].name;
}

static enum err_code read_op(enum build_file_form form, const char *word, size_t len,
                             enum build_file_op *out, struct err *e)
{
    size_t n = form == BUILD_FILE_OF_IMAGE ? ARRAY_SIZE(ops) : BUILD_ENTRYPOINT;

    for (size_t i = 0; i < n; i++) {
        if (strlen(ops[i].name) == len && strncasecmp(ops[i].name, word, len) == 0) {
            *out = (enum build_file_op)i;
            return ERR_OK;
        }
    }
    return err_set(e, ERR_UNIMPLEMENTED,
                   "%.*s is not supported; there are FROM, RUN, COPY, ENV, WORKDIR, USER, EXPOSE, "
                   "CMD%s and LABEL",
                   (int)MIN(len, (size_t)40), word,
                   form == BUILD_FILE_OF_IMAGE ? ", ENTRYPOINT" : "");
}

static enum err_code read_label(struct build_file *f, const char *text, struct err *e)
{
    json_t *labels = json_object();
    enum err_code code = build_file_env(text, NULL, labels, e);
    const char *name = json_string_value(json_object_get(labels, "cay.name"));
    const char *ready = json_string_value(json_object_get(labels, "cay.ready"));

    if (code == ERR_OK && name && !plain_name_is_valid(name, BUILD_NAME_MAX))
        code = err_set(e, ERR_INVALID, "\"%.60s\" is not the name of a template", name);
    else if (code == ERR_OK && ready && strlen(ready) > BUILD_READY_MAX)
        code = err_set(e, ERR_INVALID, "cay.ready has more than %u bytes", BUILD_READY_MAX);
    if (code == ERR_OK && name)
        snprintf(f->name, sizeof(f->name), "%s", name);
    if (code == ERR_OK && ready)
        snprintf(f->ready, sizeof(f->ready), "%s", ready);
    json_decref(labels);
    return code;
}

/* text: one instruction, its lines put together; taken. */
static enum err_code add_step(struct build_file *f, unsigned line, char *text, struct err *e)
{
    struct build_file_step *s = &f->steps[f->count];
    size_t word = strcspn(text, BLANKS), len = strlen(text);
    enum err_code code;

    *s = (struct build_file_step){.line = line};
    while (len > 0 && isspace((unsigned char)text[len - 1]))
        text[--len] = '\0';
    code = read_op(f->form, text, MIN(word, len), &s->op, e);
    if (code != ERR_OK)
        return code;
    word = MIN(word, len);
    s->text = strdup(text + word + strspn(text + word, BLANKS));
    f->count++;
    if (!s->text)
        return err_set(e, ERR_EXHAUSTED, "out of memory");
    if (!s->text[0])
        return err_set(e, ERR_INVALID, "there is nothing behind it");
    if ((s->op == BUILD_FROM) != (f->count == 1))
        return err_set(e, ERR_INVALID, "a build file begins with FROM, and has one of it");
    if (ops[s->op].read(f->form, s, e) != ERR_OK)
        return e->code;
    return s->op == BUILD_LABEL && f->form == BUILD_FILE_OF_TEMPLATE ? read_label(f, s->text, e)
                                                                     : ERR_OK;
}

/* Appends the line at *at to out, but for comments; *at moves behind it. True: it goes on. */
static bool take_line(const char **at, const char *end, bool first, struct buf *out)
{
    const char *line = *at, *stop = memchr(line, '\n', (size_t)(end - line));
    size_t len = (size_t)((stop ? stop : end) - line);
    bool more;

    *at = stop ? stop + 1 : end;
    while (len > 0 && isspace((unsigned char)line[len - 1]))
        len--;
    while (first && len > 0 && isspace((unsigned char)*line))
        line++, len--;
    if (strspn(line, BLANKS) >= len || line[strspn(line, BLANKS)] == '#')
        return !first;
    more = line[len - 1] == '\\';
    (void)!buf_append(out, line, len - (more ? 1 : 0));
    return more;
}

static enum err_code parse_all(const char *text, size_t len, struct build_file *f, unsigned *line,
                               struct err *e)
{
    const char *at = text, *end = text + len;
    CLEANUP_BUF struct buf one;
    unsigned next = 1;

    buf_init(&one, BUILD_FILE_MAX_BYTES + 1);
    while (at < end) {
        bool more = true;

        buf_clear(&one);
        *line = next;
        for (; more && at < end; next++)
            more = take_line(&at, end, one.len == 0, &one);
        if (one.len == 0)
            continue;
        if (buf_append(&one, "", 1) < 0)
            return err_set(e, ERR_EXHAUSTED, "out of memory");
        if (f->count == BUILD_STEPS_MAX)
            return err_set(e, ERR_TOO_LARGE, "more than %u instructions", BUILD_STEPS_MAX);
        if (add_step(f, *line, one.data, e) != ERR_OK)
            return e->code;
    }
    return f->count > 0 ? ERR_OK : err_set(e, ERR_INVALID, "there is no FROM");
}

enum err_code build_file_parse(const char *text, size_t len, enum build_file_form form,
                               struct build_file *out, struct err *e)
{
    struct err why = {.code = ERR_OK};
    unsigned line = 1;

    *out = (struct build_file){.form = form, .steps = calloc(BUILD_STEPS_MAX, sizeof(*out->steps))};
    if (!out->steps)
        return err_set(e, ERR_EXHAUSTED, "out of memory");
    if (len > BUILD_FILE_MAX_BYTES)
        return err_set(e, ERR_TOO_LARGE, "the build file is over %u KiB",
                       BUILD_FILE_MAX_BYTES >> 10);
    if (memchr(text, '\0', len))
        return err_set(e, ERR_INVALID, "the build file has a NUL in it");
    if (parse_all(text, len, out, &line, &why) == ERR_OK)
        return ERR_OK;
    if (out->count > 0 && out->steps[out->count - 1].line == line)
        return err_set(e, why.code, "line %u, %s: %s", line,
                       build_file_op_name(out->steps[out->count - 1].op), why.text);
    return err_set(e, why.code, "line %u: %s", line, why.text);
}

void build_file_free(struct build_file *f)
{
    for (size_t i = 0; i < f->count; i++) {
        free(f->steps[i].text);
        free(f->steps[i].owner);
        json_decref(f->steps[i].words);
    }
    free(f->steps);
    *f = (struct build_file){0};
}
