/* Each instruction of the Dockerfile becomes a step of core's, or, where COPY has several sources,
 * several. Docker's rules where they are others than E2B's: steps are root's, in /, where nothing
 * else is said; what COPY brings is root's; ENTRYPOINT and CMD are one command. The archives of the
 * context are in the order of the sources of COPY: the SDKs make one for each. Where there are more
 * of them, since a pattern has named several files, or fewer, each COPY has all. */

#include "api/daytona_build_spec.h"

#include "api/image_name.h"
#include "http/json.h"
#include "image/build_file.h"

#include <stdlib.h>
#include <string.h>

#define IMAGE_NAME_MAX 450
#define TEXT_BYTES_MAX (1024u * 1024u) /* of all steps, and of ENV's values, variables replaced */
#define OWNER          "root"

struct reading {
    struct build_spec s;
    struct build_file file;
    json_t *env;                 /* by ENV so far, as far as it is known here */
    const json_t *hashes;        /* of the context's archives; NULL: none */
    size_t copied;               /* sources of COPY so far */
    size_t bytes;                /* of TEXT_BYTES_MAX */
    bool one_each;               /* as many archives as sources */
    const char *all;             /* the names of all archives for core; NULL: not needed yet */
    const json_t *entry, *words; /* the last ENTRYPOINT's and CMD's */
    const char *entry_text, *words_text;
};

/* Images of Daytona's, by which clients mean the template of that name here. */
static const struct image_name images[] = {{"daytonaio/sandbox", "base"}};

static enum err_code no_memory(struct err *e)
{
    return err_set(e, ERR_EXHAUSTED, "memory is out");
}

/* A line may use a long variable many times, and a COPY its target once for each source. */
static enum err_code count(struct reading *r, const char *text, struct err *e)
{
    size_t n = strlen(text) + 1;

    if (n > TEXT_BYTES_MAX - r->bytes)
        return err_set(e, ERR_INVALID, "the steps up to here are over %u KiB, variables replaced",
                       TEXT_BYTES_MAX >> 10);
    r->bytes += n;
    return ERR_OK;
}

static enum err_code keep(struct reading *r, const char *text, const char **out, struct err *e)
{
    if (count(r, text, e) != ERR_OK)
        return e->code;
    *out = build_spec_text(&r->s, text);
    return *out ? ERR_OK : no_memory(e);
}

static const char *name_of_image(const char *image)
{
    return image_name_of(images, ARRAY_SIZE(images), image);
}

/* -- steps ------------------------------------------------------------------------------------- */

/* A new step with room for n words. NULL: e says why. */
static struct build_step *add(struct reading *r, enum build_op op, size_t n, struct err *e)
{
    struct build_step *step;

    if (r->s.n == CORE_BUILD_STEPS_MAX) {
        err_set(e, ERR_INVALID, "a build has %u steps at most", CORE_BUILD_STEPS_MAX);
        return NULL;
    }
    step = &r->s.steps[r->s.n];
    *step = (struct build_step){.op = op, .words = calloc(n, sizeof(*step->words))};
    if (!step->words) {
        no_memory(e);
        return NULL;
    }
    r->s.n++;
    return step;
}

static enum err_code add_word(struct reading *r, struct build_step *step, const char *word,
                              struct err *e)
{
    if (strlen(word) > CORE_BUILD_TEXT_MAX)
        return err_set(e, ERR_INVALID, "it has more than %u bytes", CORE_BUILD_TEXT_MAX);
    return keep(r, word, &step->words[step->n++], e);
}

static enum err_code add_one(struct reading *r, enum build_op op, const char *word, struct err *e)
{
    struct build_step *step = add(r, op, 1, e);

    return step ? add_word(r, step, word, e) : e->code;
}

static enum err_code read_run(struct reading *r, const struct build_file_step *s, struct err *e)
{
    CLEANUP_FREE char *quoted = s->words ? build_file_quote("exec", s->words) : NULL;

    if (s->words && !quoted)
        return no_memory(e);
    return add_one(r, BUILD_OP_RUN, quoted ? quoted : s->text, e);
}

/* A value with a variable in it is replaced in the sandbox, where the image's own are known too. */
static enum err_code read_env(struct reading *r, const struct build_file_step *s, struct err *e)
{
    json_t *shell = json_object(), *plain = json_object(), *value;
    struct build_step *step;
    enum err_code code;
    const char *name;

    code = shell && plain ? build_file_env_for_shell(s->text, shell, e) : no_memory(e);
    if (code == ERR_OK)
        code = build_file_env(s->text, r->env, plain, e);
    step = code == ERR_OK ? add(r, BUILD_OP_ENV, 2 * json_object_size(shell), e) : NULL;
    json_object_foreach (shell, name, value) {
        const char *text = json_string_value(value);

        if (!strchr(text, '$'))
            text = json_string_value(json_object_get(plain, name));
        if (!step || add_word(r, step, name, e) != ERR_OK || add_word(r, step, text, e) != ERR_OK)
            break;
    }
    code = step ? e->code : code == ERR_OK ? e->code : code;
    json_object_foreach (plain, name, value)
        if (code == ERR_OK)
            code = count(r, json_string_value(value), e);
    if (code == ERR_OK)
        json_object_update(r->env, plain);
    json_decref(shell);
    json_decref(plain);
    return code;
}

static enum err_code read_workdir(struct reading *r, const struct build_file_step *s, struct err *e)
{
    CLEANUP_BUF struct buf path;

    buf_init(&path, CORE_BUILD_TEXT_MAX + 1);
    if (build_file_expand(s->text, r->env, &path, e) != ERR_OK)
        return e->code;
    if (path.len == 0 || buf_append(&path, "", 1) < 0)
        return err_set(e, ERR_INVALID, "its path is empty, or memory is out");
    return add_one(r, BUILD_OP_WORKDIR, path.data, e);
}

/* -- COPY -------------------------------------------------------------------------------------- */

/* The names of archives as core knows them: of the one at `at`, or of all. */
static enum err_code name_archives(struct reading *r, size_t at, const char **out, struct err *e)
{
    size_t n = json_array_size(r->hashes);
    CLEANUP_BUF struct buf names;

    buf_init(&names, (2 * DAYTONA_CONTEXT_DIGITS + 1) * (DAYTONA_CONTEXTS_MAX + 1));
    if (!r->one_each && r->all) {
        *out = r->all;
        return ERR_OK;
    }
    for (size_t i = r->one_each ? at : 0; i < (r->one_each ? at + 1 : n); i++)
        if (buf_printf(&names, "%s%s%s", names.len ? "," : "", CORE_STORAGE_ZEROS,
                       json_string_value(json_array_get(r->hashes, i))) < 0)
            return no_memory(e);
    if (buf_append(&names, "", 1) < 0)
        return no_memory(e);
    if (keep(r, names.data, out, e) != ERR_OK)
        return e->code;
    r->all = *out;
    return ERR_OK;
}

static enum err_code copy_one(struct reading *r, const struct build_file_step *s,
                              const char *source, const char *target, struct err *e)
{
    struct build_step *step = add(r, BUILD_OP_COPY, 4, e);

    if (!step || add_word(r, step, source, e) != ERR_OK || add_word(r, step, target, e) != ERR_OK ||
        add_word(r, step, s->owner ? s->owner : OWNER, e) != ERR_OK ||
        add_word(r, step, s->mode, e) != ERR_OK)
        return e->code;
    return name_archives(r, r->copied++, &step->files, e);
}

/* In an archive names are relative: the SDKs take the slash from those that are not. */
static const char *in_archive(const char *source)
{
    return source + strspn(source, "/");
}

static enum err_code read_copy(struct reading *r, const struct build_file_step *s, struct err *e)
{
    size_t n = json_array_size(s->words) - 1, len;
    CLEANUP_BUF struct buf target;

    buf_init(&target, CORE_BUILD_TEXT_MAX + 1);
    if (json_array_size(r->hashes) == 0)
        return err_set(e, ERR_INVALID,
                       "there are no contextHashes: files have to be sent before (add_local_file, "
                       "add_local_dir)");
    if (build_file_expand(json_string_value(json_array_get(s->words, n)), r->env, &target, e) !=
        ERR_OK)
        return e->code;
    len = target.len;
    if (len == 0 || buf_append(&target, "", 1) < 0)
        return err_set(e, ERR_INVALID, "its target is empty, or memory is out");
    if (n > 1 && target.data[len - 1] != '/')
        return err_set(e, ERR_INVALID, "with several sources the target has to end with /");
    for (size_t i = 0; i < n; i++)
        if (copy_one(r, s, in_archive(json_string_value(json_array_get(s->words, i))), target.data,
                     e) != ERR_OK)
            return e->code;
    return ERR_OK;
}

/* -- the whole --------------------------------------------------------------------------------- */

/* Docker's rule for the shell form of ENTRYPOINT: CMD is not used with it. */
static enum err_code join_command(struct reading *r, struct err *e)
{
    CLEANUP_FREE char *entry = r->entry ? build_file_quote("exec", r->entry) : NULL;
    CLEANUP_FREE char *words = r->words ? build_file_quote(entry ? entry : "exec", r->words) : NULL;
    const char *command = r->entry_text ? r->entry_text
                          : words       ? words
                          : entry       ? entry
                                        : r->words_text;

    if ((r->entry && !entry) || (r->words && !words))
        return no_memory(e);
    if (!command)
        return ERR_OK;
    if (strlen(command) > CORE_BUILD_COMMAND_MAX)
        return err_set(e, ERR_INVALID, "ENTRYPOINT and CMD have more than %u bytes",
                       CORE_BUILD_COMMAND_MAX);
    return keep(r, command, &r->s.start, e);
}

static enum err_code read_from(struct reading *r, const char *image, struct err *e)
{
    if (strlen(image) > IMAGE_NAME_MAX)
        return err_set(e, ERR_INVALID, "an image's name has at most %u bytes", IMAGE_NAME_MAX);
    r->s.image = true;
    return keep(r, name_of_image(image), &r->s.from, e);
}

static enum err_code read_one(struct reading *r, const struct build_file_step *s, struct err *e)
{
    switch (s->op) {
    case BUILD_FROM: return read_from(r, s->text, e);
    case BUILD_RUN: return read_run(r, s, e);
    case BUILD_COPY: return read_copy(r, s, e);
    case BUILD_ENV: return read_env(r, s, e);
    case BUILD_WORKDIR: return read_workdir(r, s, e);
    case BUILD_USER: return add_one(r, BUILD_OP_USER, s->text, e);
    case BUILD_ENTRYPOINT:
        r->entry = s->words;
        r->entry_text = s->words ? NULL : s->text;
        return ERR_OK;
    case BUILD_CMD:
        r->words = s->words;
        r->words_text = s->words ? NULL : s->text;
        return ERR_OK;
    case BUILD_EXPOSE:
    case BUILD_LABEL: break;
    }
    return ERR_OK;
}

static enum err_code read_all(struct reading *r, struct err *e)
{
    size_t sources = 0;
    struct err why;

    for (size_t i = 0; i < r->file.count; i++)
        if (r->file.steps[i].op == BUILD_COPY)
            sources += json_array_size(r->file.steps[i].words) - 1;
    r->one_each = sources == json_array_size(r->hashes);
    r->env = json_object();
    r->s.steps = calloc(CORE_BUILD_STEPS_MAX, sizeof(*r->s.steps));
    if (!r->env || !r->s.steps)
        return no_memory(e);
    r->s.user = OWNER;
    r->s.cwd = "/";
    for (size_t i = 0; i < r->file.count; i++) {
        const struct build_file_step *s = &r->file.steps[i];

        why = (struct err){.code = ERR_OK};
        if (read_one(r, s, &why) != ERR_OK)
            return err_set(e, why.code, "line %u, %s: %s", s->line, build_file_op_name(s->op),
                           why.text);
    }
    return join_command(r, e);
}

static enum err_code check_hashes(const json_t *hashes, struct err *e)
{
    const json_t *one;
    size_t i;

    if (json_array_size(hashes) > DAYTONA_CONTEXTS_MAX)
        return err_set(e, ERR_INVALID, "contextHashes: found %zu, an image has %u at most",
                       json_array_size(hashes), DAYTONA_CONTEXTS_MAX);
    json_array_foreach (hashes, i, one) {
        const char *text = json_string_value(one);

        if (!text || strlen(text) != DAYTONA_CONTEXT_DIGITS ||
            strspn(text, "0123456789abcdef") != DAYTONA_CONTEXT_DIGITS)
            return err_set(e, ERR_INVALID, "contextHashes: they have to be texts of %u hex digits",
                           DAYTONA_CONTEXT_DIGITS);
    }
    return ERR_OK;
}

static enum err_code read_text(const char *text, const json_t *hashes, struct build_spec *out,
                               struct err *e)
{
    struct reading r = {.hashes = hashes};
    struct err why = {.code = ERR_OK};
    enum err_code code = check_hashes(hashes, e);

    if (code != ERR_OK)
        return code;
    code = build_file_parse(text, strlen(text), BUILD_FILE_OF_IMAGE, &r.file, &why);
    if (code == ERR_OK)
        code = read_all(&r, &why);
    json_decref(r.env);
    build_file_free(&r.file);
    if (code == ERR_OK) {
        *out = r.s;
        return ERR_OK;
    }
    build_spec_free(&r.s);
    return err_set(e, code, "dockerfileContent: %s", why.text);
}

enum err_code daytona_build_spec_read(const json_t *build_info, struct build_spec *out,
                                      struct err *e)
{
    const char *text = NULL;
    json_t *hashes = NULL;

    if (json_get_str(build_info, "dockerfileContent", NULL, JSON_REQUIRED, BUILD_FILE_MAX_BYTES,
                     &text, e) != ERR_OK ||
        json_get_arr(build_info, "contextHashes", NULL, JSON_OPTIONAL, &hashes, e) != ERR_OK)
        return e->code;
    return read_text(text, hashes, out, e);
}

enum err_code daytona_build_spec_of_image(const char *image, const json_t *entrypoint,
                                          struct build_spec *out, struct err *e)
{
    struct reading r = {.s = {.user = OWNER, .cwd = "/"}};
    const json_t *word;
    size_t i;

    json_array_foreach (entrypoint, i, word)
        if (!json_is_string(word) || !*json_string_value(word))
            return err_set(e, ERR_INVALID, "entrypoint: it has to be a list of texts");
    if (json_array_size(entrypoint) > BUILD_WORDS_MAX)
        return err_set(e, ERR_INVALID, "entrypoint: found %zu words, it has %u at most",
                       json_array_size(entrypoint), BUILD_WORDS_MAX);
    r.entry = json_array_size(entrypoint) > 0 ? entrypoint : NULL;
    if (read_from(&r, image, e) == ERR_OK && join_command(&r, e) == ERR_OK) {
        *out = r.s;
        return ERR_OK;
    }
    build_spec_free(&r.s);
    return e->code;
}
