/* template build of a build file: a sandbox, its steps, a snapshot under the template's name. The
 * sandbox is ended in every case; the name moves to the new snapshot only when all is done, and the
 * one that had it is removed then. */
#include "base/clock.h"
#include "base/plain_name.h"
#include "cli/build_run.h"
#include "cli/commands.h"
#include "cli/session.h"
#include "cli/terminal.h"

#include <libgen.h>
#include <limits.h>
#include <string.h>

#ifndef CAY_LIBEXECDIR
#define CAY_LIBEXECDIR "/usr/local/libexec/cay"
#endif

#define DEFAULT_TTL_MS (60ull * 60 * 1000)
#define REFUSED_MAX    10
#define KEEP_MS        120000 /* for the snapshot: it is on the disk when it is answered */
#define MEMORY_MS      900000 /* for that of its start command's program */
#define SHOWN_MAX      72     /* bytes of a step's text on one line */

struct build {
    const struct cli *c;
    struct api *api;
    struct build_file file;
    struct build_context context;
    struct build_run run;
    struct api_sandbox sandbox;
    const char *name;
    char snapshot[64];
    struct err no_memory; /* why its sandboxes start CMD anew; ERR_OK: they do not, or have none */
    bool memory;          /* they begin with it running */
    json_t *policy, *steps, *refused; /* steps: those done; refused: texts */
    uint64_t begun_ms, ttl_ms;
    const struct build_file_step *failed;
};

/* -- what is asked for ------------------------------------------------------------------------- */

/* base and host are the server's own, and are always meant by these names. */
bool template_name_is_own(const char *name)
{
    return plain_name_is_valid(name, 100) && strspn(name, ".") != strlen(name) &&
           strcmp(name, "base") != 0 && strcmp(name, "host") != 0;
}

bool template_shipped(const char *name, char *path, size_t size)
{
    char self[1024], file[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    const char *dir;

    if (!plain_name_is_valid(name, BUILD_NAME_MAX) || name[0] == '.')
        return false;
    self[n > 0 ? n : 0] = '\0';
    dir = dirname(self);
    for (int i = 0; i < 2; i++) {
        if (i == 0)
            snprintf(path, size, "%s/../../packaging/templates/%s", dir, name);
        else
            snprintf(path, size, CAY_LIBEXECDIR "/templates/%s", name);
        if (snprintf(file, sizeof(file), "%s/" BUILD_FILE_NAME, path) < (int)sizeof(file) &&
            access(file, R_OK) == 0)
            return true;
    }
    return false;
}

static enum err_code read_file(struct build *b, const char *path, struct err *e)
{
    CLEANUP_BUF struct buf text;

    buf_init(&text, BUILD_FILE_MAX_BYTES);
    if (build_context_open(&b->context, path, &text, e) != ERR_OK)
        return e->code;
    return build_file_parse(text.len > 0 ? text.data : "", text.len, BUILD_FILE_OF_TEMPLATE,
                            &b->file, e);
}

/* Each source is there and below the folder, before anything is done. */
static enum err_code check_sources(struct build *b, struct err *e)
{
    for (size_t i = 0; i < b->file.count; i++) {
        const struct build_file_step *s = &b->file.steps[i];

        for (size_t k = 0; s->op == BUILD_COPY && k + 1 < json_array_size(s->words); k++) {
            CLEANUP_CLOSE int fd = -1;
            struct err why = {0};
            struct stat st;

            fd = build_context_source(&b->context, json_string_value(json_array_get(s->words, k)),
                                      &st, &why);
            if (fd >= 0)
                continue;
            err_set(e, why.code, "line %u, %s", s->line, why.text);
            err_hint(e, "%s", why.hint);
            return e->code;
        }
    }
    return ERR_OK;
}

static enum err_code read_options(struct build *b, const char *path, struct err *e)
{
    const char *policy = cli_value(b->c, "policy"), *ttl = cli_value(b->c, "ttl");

    if (read_file(b, path, e) != ERR_OK || check_sources(b, e) != ERR_OK)
        return e->code;
    if (!b->name && b->file.name[0])
        b->name = b->file.name;
    if (!b->name) {
        err_set(e, ERR_INVALID, "%s has no LABEL cay.name", path);
        err_hint(e, "Give the template a name: `cay template build NAME %.100s`.", path);
        return e->code;
    }
    if (!template_name_is_own(b->name))
        return err_set(e, ERR_INVALID, "\"%s\" cannot be the name of a template of one's own",
                       b->name);
    if (ttl && (config_parse_time_ms(ttl, &b->ttl_ms) < 0 || b->ttl_ms < 1000))
        return cli_wrong_option(e, "--ttl: \"%s\" is not a time such as 30m or 2h", ttl);
    if (policy)
        return policy_from(policy, &b->policy, e);
    b->policy = json_pack("{s:[s]}", "presets", "package-registries");
    return ERR_OK;
}

/* -- the sandbox ------------------------------------------------------------------------------- */

static enum err_code make_sandbox(struct build *b, struct err *e)
{
    const char *from = b->file.steps[0].text;
    json_t *body = json_pack("{s:s, s:I, s:O, s:{s:s}}", "templateID", from, "timeout",
                             (json_int_t)(b->ttl_ms / 1000), "policy", b->policy, "metadata",
                             "cay.build", b->name);
    json_t *answer = NULL;
    enum err_code code = api_call(b->api, "POST", "/cay/v1/sandboxes", body, &answer, e);
    char id[64] = "";
    bool other;

    json_decref(body);
    if (code != ERR_OK)
        return code;
    snprintf(id, sizeof(id), "%s", cli_text(answer, "sandboxID"));
    other = strcmp(from, "base") == 0 && strcmp(cli_text(answer, "templateID"), "base") != 0;
    json_decref(answer);
    snprintf(b->sandbox.id, sizeof(b->sandbox.id), "%s", id);
    if (!other)
        return api_sandbox_enter(b->api, id, &b->sandbox, e);
    err_set(e, ERR_CONFLICT, "it is not built yet");
    err_hint(e,
             "`cay template build base` makes it. FROM host begins with this machine's programs.");
    return e->code;
}

/* The hosts that were refused while it was built, each once. */
static void read_refused(struct build *b)
{
    json_t *answer = NULL, *seen = json_object(), *d;
    char path[128], where[300];
    size_t i;

    snprintf(path, sizeof(path), "/cay/v1/sandboxes/%s/denials", b->sandbox.id);
    if (api_call(b->api, "GET", path, NULL, &answer, NULL) == ERR_OK)
        json_array_foreach (json_object_get(answer, "denials"), i, d) {
            snprintf(where, sizeof(where), "%s:%d", cli_text(d, "name"),
                     (int)json_integer_value(json_object_get(d, "port")));
            if (json_object_get(seen, where) || json_array_size(b->refused) == REFUSED_MAX)
                continue;
            json_object_set_new(seen, where, json_true());
            json_array_append_new(b->refused, json_sprintf("%s: %s", where, cli_text(d, "reason")));
        }
    json_decref(answer);
    json_decref(seen);
}

/* -- the steps --------------------------------------------------------------------------------- */

static void show_step(const struct build *b, size_t i)
{
    const struct build_file_step *s = &b->file.steps[i];
    char text[SHOWN_MAX + 1], head[64];

    snprintf(text, sizeof(text), "%s", s->text);
    snprintf(head, sizeof(head), "[%zu/%zu] %s ", i + 1, b->file.count, build_file_op_name(s->op));
    terminal_put(stderr, head, text);
    fputs(strlen(s->text) > SHOWN_MAX ? "...\n" : "\n", stderr);
}

static enum err_code run_step(struct build *b, size_t i, bool shown, struct err *e)
{
    const struct build_file_step *s = &b->file.steps[i];
    uint64_t begun = clock_mono_ms(), ms;
    enum err_code code;

    if (shown)
        show_step(b, i);
    if (session_signal_waits())
        return err_set(e, ERR_CANCELED, "the build was stopped");
    if (s->op == BUILD_FROM) {
        code = make_sandbox(b, e);
        if (code == ERR_OK)
            code = build_run_begin(&b->run, e);
    } else {
        code = build_run_step(&b->run, s, e);
    }
    ms = clock_mono_ms() - begun;
    if (code == ERR_OK && shown && ms >= 100)
        fprintf(stderr, "      %.1f s\n", (double)ms / 1000);
    json_array_append_new(b->steps, json_pack("{s:i, s:s, s:s, s:I}", "line", (int)s->line, "op",
                                              build_file_op_name(s->op), "text", s->text,
                                              "elapsedMs", (json_int_t)ms));
    if (code != ERR_OK)
        b->failed = s;
    return code;
}

static enum err_code run_steps(struct build *b, struct err *e)
{
    bool shown = !b->c->json && !cli_flag(b->c, "quiet");

    b->run = (struct build_run){.api = b->api,
                                .sandbox = &b->sandbox,
                                .context = &b->context,
                                .until_ms = b->begun_ms + b->ttl_ms,
                                .live = shown && isatty(STDERR_FILENO)};
    for (size_t i = 0; i < b->file.count; i++)
        if (run_step(b, i, shown, e) != ERR_OK)
            return e->code;
    return build_run_finish(&b->run, e);
}

/* -- the template ------------------------------------------------------------------------------ */

/* The snapshot that has the name now. */
static void find_old(struct build *b, char *id, size_t size)
{
    char path[200];
    json_t *all = NULL;

    id[0] = '\0';
    snprintf(path, sizeof(path), "/snapshots?name=%s", b->name);
    if (api_call(b->api, "GET", path, NULL, &all, NULL) == ERR_OK)
        snprintf(id, size, "%s", cli_text(json_array_get(all, 0), "snapshotID"));
    json_decref(all);
}

static enum err_code keep(struct build *b, struct err *e)
{
    json_t *body = json_pack("{s:s}", "name", b->name), *made = NULL;
    char path[160], old[64];
    enum err_code code;

    find_old(b, old, sizeof(old));
    snprintf(path, sizeof(path), "/sandboxes/%s/snapshots", b->sandbox.id);
    b->api->answer_ms = KEEP_MS;
    code = api_call(b->api, "POST", path, body, &made, e);
    b->api->answer_ms = 0;
    json_decref(body);
    if (code != ERR_OK)
        return code;
    snprintf(b->snapshot, sizeof(b->snapshot), "%s", cli_text(made, "snapshotID"));
    json_decref(made);
    snprintf(path, sizeof(path), "/templates/%s", old);
    if (old[0] && strcmp(old, b->snapshot) != 0 &&
        api_call(b->api, "DELETE", path, NULL, NULL, NULL) != ERR_OK)
        cli_note(b->c, "cay: the snapshot %s, which had the name, is left", old);
    return ERR_OK;
}

/* The template is good without. Needs no place of the build's own sandbox, which has ended. */
static void keep_memory(struct build *b)
{
    json_t *body = json_pack("{s:s}", "ready", b->file.ready);
    char path[160];

    snprintf(path, sizeof(path), "/cay/v1/snapshots/%s/memory", b->snapshot);
    b->api->answer_ms = MEMORY_MS;
    b->memory = api_call(b->api, "POST", path, body, NULL, &b->no_memory) == ERR_OK;
    b->api->answer_ms = 0;
    json_decref(body);
}

static enum err_code build(struct build *b, struct err *e)
{
    struct err late = {0};

    if (run_steps(b, e) == ERR_OK) {
        if (session_signal_waits())
            err_set(e, ERR_CANCELED, "the build was stopped");
        else
            keep(b, e);
    }
    if (!b->sandbox.id[0])
        return e->code;
    read_refused(b);
    /* It may have ended by itself: only a sandbox that stays is worth a word. */
    if (sandbox_kill(b->api, b->sandbox.id, &late) != ERR_OK && late.code != ERR_NOT_FOUND)
        fprintf(stderr, "cay: the sandbox %s is left behind: %s\n", b->sandbox.id, late.text);
    if (e->code == ERR_OK && b->run.cmd && b->run.cmd[0])
        keep_memory(b);
    return e->code;
}

/* -- what is said ------------------------------------------------------------------------------ */

static void show_refused(const struct build *b)
{
    json_t *one;
    size_t i;

    json_array_foreach (b->refused, i, one) {
        terminal_put(stderr, "cay: refused: ", json_string_value(one));
        putc('\n', stderr);
    }
}

/* The output's last bytes, as lines of a terminal. */
static void show_output(const struct build *b)
{
    CLEANUP_FREE char *text = strndup(b->run.tail.len > 0 ? b->run.tail.data : "", b->run.tail.len);
    char *rest = text, *line;

    while (text && (line = strsep(&rest, "\n"))) {
        line[strcspn(line, "\r")] = '\0';
        if (!line[0])
            continue;
        terminal_put(stderr, "    | ", line);
        putc('\n', stderr);
    }
}

/* Text of a sandbox, whatever bytes it has. */
static json_t *output_json(const struct build *b)
{
    CLEANUP_FREE char *text = strndup(b->run.tail.len > 0 ? b->run.tail.data : "", b->run.tail.len);
    json_t *value = text ? json_string(text) : NULL;

    for (char *p = text; !value && p && *p; p++)
        *p = *p & (char)0x80 ? '?' : *p;
    return value ? value : json_string(text ? text : "");
}

static int report_failure(struct build *b, const struct err *e)
{
    struct err out = {0};

    if (!b->failed)
        return cli_fail(b->c, e);
    err_set(&out, e->code, "line %u, %s %.60s: %s", b->failed->line,
            build_file_op_name(b->failed->op), b->failed->text, e->text);
    err_hint(&out, "%s", e->hint);
    if (b->c->json) {
        cli_print_json(json_pack("{s:{s:s, s:s, s:s, s:i, s:i, s:o, s:O}}", "error", "code",
                                 err_code_name(out.code), "message", out.text, "hint", out.hint,
                                 "line", (int)b->failed->line, "exitCode", b->run.status, "output",
                                 output_json(b), "refused", b->refused));
        return CLI_FAILED;
    }
    show_output(b);
    show_refused(b);
    cli_print_error(&out);
    return CLI_FAILED;
}

static int report(struct build *b, const struct err *e)
{
    uint64_t ms = clock_mono_ms() - b->begun_ms;

    if (e->code != ERR_OK)
        return report_failure(b, e);
    if (b->c->json) {
        cli_print_json(json_pack("{s:s, s:s, s:I, s:O, s:O, s:b, s:s}", "template", b->name,
                                 "snapshotID", b->snapshot, "elapsedMs", (json_int_t)ms, "steps",
                                 b->steps, "refused", b->refused, "memory", b->memory,
                                 "memoryError", b->no_memory.text));
        return CLI_OK;
    }
    if (!cli_flag(b->c, "quiet"))
        show_refused(b);
    if (b->no_memory.code != ERR_OK)
        cli_note(b->c, "cay: sandboxes of it start its command anew: %s", b->no_memory.text);
    printf("%s is ready: %zu steps in %.1f s; `cay template ls` lists it\n", b->name, b->file.count,
           (double)ms / 1000);
    return CLI_OK;
}

int template_build_file(struct cli *c, const char *name, const char *path)
{
    struct err e = {.code = ERR_OK};
    struct build b = {.c = c,
                      .name = name,
                      .context = {.dir_fd = -1},
                      .steps = json_array(),
                      .refused = json_array(),
                      .ttl_ms = DEFAULT_TTL_MS,
                      .begun_ms = clock_mono_ms()};
    struct api a;
    int status;

    if (read_options(&b, path, &e) == ERR_OK && api_open(&a, c, &e) == ERR_OK) {
        b.api = &a;
        session_block_signals(); /* as `cay run`: no sandbox is left behind */
        build(&b, &e);
        api_close(&a);
    }
    status = report(&b, &e);
    if (b.api)
        session_unblock_signals();
    build_run_free(&b.run);
    build_file_free(&b.file);
    build_context_close(&b.context);
    json_decref(b.policy);
    json_decref(b.steps);
    json_decref(b.refused);
    return status;
}
