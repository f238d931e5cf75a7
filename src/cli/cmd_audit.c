/* `audit [-f]` and `audit verify`: the log of what left sandboxes and what did not. Following is
 * polling: each request asks for what is not older than the newest record printed, and records
 * of that millisecond that were printed already are left out by their "prev", which no other
 * record has. `verify` prints one line for each process of cay-egress and fails when one log is
 * broken. */

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/terminal.h"

#include <string.h>
#include <unistd.h>

#define FOLLOW_LIMIT "10000" /* the most that the server gives at a time */
#define SEEN_MAX     512     /* records of the newest millisecond that were printed */

/* Where to, and where it was sent instead. */
static void print_destination(const json_t *r)
{
    bool by_name = *cli_text(r, "rerouted_name") != 0;

    terminal_put(stdout, " ", cli_text(r, *cli_text(r, "name") ? "name" : "address"));
    printf(":%d", (int)json_integer_value(json_object_get(r, "port")));
    if (*cli_text(r, "said"))
        terminal_put(stdout, " as ", cli_text(r, "said"));
    if (!*cli_text(r, "rerouted"))
        return;
    terminal_put(stdout, " by way of ", cli_text(r, by_name ? "rerouted_name" : "rerouted"));
    printf(":%d", (int)json_integer_value(json_object_get(r, "rerouted_port")));
}

/* A second record of a request, or the end of a renewal, is told apart by this alone. */
static void print_outcome(const json_t *r)
{
    const char *outcome = cli_text(r, "outcome"), *reason = cli_text(r, "reason");

    if (!*outcome || strcmp(outcome, "connected") == 0)
        return;
    terminal_put(stdout, " ", outcome);
    if (*reason)
        terminal_put(stdout, ": ", reason);
}

static void print_record(const struct cli *c, const json_t *r)
{
    const char *credential = cli_text(r, "credential");

    if (c->json) {
        json_dumpf(r, stdout, JSON_COMPACT | terminal_json_flags(stdout));
        putchar('\n');
        return;
    }
    if (json_object_get(r, "count")) {
        printf("%.23s %-21.21s %-10s %-5s %lld more, not recorded one by one\n",
               cli_text(r, "time"), cli_text(r, "sandbox"), cli_text(r, "event"),
               cli_text(r, "verdict"), (long long)json_integer_value(json_object_get(r, "count")));
        return;
    }
    printf("%.23s %-21.21s %-10s %-5s", cli_text(r, "time"), cli_text(r, "sandbox"),
           cli_text(r, "event"), cli_text(r, "verdict"));
    print_destination(r);
    if (json_object_get(r, "command"))
        printf(" (command %d)", (int)json_integer_value(json_object_get(r, "command")));
    if (*cli_text(r, "method")) {
        terminal_put(stdout, " ", cli_text(r, "method"));
        terminal_put(stdout, " ", cli_text(r, "path"));
    }
    if (*cli_text(r, "rule")) {
        terminal_put(stdout, " [", cli_text(r, "rule"));
        putchar(']');
    }
    if (json_is_true(json_object_get(r, "warned")))
        printf(" (would be denied)");
    if (*credential)
        terminal_put(stdout, " with ", credential);
    print_outcome(r);
    if (json_object_get(r, "duration_ms"))
        printf(" up %lld down %lld bytes, %lld ms",
               (long long)json_integer_value(json_object_get(r, "bytes_up")),
               (long long)json_integer_value(json_object_get(r, "bytes_down")),
               (long long)json_integer_value(json_object_get(r, "duration_ms")));
    putchar('\n');
}

/* Records of the newest millisecond that were printed, known by "prev", which no two records
 * share. */
struct position {
    char time[64];
    json_t *seen; /* set of "prev" */
};

static void step(const struct cli *c, struct position *at, const json_t *records)
{
    json_t *r;
    size_t i;

    json_array_foreach (records, i, r) {
        const char *time = cli_text(r, "time"), *prev = cli_text(r, "prev");

        if (strcmp(time, at->time) == 0 && json_object_get(at->seen, prev))
            continue;
        print_record(c, r);
        if (strcmp(time, at->time) != 0) {
            snprintf(at->time, sizeof(at->time), "%s", time);
            json_object_clear(at->seen);
        }
        if (json_object_size(at->seen) < SEEN_MAX)
            json_object_set_new(at->seen, prev, json_true());
    }
    fflush(stdout);
}

/* As it was given, unless value says more. */
static int add_filter(char *path, size_t size, const struct cli *c, const char *name,
                      const char *value)
{
    value = value ? value : cli_value(c, name);
    return value ? cli_add_query(path, size, name, value) : 0;
}

static enum err_code follow(const struct cli *c, struct api *a, const char *filters, struct err *e)
{
    struct position at = {.seen = json_object()};
    bool again = cli_flag(c, "follow");
    char path[512];

    snprintf(path, sizeof(path), "%s", filters);
    add_filter(path, sizeof(path), c, "since", NULL);
    add_filter(path, sizeof(path), c, "limit", NULL);
    do {
        json_t *records = NULL;

        if (api_call(a, "GET", path, NULL, &records, e) != ERR_OK)
            break;
        step(c, &at, records);
        json_decref(records);
        if (!again)
            break;
        sleep(1);
        snprintf(path, sizeof(path), "%s", filters);
        if (at.time[0])
            add_filter(path, sizeof(path), c, "since", at.time);
        add_filter(path, sizeof(path), c, "limit", FOLLOW_LIMIT);
    } while (again);
    json_decref(at.seen);
    return e->code;
}

int cmd_audit(struct cli *c)
{
    const char *sandbox = cli_value(c, "sandbox");
    struct err e = {.code = ERR_OK};
    char filters[256] = "/cay/v1/audit";
    struct api_sandbox s;
    struct api a;

    if (add_filter(filters, sizeof(filters), c, "verdict", NULL) < 0)
        return cli_usage(c, "--verdict is allow or deny");
    if (api_open(&a, c, &e) != ERR_OK)
        return cli_fail(c, &e);
    if (sandbox &&
        strlen(sandbox) < 21) { /* the beginning of one that lives; ended ones by all of it */
        if (api_sandbox_open(&a, sandbox, &s, &e) == ERR_OK)
            sandbox = s.id;
    }
    if (e.code == ERR_OK && sandbox &&
        add_filter(filters, sizeof(filters), c, "sandbox", sandbox) < 0)
        cli_wrong_option(&e, "--sandbox: \"%s\" is no sandbox", sandbox);
    if (e.code == ERR_OK)
        follow(c, &a, filters, &e);
    api_close(&a);
    return e.code == ERR_OK ? CLI_OK : cli_fail(c, &e);
}

static bool print_check(const json_t *r, unsigned i)
{
    bool ok = json_is_true(json_object_get(r, "ok"));
    long long lines = (long long)json_integer_value(json_object_get(r, "lines"));

    if (ok)
        printf("cay-egress %u: %lld records, each as it was written\n", i, lines);
    else
        printf("cay-egress %u: BROKEN at line %lld of %s: changed, taken out or put in\n", i,
               (long long)json_integer_value(json_object_get(r, "broken_line")),
               cli_text(r, "file"));
    if (json_integer_value(json_object_get(r, "rotated_out")) > 0)
        printf("cay-egress %u: %lld older records made room for newer ones of their tenants\n", i,
               (long long)json_integer_value(json_object_get(r, "rotated_out")));
    if (json_integer_value(json_object_get(r, "cut_lines")) > 0)
        printf("cay-egress %u: %lld lines were cut short by a crash\n", i,
               (long long)json_integer_value(json_object_get(r, "cut_lines")));
    return ok;
}

int cmd_audit_verify(struct cli *c)
{
    struct err e = {.code = ERR_OK};
    json_t *all = NULL, *r;
    bool ok = true;
    struct api a;
    size_t i;

    if (api_open(&a, c, &e) != ERR_OK)
        return cli_fail(c, &e);
    if (api_call(&a, "GET", "/cay/v1/audit/verify", NULL, &all, &e) == ERR_OK) {
        if (c->json)
            cli_print_json(json_incref(all));
        json_array_foreach (all, i, r)
            ok &= c->json ? json_is_true(json_object_get(r, "ok")) : print_check(r, (unsigned)i);
    }
    json_decref(all);
    api_close(&a);
    if (e.code != ERR_OK)
        return cli_fail(c, &e);
    return ok ? CLI_OK : CLI_FAILED;
}
