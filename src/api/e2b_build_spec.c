/* Each field of the request by its own rule, then the steps, of which core's table says how many
 * words each takes. Names of images that E2B's SDKs give by themselves are names of templates
 * here. */

#include "api/e2b_build_spec.h"

#include "api/image_name.h"
#include "http/json.h"

#include <stdlib.h>
#include <string.h>

#define IMAGE_NAME_MAX    450
#define REGISTRY_TEXT_MAX 8192 /* of a user's name, and of a password, which may be a token */

/* The values of "type". */
static const char *const types[] = {
    [BUILD_OP_RUN] = "RUN",   [BUILD_OP_ENV] = "ENV",   [BUILD_OP_WORKDIR] = "WORKDIR",
    [BUILD_OP_USER] = "USER", [BUILD_OP_COPY] = "COPY",
};

_Static_assert(ARRAY_SIZE(types) == BUILD_OP_COUNT,
               "each step has its type, and the error names it");

/* Images of E2B's, by which its SDKs mean what the templates of those names are here. */
static const struct image_name images[] = {{"e2bdev/base", "base"},
                                           {"e2bdev/code-interpreter", "code-interpreter-v1"}};

static const char *name_of_image(const char *image)
{
    return image_name_of(images, ARRAY_SIZE(images), image);
}

static enum err_code no_memory(struct err *e)
{
    return err_set(e, ERR_EXHAUSTED, "memory is out");
}

/* text NULL: *out stays. */
static enum err_code keep(struct build_spec *s, const char *text, const char **out, struct err *e)
{
    if (text && !(*out = build_spec_text(s, text)))
        return no_memory(e);
    return ERR_OK;
}

static enum err_code read_text(struct build_spec *s, const json_t *json, const char *name,
                               enum json_need need, size_t max, const char **out, struct err *e)
{
    const char *text = NULL;
    enum err_code code = json_get_str(json, name, NULL, need, max, &text, e);

    return code == ERR_OK ? keep(s, text, out, e) : code;
}

/* {"type": "registry", "username", "password"}: for the one transport alone. */
static enum err_code read_registry(struct build_spec *s, const json_t *json, struct err *e)
{
    const json_t *registry = json_object_get(json, "fromImageRegistry");
    const char *type = json_string_value(json_object_get(registry, "type"));
    enum err_code code;

    if (!registry || json_is_null(registry))
        return ERR_OK;
    if (!type || strcmp(type, "registry") != 0)
        return err_set(e, ERR_UNIMPLEMENTED,
                       "fromImageRegistry: its type \"%.32s\" is not supported by this server, "
                       "\"registry\" with username and password is",
                       type ? type : "");
    code = read_text(s, registry, "username", JSON_REQUIRED, REGISTRY_TEXT_MAX, &s->username, e);
    return code == ERR_OK ? read_text(s, registry, "password", JSON_REQUIRED, REGISTRY_TEXT_MAX,
                                      &s->password, e)
                          : code;
}

static enum err_code read_from(struct build_spec *s, const json_t *json, struct err *e)
{
    const char *image = NULL, *name = NULL;

    if (json_get_str(json, "fromImage", NULL, JSON_OPTIONAL, IMAGE_NAME_MAX, &image, e) != ERR_OK ||
        json_get_str(json, "fromTemplate", NULL, JSON_OPTIONAL, CORE_NAME_SIZE - 1, &name, e) !=
            ERR_OK)
        return e->code;
    if (!(image && *image) == !(name && *name))
        return err_set(e, ERR_INVALID, "one of fromTemplate and fromImage has to be given");
    s->image = image && *image;
    if (keep(s, s->image ? name_of_image(image) : name, &s->from, e) != ERR_OK)
        return e->code;
    return read_registry(s, json, e);
}

/* "a=b" is no name; nothing else would be an environment's entry. */
static bool are_variables(const struct build_step *s)
{
    for (size_t i = 0; i < s->n; i += 2)
        if (!*s->words[i] || strchr(s->words[i], '='))
            return false;
    return s->n % 2 == 0;
}

static enum err_code read_word(struct build_spec *s, const json_t *word, size_t number,
                               struct build_step *step, struct err *e)
{
    if (!json_is_string(word) || json_string_length(word) > CORE_BUILD_TEXT_MAX ||
        strlen(json_string_value(word)) != json_string_length(word))
        return err_set(e, ERR_INVALID,
                       "steps: step %zu, %s: its args have to be strings of at most %u bytes",
                       number, types[step->op], CORE_BUILD_TEXT_MAX);
    return keep(s, json_string_value(word), &step->words[step->n++], e);
}

static enum err_code read_args(struct build_spec *s, const json_t *args, size_t number,
                               struct build_step *step, struct err *e)
{
    size_t i, n = json_array_size(args), least, most;
    const json_t *word;

    build_op_words(step->op, &least, &most);
    if (!json_is_array(args) || n < least || n > most)
        return err_set(e, ERR_INVALID, "steps: step %zu, %s, has to have %zu to %zu args", number,
                       types[step->op], least, most);
    step->words = calloc(n, sizeof(*step->words));
    if (!step->words)
        return no_memory(e);
    json_array_foreach (args, i, word)
        if (read_word(s, word, number, step, e) != ERR_OK)
            return e->code;
    if (step->op == BUILD_OP_ENV && !are_variables(step))
        return err_set(e, ERR_INVALID, "steps: step %zu, ENV: its args are names and values",
                       number);
    return ERR_OK;
}

static enum err_code read_step(struct build_spec *s, const json_t *json, size_t number,
                               struct build_step *step, struct err *e)
{
    const char *type = json_string_value(json_object_get(json, "type"));
    size_t op = 0;

    while (type && op < ARRAY_SIZE(types) && strcmp(types[op], type) != 0)
        op++;
    if (!type || op == ARRAY_SIZE(types))
        return err_set(e, ERR_INVALID,
                       "steps: step %zu: \"%.32s\" is no type of a step; RUN, COPY, ENV, WORKDIR "
                       "and USER are",
                       number, type ? type : "");
    step->op = (enum build_op)op;
    step->force = json_is_true(json_object_get(json, "force"));
    if (read_args(s, json_object_get(json, "args"), number, step, e) != ERR_OK)
        return e->code;
    return keep(s, json_string_value(json_object_get(json, "filesHash")), &step->files, e);
}

static enum err_code read_steps(struct build_spec *s, const json_t *json, struct err *e)
{
    const json_t *steps = json_object_get(json, "steps"), *one;
    bool force = json_is_true(json_object_get(json, "force"));
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
        return no_memory(e);
    json_array_foreach (steps, i, one) {
        struct build_step *step = &s->steps[s->n++];

        if (read_step(s, one, s->n, step, e) != ERR_OK)
            return e->code;
        step->force |= force;
    }
    return ERR_OK;
}

/* The port that a ready command of E2B's SDKs waits for (waitForPort, waitForURL). 0: none. */
static int port_of(const char *ready)
{
    static const char *const before[] = {
        "sport = :", "ss -tuln | grep :", "://localhost:", "://127.0.0.1:"};

    for (size_t i = 0; ready && i < ARRAY_SIZE(before); i++) {
        const char *at = strstr(ready, before[i]);
        long port = at ? strtol(at + strlen(before[i]), NULL, 10) : 0;

        if (port >= 1 && port <= 65535)
            return (int)port;
    }
    return 0;
}

enum err_code e2b_build_spec_read(const json_t *json, struct build_spec *out, struct err *e)
{
    struct build_spec s = {0};
    enum err_code code = read_from(&s, json, e);

    if (code == ERR_OK)
        code = read_text(&s, json, "startCmd", JSON_OPTIONAL, CORE_BUILD_COMMAND_MAX, &s.start, e);
    if (code == ERR_OK)
        code = read_text(&s, json, "readyCmd", JSON_OPTIONAL, CORE_BUILD_COMMAND_MAX, &s.ready, e);
    if (code == ERR_OK)
        code = read_steps(&s, json, e);
    s.ready_port = port_of(s.ready);
    if (code == ERR_OK)
        *out = s;
    else
        build_spec_free(&s);
    return code;
}
