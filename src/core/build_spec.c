/* A table of the steps with how many words each has, which readers of dialects use too, and a list
 * of the copies that a spec has: pointers of it may be set to other texts, and all goes in the
 * end. */

#include "core/build_spec.h"

#include "base/base64.h"
#include "http/json.h"

#include <stdio.h>
#include <string.h>

#define SHOWN_MAX 200

struct build_text {
    struct build_text *next;
    size_t size;
    char text[];
};

static const struct {
    const char *name;
    size_t least, most;
} ops[] = {
    [BUILD_OP_RUN] = {"RUN", 1, 2},         [BUILD_OP_ENV] = {"ENV", 2, 512},
    [BUILD_OP_WORKDIR] = {"WORKDIR", 1, 1}, [BUILD_OP_USER] = {"USER", 1, 1},
    [BUILD_OP_COPY] = {"COPY", 2, 4},
};

_Static_assert(ARRAY_SIZE(ops) == BUILD_OP_COUNT, "each step has its words");

const char *build_op_name(enum build_op op)
{
    return ops[op].name;
}

void build_op_words(enum build_op op, size_t *least, size_t *most)
{
    *least = ops[op].least;
    *most = ops[op].most;
}

const char *build_spec_text(struct build_spec *s, const char *text)
{
    size_t size = strlen(text) + 1;
    struct build_text *t = malloc(sizeof(*t) + size);

    if (!t)
        return NULL;
    memcpy(t->text, text, size);
    t->size = size;
    t->next = s->texts;
    s->texts = t;
    return t->text;
}

static bool is_whole(const struct build_step *s)
{
    if ((size_t)s->op >= ARRAY_SIZE(ops) || s->n < ops[s->op].least || s->n > ops[s->op].most)
        return false;
    for (size_t i = 0; i < s->n; i++)
        if (!s->words[i])
            return false;
    return s->op != BUILD_OP_ENV || s->n % 2 == 0;
}

enum err_code build_spec_check(const struct build_spec *s, struct err *e)
{
    if (!s->from || !*s->from)
        return err_set(e, ERR_INVALID, "a build has to begin with a template or an image");
    if (s->n > CORE_BUILD_STEPS_MAX)
        return err_set(e, ERR_INVALID, "%zu steps; a build has %u at most", s->n,
                       CORE_BUILD_STEPS_MAX);
    for (size_t i = 0; i < s->n; i++)
        if (!is_whole(&s->steps[i]))
            return err_set(e, ERR_INVALID, "step %zu of the build is not whole", i + 1);
    return ERR_OK;
}

void build_spec_free(struct build_spec *s)
{
    struct build_text *next;

    for (size_t i = 0; i < s->n; i++)
        free(s->steps[i].words);
    free(s->steps);
    for (struct build_text *t = s->texts; t; t = next) {
        next = t->next;
        explicit_bzero(t->text, t->size);
        free(t);
    }
    *s = (struct build_spec){0};
}

void build_spec_show(const struct build_step *s, char *out, size_t size)
{
    int n = snprintf(out, size, "%s", ops[s->op].name);

    for (size_t i = 0; i < MIN(s->n, s->op == BUILD_OP_RUN ? 1u : 2u) && n > 0 && (size_t)n < size;
         i++)
        n += snprintf(out + n, size - (size_t)n, " %.*s", SHOWN_MAX, s->words[i]);
}

char *build_spec_auth(const struct build_spec *s, const char *host)
{
    size_t n = s->username ? strlen(s->username) + strlen(s->password) + 1 : 0;
    CLEANUP_FREE char *plain = malloc(n + 1), *coded = malloc(base64_encoded_len(n) + 1);
    json_t *file;
    char *text;

    if (!s->username || !plain || !coded)
        return NULL;
    (void)snprintf(plain, n + 1, "%s:%s", s->username, s->password);
    base64_encode(plain, n, coded);
    file = json_pack("{s:{s:{s:s}}}", "auths", host, "auth", coded);
    text = json_text(file, JSON_COMPACT);
    json_decref(file);
    return text;
}
