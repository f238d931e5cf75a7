/* ls, kill, pause, resume, logs: each is one call of the server for each id, and a table or JSON of
 * its answer. */
#include "base/clock.h"
#include "cli/commands.h"
#include "cli/terminal.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

/* -- ls ---------------------------------------------------------------------------------------- */

static void metadata_cell(struct table *t, const json_t *metadata)
{
    char text[128] = "";
    const char *key;
    json_t *value;
    size_t used = 0;

    json_object_foreach ((json_t *)metadata, key, value) {
        if (used >= sizeof(text))
            break;
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s=%s", used ? " " : "", key,
                                 json_string_value(value) ? json_string_value(value) : "");
    }
    table_cell(t, "%s", text);
}

static void time_cell(struct table *t, const char *rfc3339, bool left)
{
    int64_t ms, now = clock_real_ms();
    char text[32];

    if (clock_parse_rfc3339(rfc3339, &ms) < 0) {
        table_cell(t, "-");
        return;
    }
    table_duration((left ? ms - now : now - ms) / 1000, text, sizeof(text));
    table_cell(t, "%s", text);
}

static bool any_has_name(const json_t *all)
{
    json_t *item;
    size_t i;

    json_array_foreach (all, i, item)
        if (cli_text(item, "name")[0])
            return true;
    return false;
}

/* Names are Daytona's: the column is there when one has a name. */
static void print_list(const json_t *all)
{
    static const char *const heads[] = {"SANDBOX", "TEMPLATE", "STATE", "AGE",
                                        "LEFT",    "METADATA", "NAME"};
    bool names = any_has_name(all);
    struct table *t = table_new(heads, ARRAY_SIZE(heads) - (names ? 0 : 1));
    json_t *item;
    size_t i;

    json_array_foreach (all, i, item) {
        const char *template_name = cli_text(item, "templateID"),
                   *requested = cli_text(item, "alias");

        table_cell(t, "%s", cli_text(item, "sandboxID"));
        if (ids_is_snapshot(template_name))
            table_cell(t, "snapshot %s", requested[0] ? requested : template_name);
        else if (ids_is_template(template_name))
            table_cell(t, "%s", requested[0] ? requested : template_name);
        else if (requested[0] && strcmp(requested, template_name) != 0)
            table_cell(t, "%s (for %s)", template_name, requested);
        else
            table_cell(t, "%s", template_name);
        if (strcmp(cli_text(item, "tier"), "files") == 0 ||
            strcmp(cli_text(item, "tier"), "archive") == 0 ||
            strcmp(cli_text(item, "tier"), "memory") == 0)
            table_cell(t, "%s (%s, %s)", cli_text(item, "state"), cli_text(item, "reason"),
                       cli_text(item, "tier"));
        else if (cli_text(item, "reason")[0])
            table_cell(t, "%s (%s)", cli_text(item, "state"), cli_text(item, "reason"));
        else
            table_cell(t, "%s", cli_text(item, "state"));
        time_cell(t, cli_text(item, "startedAt"), false);
        if (strcmp(cli_text(item, "state"), "paused") == 0)
            table_cell(t, "-"); /* until it is deleted */
        else
            time_cell(t, cli_text(item, "endAt"), true);
        metadata_cell(t, json_object_get(item, "metadata"));
        if (names)
            table_cell(t, "%s", cli_text(item, "name"));
    }
    table_print(t, stdout);
    table_free(t);
}

/* From startedAt to endedAt. */
static void lived_cell(struct table *t, const json_t *item)
{
    int64_t from, to;
    char text[32] = "-";

    if (clock_parse_rfc3339(cli_text(item, "startedAt"), &from) == 0 &&
        clock_parse_rfc3339(cli_text(item, "endedAt"), &to) == 0)
        table_duration((to - from) / 1000, text, sizeof(text));
    table_cell(t, "%s", text);
}

static void print_ended(const json_t *all)
{
    static const char *const heads[] = {"SANDBOX", "TEMPLATE", "STATE", "LIVED", "AGO"};
    struct table *t = table_new(heads, ARRAY_SIZE(heads));
    json_t *item;
    size_t i;

    json_array_foreach (all, i, item) {
        table_cell(t, "%s", cli_text(item, "sandboxID"));
        table_cell(t, "%s", cli_text(item, "templateID"));
        table_cell(t, "ended (%s)", cli_text(item, "reason"));
        lived_cell(t, item);
        time_cell(t, cli_text(item, "endedAt"), false);
    }
    table_print(t, stdout);
    table_free(t);
}

int cmd_ls(struct cli *c)
{
    if (cli_flag(c, "ended"))
        return show_list(c, "/cay/v1/ended", false, "sandboxID", print_ended);
    return show_list(c, "/v2/sandboxes", true, "sandboxID", print_list);
}

/* -- kill -------------------------------------------------------------------------------------- */

enum err_code sandbox_kill(struct api *a, const char *id, struct err *e)
{
    enum err_code code;
    char path[128];

    snprintf(path, sizeof(path), "/sandboxes/%s", id);
    code = api_call(a, "DELETE", path, NULL, NULL, e);
    if (code == ERR_NOT_FOUND)
        err_hint(e, "`cay ls` lists those that are there, `cay ls --ended` tells how others ended");
    return code;
}

static int kill_each(struct cli *c, struct api *a, const json_t *ids)
{
    json_t *killed = json_array();
    int status = CLI_OK;
    json_t *id;
    size_t i;

    json_array_foreach (ids, i, id) {
        struct api_sandbox s;
        struct err e = {.code = ERR_OK};

        if (api_sandbox_open(a, json_string_value(id), &s, &e) == ERR_OK &&
            sandbox_kill(a, s.id, &e) == ERR_OK) {
            json_array_append_new(killed, json_string(s.id));
            if (!c->json && !cli_flag(c, "quiet"))
                printf("%s\n", s.id);
            continue;
        }
        status = CLI_FAILED;
        cli_print_error(&e);
    }
    if (c->json)
        cli_print_json(json_pack("{s:O}", "killed", killed));
    json_decref(killed);
    return status;
}

int cmd_kill(struct cli *c)
{
    json_t *ids = json_array(), *all = json_array(), *item;
    struct err e = {.code = ERR_OK};
    int status = CLI_OK;
    struct api a;
    size_t i;

    for (int k = 0; k < c->operand_count; k++)
        json_array_append_new(ids, json_string_nocheck(c->operands[k]));
    if (c->operand_count == 0 && !cli_flag(c, "all"))
        status = cli_usage(c, "kill needs a sandbox, or --all");
    else if (c->operand_count > 0 && cli_flag(c, "all"))
        status = cli_usage(c, "--all ends every sandbox of the key: name sandboxes, or give --all");
    else if (api_open(&a, c, &e) != ERR_OK)
        status = cli_fail(c, &e);
    else {
        if (cli_flag(c, "all") &&
            api_list_all(&a, "/v2/sandboxes", API_LIST_PAGES_MAX, all, &e) != ERR_OK)
            status = cli_fail(c, &e);
        json_array_foreach (all, i, item)
            json_array_append(ids, json_object_get(item, "sandboxID"));
        if (status == CLI_OK)
            status = kill_each(c, &a, ids);
        api_close(&a);
    }
    json_decref(ids);
    json_decref(all);
    return status;
}

/* -- pause, resume ----------------------------------------------------------------------------- */

/* Its memory was asked for, and its files alone are kept, or were started. */
static void note_fall(const struct cli *c, struct api *a, const char *id)
{
    json_t *detail = NULL;
    char path[128];
    struct err e;

    (void)snprintf(path, sizeof(path), "/cay/v1/sandboxes/%s", id);
    if (api_call(a, "GET", path, NULL, &detail, &e) == ERR_OK && cli_text(detail, "memoryError")[0])
        cli_note(c, "%s: its files alone: %s", id, cli_text(detail, "memoryError"));
    json_decref(detail);
}

static enum err_code change_one(const struct cli *c, struct api *a, const char *given,
                                const char *call, const json_t *body, char *id, size_t size,
                                struct err *e)
{
    struct api_sandbox s;
    char path[128];

    if (api_sandbox_open(a, given, &s, e) != ERR_OK)
        return e->code;
    (void)snprintf(id, size, "%s", s.id);
    (void)snprintf(path, sizeof(path), "/cay/v1/sandboxes/%s/%s", s.id, call);
    if (api_call(a, "POST", path, body, NULL, e) == ERR_OK &&
        json_is_true(json_object_get(body, "orFiles")))
        note_fall(c, a, s.id);
    return e->code;
}

/* Each of the operands; done: the key of those that it worked for, in JSON. Takes the reference to
 * body. */
static int change_each(struct cli *c, const char *call, const char *done, json_t *body)
{
    json_t *changed = json_array();
    struct err e = {.code = ERR_OK};
    int status = CLI_OK;
    struct api a;

    if (api_open(&a, c, &e) != ERR_OK) {
        json_decref(changed);
        json_decref(body);
        return cli_fail(c, &e);
    }
    for (int i = 0; i < c->operand_count; i++) {
        char id[64] = "";

        e.code = ERR_OK;
        if (change_one(c, &a, c->operands[i], call, body, id, sizeof(id), &e) != ERR_OK) {
            status = CLI_FAILED;
            cli_print_error(&e);
            continue;
        }
        json_array_append_new(changed, json_string(id));
        if (!c->json && !cli_flag(c, "quiet"))
            puts(id);
    }
    if (c->json)
        cli_print_json(json_pack("{s:O}", done, changed));
    json_decref(changed);
    json_decref(body);
    api_close(&a);
    return status;
}

int cmd_pause(struct cli *c)
{
    bool memory = cli_flag(c, "memory");
    json_t *body = json_object();

    if (cli_flag(c, "or-files") && !memory) {
        json_decref(body);
        return cli_usage(c, "--or-files only goes with --memory: --memory --or-files");
    }
    if (memory && cli_flag(c, "files")) {
        json_decref(body);
        return cli_usage(c,
                         "--files keeps no memory: use --memory, --memory --or-files or --files");
    }
    if (cli_flag(c, "files"))
        json_object_set_new(body, "memory", json_false());
    if (memory)
        json_object_set_new(body, "tier", json_string("memory"));
    if (cli_flag(c, "or-files"))
        json_object_set_new(body, "orFiles", json_true());
    return change_each(c, "pause", "paused", body);
}

int cmd_archive(struct cli *c)
{
    return change_each(c, "archive", "archived", json_object());
}

int cmd_resume(struct cli *c)
{
    const char *ttl = cli_value(c, "ttl");
    json_t *body = json_object();
    uint64_t ttl_ms;
    struct err e;

    if (cli_flag(c, "files") && cli_flag(c, "or-files")) {
        json_decref(body);
        return cli_usage(c, "--files boots on its files in any case: use --files or --or-files");
    }
    if (ttl && (config_parse_time_ms(ttl, &ttl_ms) < 0 || ttl_ms == 0)) {
        json_decref(body);
        cli_wrong_option(&e, "--ttl: \"%s\" is not a time such as 30s, 5m or 2h", ttl);
        return cli_fail(c, &e);
    }
    if (ttl)
        json_object_set_new(body, "timeout", json_integer((json_int_t)((ttl_ms + 999) / 1000)));
    if (cli_flag(c, "files"))
        json_object_set_new(body, "memory", json_false());
    if (cli_flag(c, "or-files"))
        json_object_set_new(body, "orFiles", json_true());
    return change_each(c, "resume", "resumed", body);
}

/* -- logs -------------------------------------------------------------------------------------- */

static void print_log(const json_t *line)
{
    const json_t *fields = json_object_get(line, "fields");
    const char *key;
    json_t *value;

    terminal_put(stdout, "", cli_text(line, "timestamp"));
    printf(" %-5.16s", cli_text(line, "level"));
    terminal_put(stdout, " ", cli_text(line, "message"));
    json_object_foreach ((json_t *)fields, key, value) {
        if (!json_is_string(value))
            continue;
        terminal_put(stdout, " ", key);
        terminal_put(stdout, "=", json_string_value(value));
    }
    putchar('\n');
}

/* Prints what comes after the last line that was printed. Lines are only ever added at the end
 * while a sandbox lives, up to the server's limit; when it drops old ones the last printed line is
 * searched. */
static void print_new(const json_t *lines, json_t **last)
{
    size_t first = 0, n = json_array_size(lines);

    for (size_t i = n; *last && i-- > 0;) {
        if (json_equal(json_array_get(lines, i), *last)) {
            first = i + 1;
            break;
        }
    }
    for (size_t i = first; i < n; i++)
        print_log(json_array_get(lines, i));
    fflush(stdout);
    if (n > 0) {
        json_decref(*last);
        *last = json_incref(json_array_get(lines, n - 1));
    }
}

int cmd_logs(struct cli *c)
{
    json_t *answer, *last = NULL;
    struct api_sandbox s;
    char path[128];
    struct api a;
    struct err e = {.code = ERR_OK};
    bool again = cli_flag(c, "follow");

    if (api_open(&a, c, &e) != ERR_OK)
        return cli_fail(c, &e);
    if (api_sandbox_open(&a, c->operands[0], &s, &e) != ERR_OK)
        goto out;
    snprintf(path, sizeof(path), "/v2/sandboxes/%s/logs", s.id);
    do {
        answer = NULL;
        if (api_call(&a, "GET", path, NULL, &answer, &e) != ERR_OK) {
            /* The end of the sandbox is the end of its log. */
            e.code = last && e.code == ERR_NOT_FOUND ? ERR_OK : e.code;
            break;
        }
        e.code = ERR_OK;
        if (c->json)
            cli_print_json(json_incref(json_object_get(answer, "logs")));
        else
            print_new(json_object_get(answer, "logs"), &last);
        json_decref(answer);
        if (again)
            sleep(1);
    } while (again);
    json_decref(last);
out:
    api_close(&a);
    return e.code == ERR_OK ? CLI_OK : cli_fail(c, &e);
}
