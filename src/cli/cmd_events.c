/* `events [-f]`: the events of sandboxes, as the server reports them. A follower reads lines of
 * JSON until the connection ends, and then asks again from the last id that it printed, TRIES_MAX
 * times a second apart: a restart of the server loses nothing that its ring still has. Without -f
 * one answer is printed. */

#include "cli/commands.h"
#include "cli/lines.h"
#include "cli/terminal.h"

#include <string.h>
#include <unistd.h>

#define LINE_MAX_BYTES 65536u
#define TRIES_MAX      30 /* a second apart, for a server that is being restarted */

struct watch {
    const struct cli *cli;
    long long last_id; /* to go on from; -1: none was told */
};

static void print_violation(const json_t *o)
{
    terminal_put(stdout, " ", cli_text(o, "name"));
    printf(":%d", (int)json_integer_value(json_object_get(o, "port")));
    if (*cli_text(o, "method")) {
        terminal_put(stdout, " ", cli_text(o, "method"));
        terminal_put(stdout, " ", cli_text(o, "path"));
    }
    if (json_object_get(o, "command"))
        printf(" (command %d)", (int)json_integer_value(json_object_get(o, "command")));
    terminal_put(stdout, ": ", cli_text(o, "reason"));
}

static void print_ask(const json_t *o)
{
    terminal_put(stdout, " ", cli_text(o, "ask"));
    terminal_put(stdout, ": may it reach ", cli_text(o, "name"));
    printf(":%d, until %.19s?", (int)json_integer_value(json_object_get(o, "port")),
           cli_text(o, "until"));
}

/* The directory itself is named where none of it was run. */
static void print_hook(const json_t *o)
{
    const char *hook = cli_text(o, "hook"), *name = cli_text(o, "name");
    long long failed = json_integer_value(json_object_get(o, "failed"));
    size_t n = strlen(hook);
    bool directory = strncmp(name, hook, n) == 0 && strcmp(name + n, ".d") == 0;

    terminal_put(stdout, " ", directory ? name : hook);
    if (*name && !directory)
        terminal_put(stdout, ".d/", name);
    terminal_put(stdout, ": ", cli_text(o, "error"));
    if (failed > 1)
        printf(" (%lld failed)", failed);
}

/* Of what happened to a sandbox or a snapshot: "api, files", "host", "2 forks". */
static void print_details(const json_t *o)
{
    static const char *const keys[] = {"reason", "tier", "templateID", "snapshot", "name"};
    long long failed = json_integer_value(json_object_get(o, "failed"));
    size_t forks = json_array_size(json_object_get(o, "forks"));
    const char *between = " ";

    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        const char *text = cli_text(o, keys[i]);

        if (!*text || (strcmp(keys[i], "tier") == 0 && strcmp(text, "frozen") == 0))
            continue;
        terminal_put(stdout, between, text);
        between = ", ";
    }
    if (forks)
        printf(" %zu fork%s", forks, forks == 1 ? "" : "s");
    if (failed > 0)
        printf("%s %lld failed", forks ? "," : "", failed);
    if (*cli_text(o, "memoryError"))
        terminal_put(stdout, ": ", cli_text(o, "memoryError"));
}

static void print_event(const struct cli *c, const json_t *o)
{
    const json_t *count = json_object_get(o, "count");
    const char *sandbox = cli_text(o, "sandbox");

    if (c->json) {
        json_dumpf(o, stdout, JSON_COMPACT | terminal_json_flags(stdout));
        putchar('\n');
        return;
    }
    printf("%.23s %-21.21s %s", cli_text(o, "time"), *sandbox ? sandbox : "-", cli_text(o, "type"));
    if (strcmp(cli_text(o, "type"), "violation") == 0)
        print_violation(o);
    else if (strcmp(cli_text(o, "type"), "ask") == 0)
        print_ask(o);
    else if (strcmp(cli_text(o, "type"), "sandbox.hook_failed") == 0)
        print_hook(o);
    else if (json_is_integer(count)) {
        printf(" %lld events", (long long)json_integer_value(count));
        terminal_put(stdout, ": ", cli_text(o, "reason"));
    } else
        print_details(o);
    putchar('\n');
}

static bool take_line(void *arg, const json_t *o)
{
    struct watch *w = arg;

    if (json_is_integer(json_object_get(o, "id")))
        w->last_id = (long long)json_integer_value(json_object_get(o, "id"));
    if (strcmp(cli_text(o, "type"), "heartbeat") != 0) {
        print_event(w->cli, o);
        fflush(stdout);
    }
    return true;
}

/* Goes on where it was after a restart of the server, until that is away for too long. */
static enum err_code watch(struct watch *w, struct api *a, const char *filters, struct err *e)
{
    bool again = cli_flag(w->cli, "follow");
    const char *since = cli_value(w->cli, "since");
    char path[512], from[32];

    for (int tries = 0; tries < TRIES_MAX; tries++) {
        long long before = w->last_id;

        (void)snprintf(from, sizeof(from), "%lld", before);
        (void)snprintf(path, sizeof(path), "%s", filters);
        if (cli_add_query(path, sizeof(path), "follow", again ? "1" : "0") < 0 ||
            cli_add_query(path, sizeof(path), "since",
                          before >= 0 ? from
                          : since     ? since
                                      : "0") < 0)
            return cli_wrong_option(e, "--since: \"%.64s\" is no event's id", since);
        e->code = ERR_OK;
        if (api_lines(a, path, NULL, LINE_MAX_BYTES, take_line, w, e) == ERR_OK && !again)
            return ERR_OK;
        if (!again || (e->code != ERR_OK && e->code != ERR_UNAVAILABLE) || w->last_id < 0)
            return e->code;
        if (w->last_id != before)
            tries = 0;
        sleep(1);
    }
    return e->code != ERR_OK
               ? e->code
               : err_set(e, ERR_UNAVAILABLE, "the server ends the stream again and again");
}

/* The beginning of the id of one that lives, or the whole id of any. */
static enum err_code add_sandbox(struct api *a, const char *given, char *path, size_t size,
                                 struct err *e)
{
    struct api_sandbox s;

    if (strlen(given) < IDS_SANDBOX_LEN) {
        if (api_sandbox_open(a, given, &s, e) != ERR_OK)
            return e->code;
        given = s.id;
    }
    return cli_add_query(path, size, "sandbox", given) == 0
               ? ERR_OK
               : cli_wrong_option(e, "--sandbox: \"%.64s\" is no sandbox", given);
}

int cmd_events(struct cli *c)
{
    const char *sandbox = cli_value(c, "sandbox"), *type = cli_value(c, "type");
    struct watch w = {.cli = c, .last_id = -1};
    struct err e = {.code = ERR_OK};
    char filters[256] = "/cay/v1/events";
    struct api a;

    if (type && cli_add_query(filters, sizeof(filters), "type", type) < 0)
        return cli_usage(c, "--type: names of events, with commas between");
    if (api_open(&a, c, &e) != ERR_OK)
        return cli_fail(c, &e);
    if (!sandbox || add_sandbox(&a, sandbox, filters, sizeof(filters), &e) == ERR_OK)
        watch(&w, &a, filters, &e);
    api_close(&a);
    return e.code == ERR_OK ? CLI_OK : cli_fail(c, &e);
}
