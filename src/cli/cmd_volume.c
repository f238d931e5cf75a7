/* volume create|ls|rm. */
#include "base/plain_name.h"
#include "cli/commands.h"

#include <string.h>

int cmd_volume_create(struct cli *c)
{
    json_t *body = json_pack("{s:s}", "name", c->operands[0]), *made = NULL;
    const char *size = cli_value(c, "size");
    struct err e = {.code = ERR_OK};
    uint64_t bytes = 0;
    struct api a;

    if (size && (config_parse_bytes(size, &bytes) < 0 || bytes == 0))
        cli_wrong_option(&e, "--size: \"%.40s\" is not a size such as 500M or 10G", size);
    else if (size)
        json_object_set_new(body, "sizeBytes", json_integer((json_int_t)bytes));
    if (e.code != ERR_OK || api_open(&a, c, &e) != ERR_OK) {
        json_decref(body);
        return cli_fail(c, &e);
    }
    if (api_call(&a, "POST", "/cay/v1/volumes", body, &made, &e) == ERR_OK)
        show_made(c, made, "volumeID");
    json_decref(made);
    json_decref(body);
    api_close(&a);
    return e.code == ERR_OK ? CLI_OK : cli_fail(c, &e);
}

static void print_list(const json_t *all)
{
    static const char *const heads[] = {"VOLUME", "NAME", "MIB", "SANDBOXES", "MADE"};
    struct table *t = table_new(heads, ARRAY_SIZE(heads));
    json_t *item;
    size_t i;

    json_array_foreach (all, i, item) {
        table_cell(t, "%s", cli_text(item, "volumeID"));
        table_cell(t, "%s", cli_text(item, "name"));
        table_cell(t, "%lld",
                   (long long)json_integer_value(json_object_get(item, "sizeBytes")) >> 20);
        table_cell(t, "%zu", json_array_size(json_object_get(item, "sandboxes")));
        table_cell(t, "%.16s", cli_text(item, "madeAt"));
    }
    table_print(t, stdout);
    table_free(t);
}

int cmd_volume_ls(struct cli *c)
{
    return show_list(c, "/cay/v1/volumes", false, "volumeID", print_list);
}

int cmd_volume_rm(struct cli *c)
{
    struct err e = {.code = ERR_OK};
    int status = CLI_OK;
    char path[160];
    struct api a;

    if (api_open(&a, c, &e) != ERR_OK)
        return cli_fail(c, &e);
    for (int i = 0; i < c->operand_count; i++) {
        e.code = ERR_OK;
        (void)snprintf(path, sizeof(path), "/cay/v1/volumes/%.100s", c->operands[i]);
        if (!plain_name_is_segment(c->operands[i], 100))
            err_set(&e, ERR_INVALID, "\"%.100s\" is no name of a volume", c->operands[i]);
        else
            api_call(&a, "DELETE", path, NULL, NULL, &e);
        if (e.code == ERR_OK) {
            if (!cli_flag(c, "quiet"))
                puts(c->operands[i]);
            continue;
        }
        status = CLI_FAILED;
        cli_print_error(&e);
    }
    api_close(&a);
    return status;
}
