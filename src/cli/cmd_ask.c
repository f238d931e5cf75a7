/* policy ask: the connections of a sandbox that wait for their owner's answer, and the answer. */
#include "cli/commands.h"
#include "cli/terminal.h"

#include <string.h>

static void print(const struct cli *c, json_t *answer)
{
    const json_t *list = json_object_get(answer, "asks"), *o;
    size_t i;

    if (c->json) {
        cli_print_json(answer);
        return;
    }
    json_array_foreach (list, i, o) {
        terminal_put(stdout, "", cli_text(o, "ask"));
        terminal_put(stdout, " ", cli_text(o, "name"));
        printf(":%d until %.19s\n", (int)json_integer_value(json_object_get(o, "port")),
               cli_text(o, "until"));
    }
    json_decref(answer);
}

static enum err_code ask(const struct cli *c, struct api *a, const char *id, struct err *e)
{
    json_t *body = NULL, *answer = NULL;
    char path[200];

    if (c->operand_count == 1) {
        snprintf(path, sizeof(path), "/cay/v1/sandboxes/%s/asks", id);
        if (api_call(a, "GET", path, NULL, &answer, e) == ERR_OK)
            print(c, answer);
        return e->code;
    }
    snprintf(path, sizeof(path), "/cay/v1/sandboxes/%s/asks/%.64s", id, c->operands[1]);
    body = json_pack("{s:s, s:s}", "answer", cli_flag(c, "yes") ? "yes" : "no", "for",
                     cli_flag(c, "always") ? "always" : "once");
    api_call(a, "POST", path, body, NULL, e);
    json_decref(body);
    return e->code;
}

/* An answer needs one of the two, and neither has a meaning without the question's id. */
static bool is_sound(const struct cli *c)
{
    bool answers = c->operand_count == 2;

    if (answers &&
        strspn(c->operands[1], "abcdefghijklmnopqrstuvwxyz0123456789") != strlen(c->operands[1]))
        return false;
    return cli_flag(c, "yes") + cli_flag(c, "no") == answers &&
           cli_flag(c, "once") + cli_flag(c, "always") <= answers;
}

int cmd_policy_ask(struct cli *c)
{
    struct err e = {.code = ERR_OK};
    struct api_sandbox s;
    struct api a;

    if (!is_sound(c)) {
        err_set(&e, ERR_INVALID,
                "an answer is: cay policy ask SANDBOX ASK --yes or --no, and perhaps --once or "
                "--always");
        return cli_fail(c, &e);
    }
    if (api_open(&a, c, &e) != ERR_OK)
        return cli_fail(c, &e);
    if (api_sandbox_open(&a, c->operands[0], &s, &e) == ERR_OK)
        ask(c, &a, s.id, &e);
    api_close(&a);
    return e.code == ERR_OK ? CLI_OK : cli_fail(c, &e);
}
