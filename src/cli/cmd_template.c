/* `template build|ls|limits|publish|rm`. A build is a job of the server: the command starts it,
 * then polls it every POLL_MS and prints its progress until it has ended; interrupting the command
 * leaves the job running. Names are checked here before they become a part of a path. */

#include "base/clock.h"
#include "base/plain_name.h"
#include "cli/commands.h"
#include "cli/terminal.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <time.h>

#define POLL_MS        300
#define NAME_MAX_BYTES 100u
#define TAG_MAX_BYTES  64u

static bool name_is_clean(const char *name)
{
    return name[0] && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.:") == strlen(name);
}

/* -- build ------------------------------------------------------------------------------------- */

static void show_progress(const struct cli *c, const json_t *job)
{
    json_t *line;
    size_t i;

    if (c->json || cli_flag(c, "quiet"))
        return;
    json_array_foreach (json_object_get(job, "lines"), i, line) {
        fprintf(stderr, "%3d%%", (int)json_integer_value(json_object_get(job, "percent")));
        terminal_put(stderr, "  ", json_string_value(line) ? json_string_value(line) : "");
        putc('\n', stderr);
    }
}

static enum err_code follow_job(const struct cli *c, struct api *a, const char *job_id,
                                struct err *e)
{
    json_int_t next = 0;

    for (;;) {
        char path[128], message[300];
        json_t *job = NULL;
        const char *state;
        bool done, failed;
        enum err_code code;

        snprintf(path, sizeof(path), "/cay/v1/jobs/%s?offset=%lld", job_id, (long long)next);
        code = api_call(a, "GET", path, NULL, &job, e);
        if (code != ERR_OK)
            return code;
        show_progress(c, job);
        next = json_integer_value(json_object_get(job, "next"));
        state = cli_text(job, "state");
        done = strcmp(state, "done") == 0;
        failed = strcmp(state, "failed") == 0;
        snprintf(message, sizeof(message), "%s", cli_text(job, "message"));
        json_decref(job);
        if (failed)
            return err_set(e, ERR_INTERNAL, "the build failed: %s", message);
        if (done)
            return ERR_OK;
        nanosleep(&(struct timespec){.tv_nsec = POLL_MS * 1000000L}, NULL);
    }
}

static enum err_code start_build(struct api *a, const char *name, char *job_id, size_t size,
                                 struct err *e)
{
    json_t *body = json_object(), *answer = NULL;
    char path[160];
    enum err_code code;

    snprintf(path, sizeof(path), "/cay/v1/templates/%s/build", name);
    code = api_call(a, "POST", path, body, &answer, e);
    json_decref(body);
    if (code != ERR_OK)
        return code;
    snprintf(job_id, size, "%s", cli_text(answer, "job"));
    json_decref(answer);
    return ERR_OK;
}

/* A built template takes so much of the disk, once for all sandboxes that stand on it. 0: not
 * known. */
static uint64_t size_of(struct api *a, const char *name)
{
    json_t *all = NULL, *item;
    uint64_t bytes = 0;
    struct err e;
    size_t i;

    if (api_call(a, "GET", "/cay/v1/templates", NULL, &all, &e) != ERR_OK)
        return 0;
    json_array_foreach (all, i, item)
        if (strcmp(cli_text(item, "id"), name) == 0)
            bytes = (uint64_t)MAX(json_integer_value(json_object_get(item, "sizeBytes")), 0);
    json_decref(all);
    return bytes;
}

static void print_built(const char *name, double seconds, uint64_t bytes)
{
    char size[32];

    table_bytes(bytes, size, sizeof(size));
    printf("%s is ready: %s in %.0f s\n", name, size, seconds);
}

enum err_code template_build_follow(struct cli *c, struct api *a, const char *name, struct err *e)
{
    char job_id[64];

    if (start_build(a, name, job_id, sizeof(job_id), e) == ERR_OK)
        follow_job(c, a, job_id, e);
    return e->code;
}

/* That no template of the server's can be called, as ./tools, Dockerfile. */
static bool is_path(const char *operand)
{
    return strchr(operand, '/') || strspn(operand, ".") == strlen(operand) ||
           (!name_is_clean(operand) && access(operand, F_OK) == 0);
}

static void hint_at_folder(const char *name, struct err *e)
{
    if (access(name, F_OK) == 0)
        err_hint(e, "to build by the folder of that name: `cay template build %.60s ./%.60s`", name,
                 name);
    else
        err_hint(e, "to build one of your own give its folder: `cay template build NAME DIR`");
}

int cmd_template_build(struct cli *c)
{
    const char *name = c->operand_count > 0 ? c->operands[0] : "base";
    uint64_t begun = clock_mono_ms();
    struct err e = {.code = ERR_OK};
    uint64_t bytes = 0;
    char job_id[64], shipped[PATH_MAX];
    struct api a;

    if (c->operand_count == 2 && !template_name_is_own(name))
        return cli_usage(c, "\"%s\" cannot be the name of a template of one's own", name);
    if (c->operand_count == 2)
        return template_build_file(c, name, c->operands[1]);
    if (is_path(name))
        return template_build_file(c, NULL, name);
    if (template_shipped(name, shipped, sizeof(shipped)))
        return template_build_file(c, NULL, shipped);
    if (!name_is_clean(name) || strlen(name) > 100)
        return cli_usage(c, "\"%s\" is not the name of a template", name);
    if (api_open(&a, c, &e) != ERR_OK)
        return cli_fail(c, &e);
    if (start_build(&a, name, job_id, sizeof(job_id), &e) == ERR_OK && !cli_flag(c, "detach")) {
        cli_note(c, "cay: the server builds %s: it goes on when this command is interrupted", name);
        follow_job(c, &a, job_id, &e);
    }
    if (e.code == ERR_OK && !cli_flag(c, "detach"))
        bytes = size_of(&a, name);
    api_close(&a);
    if (e.code == ERR_NOT_FOUND)
        hint_at_folder(name, &e);
    if (e.code != ERR_OK)
        return cli_fail(c, &e);
    if (c->json)
        cli_print_json(json_pack("{s:s, s:s, s:I, s:I}", "template", name, "job", job_id,
                                 "elapsedMs", (json_int_t)(clock_mono_ms() - begun), "sizeBytes",
                                 (json_int_t)bytes));
    else if (cli_flag(c, "detach"))
        printf("Building %s in the background; watch it with `cay template build %s`.\n", name,
               name);
    else
        print_built(name, (double)(clock_mono_ms() - begun) / 1000, bytes);
    return CLI_OK;
}

/* -- ls ---------------------------------------------------------------------------------------- */

static void print_templates(const json_t *all)
{
    static const char *const heads[] = {"TEMPLATE", "TAGS", "STATE", "SIZE", "MADE", "NOTE"};
    struct table *t = table_new(heads, ARRAY_SIZE(heads));
    json_t *item;
    size_t i;

    json_array_foreach (all, i, item) {
        const char *made = cli_text(item, "madeAt");
        json_int_t bytes = json_integer_value(json_object_get(item, "sizeBytes"));
        char size[32];

        table_bytes((uint64_t)MAX(bytes, 0), size, sizeof(size));
        table_cell(t, "%s", cli_text(item, "id"));
        table_cell_list(t, json_object_get(item, "tags"), ",", "-");
        table_cell(t, "%s",
                   json_is_true(json_object_get(item, "building")) ? "building"
                   : json_is_true(json_object_get(item, "ready"))  ? "ready"
                                                                   : "not built");
        table_cell(t, "%s", bytes > 0 ? size : "-");
        table_cell(t, "%.16s", made[0] ? made : "-");
        if (cli_text(item, "source")[0] && !cli_text(item, "note")[0])
            table_cell(t, "%s, %.19s", cli_text(item, "source"), cli_text(item, "digest"));
        else
            table_cell(t, "%s", cli_text(item, "note"));
    }
    table_print(t, stdout);
    table_free(t);
}

int cmd_template_ls(struct cli *c)
{
    return show_answer(c, "/cay/v1/templates", print_templates);
}

/* -- limits ------------------------------------------------------------------------------------ */

static const struct {
    const char *option, *name;
    bool is_bytes;
} limit_options[] = {{"memory", "memoryBytes", true},
                     {"cpu-milli", "cpuMilli", false},
                     {"disk", "diskBytes", true},
                     {"pids", "pids", false}};

/* A new reference; NULL after a usage error; an empty object where nothing is given. */
static json_t *read_limits(struct cli *c)
{
    json_t *out = json_object();

    for (size_t i = 0; i < ARRAY_SIZE(limit_options); i++) {
        const char *text = cli_value(c, limit_options[i].option);
        uint64_t n = 0;

        if (!text)
            continue;
        if (config_parse_bytes(text, &n) < 0 || n > INT64_MAX || n == 0 ||
            (!limit_options[i].is_bytes && strspn(text, "0123456789") != strlen(text))) {
            cli_usage(c, "--%s: \"%s\" is not %s", limit_options[i].option, text,
                      limit_options[i].is_bytes ? "a size such as 512M or 2G" : "a whole number");
            json_decref(out);
            return NULL;
        }
        json_object_set_new(out, limit_options[i].name, json_integer((json_int_t)n));
    }
    if (cli_flag(c, "seccomp-filters"))
        json_object_set_new(out, "seccompFilters", json_true());
    return out;
}

static enum err_code show_limits(struct cli *c, struct api *a, struct err *e)
{
    json_t *all = NULL, *item, *limits = NULL;
    char memory[32], disk[32];
    size_t i;

    if (api_call(a, "GET", "/cay/v1/templates", NULL, &all, e) != ERR_OK)
        return e->code;
    json_array_foreach (all, i, item)
        if (strcmp(cli_text(item, "id"), c->operands[0]) == 0)
            limits = json_object_get(item, "limits");
    if (!limits) {
        err_set(e, ERR_NOT_FOUND, "there is no template \"%s\"", c->operands[0]);
        err_hint(e, "`cay template ls` lists those that there are");
    } else if (c->json) {
        cli_print_json(json_incref(limits));
    } else {
        table_bytes((uint64_t)json_integer_value(json_object_get(limits, "memoryBytes")), memory,
                    sizeof(memory));
        table_bytes((uint64_t)json_integer_value(json_object_get(limits, "diskBytes")), disk,
                    sizeof(disk));
        printf("memory    %s\ncpu-milli %lld\ndisk      %s\npids      %lld\nfilters   %s\n", memory,
               (long long)json_integer_value(json_object_get(limits, "cpuMilli")), disk,
               (long long)json_integer_value(json_object_get(limits, "pids")),
               json_is_true(json_object_get(limits, "seccompFilters")) ? "yes" : "no");
    }
    json_decref(all);
    return e->code;
}

int cmd_template_limits(struct cli *c)
{
    struct err e = {.code = ERR_OK};
    json_t *limits;
    char path[160];
    struct api a;

    if (!name_is_clean(c->operands[0]) || strlen(c->operands[0]) > 100)
        return cli_usage(c, "\"%s\" is not the name of a template", c->operands[0]);
    limits = read_limits(c);
    if (!limits)
        return CLI_USAGE;
    if (api_open(&a, c, &e) == ERR_OK) {
        snprintf(path, sizeof(path), "/cay/v1/templates/%s/limits", c->operands[0]);
        if (json_object_size(limits) > 0 || cli_flag(c, "default"))
            api_call(&a, "PUT", path, limits, NULL, &e);
        if (e.code == ERR_OK)
            show_limits(c, &a, &e);
        api_close(&a);
    }
    json_decref(limits);
    return e.code == ERR_OK ? CLI_OK : cli_fail(c, &e);
}

/* -- publish ----------------------------------------------------------------------------------- */

int cmd_template_publish(struct cli *c)
{
    bool on = !cli_flag(c, "off");
    struct err e = {.code = ERR_OK};
    json_t *body;
    char path[160];
    struct api a;

    if (!template_name_is_own(c->operands[0]))
        return cli_usage(c, "\"%s\" is not the name of a template of one's own", c->operands[0]);
    body = json_pack("{s:b}", "public", on);
    if (api_open(&a, c, &e) == ERR_OK) {
        snprintf(path, sizeof(path), "/v2/templates/%s", c->operands[0]);
        if (api_call(&a, "PATCH", path, body, NULL, &e) == ERR_OK && c->json)
            cli_print_json(json_pack("{s:s, s:b}", "template", c->operands[0], "public", on));
        api_close(&a);
    }
    json_decref(body);
    return e.code == ERR_OK ? CLI_OK : cli_fail(c, &e);
}

/* -- rm ---------------------------------------------------------------------------------------- */

/* NAME or NAME:TAG, of at most 100 and 64 characters. */
static bool name_or_tagged(const char *text)
{
    size_t n = strcspn(text, ":");
    char name[NAME_MAX_BYTES + 1];

    if (n > NAME_MAX_BYTES)
        return false;
    memcpy(name, text, n);
    name[n] = '\0';
    return plain_name_is_segment(name, NAME_MAX_BYTES) &&
           (!text[n] || plain_name_is_segment(text + n + 1, TAG_MAX_BYTES));
}

int cmd_template_rm(struct cli *c)
{
    struct err e = {.code = ERR_OK};
    char path[224];
    struct api a;

    if (!name_or_tagged(c->operands[0]))
        return cli_usage(c, "\"%s\" is not the name of a template", c->operands[0]);
    if (api_open(&a, c, &e) != ERR_OK)
        return cli_fail(c, &e);
    snprintf(path, sizeof(path), "/cay/v1/templates/%s", c->operands[0]);
    if (api_call(&a, "DELETE", path, NULL, NULL, &e) == ERR_OK && c->json)
        cli_print_json(json_pack("{s:s}", "removed", c->operands[0]));
    api_close(&a);
    if (e.code == ERR_NOT_FOUND)
        err_hint(&e, "`cay template ls` lists them; one of another tenant's is removed with a key "
                     "of that tenant's");
    return e.code == ERR_OK ? CLI_OK : cli_fail(c, &e);
}
