/* Each field of the request by its own rule, then the steps by a table: how many words each takes.
 * Names of images that E2B's SDKs give by themselves are names of templates here. */

#include "core/build_spec.h"

#include "http/json.h"

#include <stdio.h>
#include <string.h>

#define SHOWN_MAX         200
#define IMAGE_NAME_MAX    450
#define REGISTRY_TEXT_MAX 8192 /* of a user's name, and of a password, which may be a token */

static const struct {
    const char *name;
    size_t least, most;
} ops[] = {
    [BUILD_OP_RUN] = {"RUN", 1, 2},         /* command, user */
    [BUILD_OP_ENV] = {"ENV", 2, 512},       /* name, value, ... */
    [BUILD_OP_WORKDIR] = {"WORKDIR", 1, 1}, /* folder */
    [BUILD_OP_USER] = {"USER", 1, 1},       /* name */
    [BUILD_OP_COPY] = {"COPY", 2, 4},       /* source, target, owner, mode */
};

const char *build_op_name(enum build_op op)
{
    return ops[op].name;
}

/* Images of E2B's, by which its SDKs mean what the templates of those names are here. */
static const struct {
    const char *image, *name;
} images[] = {{"e2bdev/base", "base"}, {"e2bdev/code-interpreter", "code-interpreter-v1"}};

static const char *name_of_image(const char *image)
{
    for (size_t i = 0; i < ARRAY_SIZE(images); i++) {
        size_t n = strlen(images[i].image);

        if (strncmp(image, images[i].image, n) == 0 && (!image[n] || image[n] == ':'))
            return images[i].name;
    }
    return image;
}

/* {"type": "registry", "username", "password"}: for the one transport alone. */
static enum err_code read_registry(struct build_spec *s, struct err *e)
{
    const json_t *registry = json_object_get(s->json, "fromImageRegistry");
    const char *type = json_string_value(json_object_get(registry, "type"));
    enum err_code code;

    if (!registry || json_is_null(registry))
        return ERR_OK;
    if (!type || strcmp(type, "registry") != 0)
        return err_set(e, ERR_UNIMPLEMENTED,
                       "fromImageRegistry: its type \"%.32s\" is not supported by this server, "
                       "\"registry\" with username and password is",
                       type ? type : "");
    code = json_get_str(registry, "username", NULL, JSON_REQUIRED, REGISTRY_TEXT_MAX, &s->username,
                        e);
    return code == ERR_OK ? json_get_str(registry, "password", NULL, JSON_REQUIRED,
                                         REGISTRY_TEXT_MAX, &s->password, e)
                          : code;
}

static enum err_code read_from(struct build_spec *s, struct err *e)
{
    const char *image = NULL, *name = NULL;

    if (json_get_str(s->json, "fromImage", NULL, JSON_OPTIONAL, IMAGE_NAME_MAX, &image, e) !=
            ERR_OK ||
        json_get_str(s->json, "fromTemplate", NULL, JSON_OPTIONAL, CORE_NAME_SIZE - 1, &name, e) !=
            ERR_OK)
        return e->code;
    if (!(image && *image) == !(name && *name))
        return err_set(e, ERR_INVALID, "one of fromTemplate and fromImage has to be given");
    s->image = image && *image;
    s->from = s->image ? name_of_image(image) : name;
    return read_registry(s, e);
}

/* "a=b" is no name; nothing else would be an environment's entry. */
static bool are_variables(const json_t *words)
{
    for (size_t i = 0; i < json_array_size(words); i += 2) {
        const char *name = json_string_value(json_array_get(words, i));

        if (!name || !*name || strchr(name, '='))
            return false;
    }
    return json_array_size(words) % 2 == 0;
}

static enum err_code read_args(struct build_step *s, size_t number, struct err *e)
{
    const json_t *word;
    size_t i;

    s->n = json_array_size(s->words);
    if (!json_is_array(s->words) || s->n < ops[s->op].least || s->n > ops[s->op].most)
        return err_set(e, ERR_INVALID, "steps: step %zu, %s, has to have %zu to %zu args", number,
                       ops[s->op].name, ops[s->op].least, ops[s->op].most);
    json_array_foreach (s->words, i, word) {
        if (!json_is_string(word) || json_string_length(word) > CORE_BUILD_TEXT_MAX ||
            strlen(json_string_value(word)) != json_string_length(word))
            return err_set(e, ERR_INVALID,
                           "steps: step %zu, %s: its args have to be strings of at most %u bytes",
                           number, ops[s->op].name, CORE_BUILD_TEXT_MAX);
        if (i < ARRAY_SIZE(s->args))
            s->args[i] = json_string_value(word);
    }
    if (s->op == BUILD_OP_ENV && !are_variables(s->words))
        return err_set(e, ERR_INVALID, "steps: step %zu, ENV: its args are names and values",
                       number);
    return ERR_OK;
}

static enum err_code read_step(const json_t *json, size_t number, struct build_step *s,
                               struct err *e)
{
    const char *type = json_string_value(json_object_get(json, "type"));
    size_t op = 0;

    while (type && op < ARRAY_SIZE(ops) && strcmp(ops[op].name, type) != 0)
        op++;
    if (!type || op == ARRAY_SIZE(ops))
        return err_set(e, ERR_INVALID,
                       "steps: step %zu: \"%.32s\" is no type of a step; RUN, COPY, ENV, WORKDIR "
                       "and USER are",
                       number, type ? type : "");
    s->op = (enum build_op)op;
    s->force = json_is_true(json_object_get(json, "force"));
    s->words = json_object_get(json, "args");
    s->files = json_string_value(json_object_get(json, "filesHash"));
    return read_args(s, number, e);
}

static enum err_code read_steps(struct build_spec *s, struct err *e)
{
    const json_t *steps = json_object_get(s->json, "steps"), *one;
    bool force = json_is_true(json_object_get(s->json, "force"));
    size_t i;

    if (!steps || json_is_null(steps))
        return ERR_OK;
    if (!json_is_array(steps))
        return err_set(e, ERR_INVALID, "steps: it has to be an array");
    if (json_array_size(steps) > CORE_BUILD_STEPS_MAX)
        return err_set(e, ERR_INVALID, "steps: %zu steps; a build has %u at most",
                       json_array_size(steps), CORE_BUILD_STEPS_MAX);
    s->steps = calloc(json_array_size(steps) + 1, sizeof(*s->steps));
    if (!s->steps)
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    json_array_foreach (steps, i, one) {
        if (read_step(one, i + 1, &s->steps[i], e) != ERR_OK)
            return e->code;
        s->steps[i].force |= force;
        s->n++;
    }
    return ERR_OK;
}

enum err_code build_spec_read(const json_t *json, struct build_spec *out, struct err *e)
{
    struct build_spec s = {.json = json_deep_copy(json)};
    enum err_code code = s.json ? read_from(&s, e) : err_set(e, ERR_EXHAUSTED, "memory is out");

    if (code == ERR_OK)
        code = json_get_str(s.json, "startCmd", NULL, JSON_OPTIONAL, CORE_BUILD_COMMAND_MAX,
                            &s.start, e);
    if (code == ERR_OK)
        code = json_get_str(s.json, "readyCmd", NULL, JSON_OPTIONAL, CORE_BUILD_COMMAND_MAX,
                            &s.ready, e);
    if (code == ERR_OK)
        code = read_steps(&s, e);
    if (code == ERR_OK)
        *out = s;
    else
        build_spec_free(&s);
    return code;
}

void build_spec_free(struct build_spec *s)
{
    free(s->steps);
    json_decref(s->json);
    *s = (struct build_spec){0};
}

void build_spec_show(const struct build_step *s, char *out, size_t size)
{
    int n = snprintf(out, size, "%s", ops[s->op].name);

    for (size_t i = 0; i < MIN(s->n, s->op == BUILD_OP_RUN ? 1u : 2u) && n > 0 && (size_t)n < size;
         i++)
        n += snprintf(out + n, size - (size_t)n, " %.*s", SHOWN_MAX, s->args[i]);
}
