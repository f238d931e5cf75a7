/* top: what the sandboxes use, again and again on a terminal, once otherwise. */
#include "cli/commands.h"
#include "cli/terminal.h"

#include <string.h>
#include <time.h>

#define PAGES_MAX 2 /* of 100 sandboxes */

static json_t *last_metric(struct api *a, const char *id)
{
    json_t *all = NULL, *last;
    char path[160];

    snprintf(path, sizeof(path), "/sandboxes/%s/metrics", id);
    if (api_call(a, "GET", path, NULL, &all, NULL) != ERR_OK)
        return NULL;
    last = json_incref(json_array_get(all, json_array_size(all) - 1));
    json_decref(all);
    return last;
}

/* [{sandboxID, templateID, metrics}] of the first sandboxes. */
static enum err_code measure(struct api *a, json_t *rows, struct err *e)
{
    json_t *list = json_array(), *item;
    enum err_code code = api_list_all(a, "/v2/sandboxes?state=running", PAGES_MAX, list, e);
    size_t i;

    json_array_foreach (list, i, item) {
        const char *id = json_string_value(json_object_get(item, "sandboxID"));
        json_t *metric = id && code == ERR_OK ? last_metric(a, id) : NULL;

        if (metric)
            json_array_append_new(rows, json_pack("{s:s, s:O, s:o}", "sandboxID", id, "templateID",
                                                  json_object_get(item, "templateID"), "metrics",
                                                  metric));
    }
    json_decref(list);
    return code;
}

static void amounts_cell(struct table *t, const json_t *m, const char *used, const char *total)
{
    char a[32], b[32];

    table_bytes((uint64_t)json_integer_value(json_object_get(m, used)), a, sizeof(a));
    table_bytes((uint64_t)json_integer_value(json_object_get(m, total)), b, sizeof(b));
    table_cell(t, "%s / %s", a, b);
}

static void print_rows(const json_t *rows)
{
    static const char *const heads[] = {"SANDBOX", "TEMPLATE", "CPU %", "MEMORY", "DISK"};
    struct table *t = table_new(heads, ARRAY_SIZE(heads));
    json_t *row;
    size_t i;

    json_array_foreach (rows, i, row) {
        const json_t *m = json_object_get(row, "metrics");
        const char *template_name = json_string_value(json_object_get(row, "templateID"));

        table_cell(t, "%s", json_string_value(json_object_get(row, "sandboxID")));
        table_cell(t, "%s", template_name ? template_name : "");
        table_cell(t, "%.1f", json_number_value(json_object_get(m, "cpuUsedPct")));
        amounts_cell(t, m, "memUsed", "memTotal");
        amounts_cell(t, m, "diskUsed", "diskTotal");
    }
    table_print(t, stdout);
    table_free(t);
}

int cmd_top(struct cli *c)
{
    bool again = isatty(STDOUT_FILENO) && !c->json && !cli_flag(c, "once");
    struct err e = {.code = ERR_OK};
    struct api a;

    if (api_open(&a, c, &e) != ERR_OK)
        return cli_fail(c, &e);
    do {
        json_t *rows = json_array();

        if (measure(&a, rows, &e) != ERR_OK)
            again = false;
        else if (c->json)
            cli_print_json(json_incref(rows));
        else {
            if (again)
                terminal_control(stdout, "\033[H\033[J");
            print_rows(rows);
            fflush(stdout);
        }
        json_decref(rows);
        if (again)
            sleep(2);
    } while (again);
    api_close(&a);
    return e.code == ERR_OK ? CLI_OK : cli_fail(c, &e);
}
