#include "kernels/spec.h"

#include "base/buf.h"
#include "base/io.h"
#include "base/util.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* Languages that are not called as their kernel is. */
static const struct {
    const char *language, *kernel;
} kernels[] = {{"python", "python3"}, {"javascript", "deno"}, {"typescript", "deno"}};

static const struct {
    const char *alias, *language;
} aliases[] = {{"", "python"}, {"js", "javascript"}, {"ts", "typescript"}};

bool spec_language(const char *name, char *out)
{
    size_t n = strlen(name);

    while (n > 0 && isspace((unsigned char)*name))
        name++, n--;
    while (n > 0 && isspace((unsigned char)name[n - 1]))
        n--;
    if (n >= SPEC_NAME_MAX)
        return false;
    for (size_t i = 0; i < n; i++) {
        out[i] = (char)tolower((unsigned char)name[i]);
        if (!isalnum((unsigned char)out[i]) && !strchr("_-+", out[i]))
            return false;
    }
    out[n] = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(aliases); i++)
        if (strcmp(out, aliases[i].alias) == 0)
            snprintf(out, SPEC_NAME_MAX, "%s", aliases[i].language);
    return true;
}

static const char *kernel_of(const char *language)
{
    for (size_t i = 0; i < ARRAY_SIZE(kernels); i++)
        if (strcmp(kernels[i].language, language) == 0)
            return kernels[i].kernel;
    return language;
}

static void path_of(const char *dir, const char *language, char out[static PATH_MAX])
{
    snprintf(out, PATH_MAX, "%s/%s/kernel.json", dir, kernel_of(language));
}

bool spec_exists(const char *const *dirs, const char *language)
{
    char path[PATH_MAX];

    for (; *dirs; dirs++) {
        path_of(*dirs, language, path);
        if (access(path, R_OK) == 0)
            return true;
    }
    return false;
}

/* json_load_file has no limit of its own. */
static json_t *load(const char *path)
{
    CLEANUP_FREE char *text = malloc(SPEC_BYTES_MAX);
    ssize_t n = text ? io_read_text_at(AT_FDCWD, path, text, SPEC_BYTES_MAX) : -ENOMEM;

    return n < 0 ? NULL : json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, NULL);
}

static bool is_whole(const json_t *object)
{
    const json_t *argv = json_object_get(object, "argv"), *env = json_object_get(object, "env"), *v;
    const char *key;
    size_t i;

    if (!json_is_array(argv) || json_array_size(argv) < 1 || json_array_size(argv) > SPEC_ARGV_MAX)
        return false;
    json_array_foreach (argv, i, v)
        if (!json_is_string(v))
            return false;
    json_object_foreach ((json_t *)(uintptr_t)env, key, v)
        if (!json_is_string(v))
            return false;
    return true;
}

enum err_code spec_load(const char *const *dirs, const char *language, struct spec *out,
                        struct err *e)
{
    char path[PATH_MAX];
    const char *mode;
    json_int_t settle;

    for (; *dirs; dirs++) {
        path_of(*dirs, language, path);
        if (access(path, F_OK) == 0)
            break;
    }
    if (!*dirs)
        return err_set(e, ERR_NOT_FOUND, "no kernel for the language %s in this sandbox", language);
    out->object = load(path);
    if (!is_whole(out->object)) {
        json_decref(out->object);
        return err_set(e, ERR_INVALID, "the kernel of %s cannot be used: %s is broken", language,
                       path);
    }
    mode = json_string_value(json_object_get(out->object, "interrupt_mode"));
    out->interrupt_by_signal = !mode || strcmp(mode, "message") != 0;
    settle = json_integer_value(
        json_object_get(json_object_get(out->object, "metadata"), "cay_settle_ms"));
    out->settle_ms = (unsigned)MIN(MAX(settle, 0), (json_int_t)SPEC_SETTLE_MAX_MS);
    return ERR_OK;
}

void spec_free(struct spec *s)
{
    json_decref(s->object);
    *s = (struct spec){0};
}

static char *replace_file(const char *text, const char *file)
{
    static const char mark[] = "{connection_file}";
    const char *at = strstr(text, mark);
    CLEANUP_BUF struct buf b;

    buf_init(&b, PATH_MAX * 2);
    if (!at)
        return strdup(text);
    if (buf_append(&b, text, (size_t)(at - text)) < 0 || buf_append_str(&b, file) < 0 ||
        buf_append_str(&b, at + strlen(mark)) < 0)
        return NULL;
    return buf_take(&b);
}

char **spec_argv(const struct spec *s, const char *connection_file)
{
    const json_t *words = json_object_get(s->object, "argv");
    size_t n = json_array_size(words);
    char **argv = calloc(n + 1, sizeof(*argv));

    for (size_t i = 0; argv && i < n; i++) {
        argv[i] = replace_file(json_string_value(json_array_get(words, i)), connection_file);
        if (!argv[i]) {
            spec_free_argv(argv);
            argv = NULL;
        }
    }
    return argv;
}

void spec_free_argv(char **argv)
{
    for (char **p = argv; p && *p; p++)
        free(*p);
    free(argv);
}
