/* A command that prints one answer of the server: as JSON with --json, else by the given
 * function. */

#include "cli/commands.h"

int show_answer(struct cli *c, const char *path, void (*print)(const json_t *answer))
{
    struct err e = {.code = ERR_OK};
    json_t *answer = NULL;
    struct api a;

    if (api_open(&a, c, &e) != ERR_OK)
        return cli_fail(c, &e);
    if (api_call(&a, "GET", path, NULL, &answer, &e) == ERR_OK) {
        if (c->json)
            cli_print_json(json_incref(answer));
        else
            print(answer);
    }
    json_decref(answer);
    api_close(&a);
    return e.code == ERR_OK ? CLI_OK : cli_fail(c, &e);
}

static enum err_code read_list(struct api *a, const char *path, bool paged, json_t **all,
                               struct err *e)
{
    if (!paged)
        return api_call(a, "GET", path, NULL, all, e);
    *all = json_array();
    return api_list_all(a, path, API_LIST_PAGES_MAX, *all, e);
}

static void print_list(const struct cli *c, json_t *all, const char *key,
                       void (*print)(const json_t *all))
{
    json_t *item;
    size_t i;

    if (c->json)
        cli_print_json(json_incref(all));
    else if (cli_flag(c, "quiet"))
        json_array_foreach (all, i, item)
            puts(cli_text(item, key));
    else
        print(all);
}

int show_list(struct cli *c, const char *path, bool paged, const char *key,
              void (*print)(const json_t *all))
{
    struct err e = {.code = ERR_OK};
    json_t *all = NULL;
    struct api a;

    if (api_open(&a, c, &e) != ERR_OK)
        return cli_fail(c, &e);
    if (read_list(&a, path, paged, &all, &e) == ERR_OK)
        print_list(c, all, key, print);
    json_decref(all);
    api_close(&a);
    return e.code == ERR_OK ? CLI_OK : cli_fail(c, &e);
}

void show_made(const struct cli *c, json_t *made, const char *key)
{
    if (c->json)
        cli_print_json(json_incref(made));
    else
        puts(cli_text(made, key));
}

int show_posted(struct cli *c, const char *path, json_t *body,
                void (*print)(const struct cli *c, const json_t *answer))
{
    struct err e = {.code = ERR_OK};
    json_t *answer = NULL;
    struct api a;

    if (api_open(&a, c, &e) == ERR_OK) {
        if (api_call(&a, "POST", path, body, &answer, &e) == ERR_OK && !c->json)
            print(c, answer);
        if (answer && c->json)
            cli_print_json(json_incref(answer));
        json_decref(answer);
        api_close(&a);
    }
    json_decref(body);
    return e.code == ERR_OK ? CLI_OK : cli_fail(c, &e);
}
