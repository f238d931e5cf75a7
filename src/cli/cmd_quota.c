/* `tenant quota` and `tenant usage`: amounts are read here ("64M", "5", "none") and sent as
 * numbers; the server alone knows which quotas there are and what they allow. Each command is
 * one request, and what it prints comes from the answer. */

#include "cli/commands.h"

#include <errno.h>
#include <string.h>

#define PATH_SIZE 192

/* "64M", "5", "none" as JSON; NULL: it is none of these. */
static json_t *read_amount(const char *text)
{
    static const char suffixes[] = "KMGT";
    unsigned long long n;
    const char *suffix;
    char *end;

    if (strcmp(text, "none") == 0)
        return json_null();
    errno = 0;
    n = strtoull(text, &end, 10);
    if (errno || end == text || text[0] < '0' || text[0] > '9' || n > INT64_MAX / 2)
        return NULL;
    suffix = *end ? strchr(suffixes, *end) : NULL;
    if (*end && (!suffix || end[1]))
        return NULL;
    for (const char *s = suffixes; suffix && s <= suffix; s++)
        n = n > INT64_MAX / 2 / 1024 ? INT64_MAX : n * 1024;
    return n > INT64_MAX / 2 ? NULL : json_integer((json_int_t)n);
}

/* The operands after the first, NAME=AMOUNT; NULL: it was complained of. */
static json_t *read_changes(struct cli *c, int *status)
{
    json_t *out = json_object();

    for (int i = 1; i < c->operand_count; i++) {
        const char *equals = strchr(c->operands[i], '=');
        json_t *amount = equals ? read_amount(equals + 1) : NULL;

        if (!amount) {
            json_decref(out);
            *status = cli_usage(
                c,
                "\"%s\" is no quota: give NAME=NUMBER (K, M, G, T are powers of 1024) or NAME=none",
                c->operands[i]);
            return NULL;
        }
        json_object_setn_new(out, c->operands[i], (size_t)(equals - c->operands[i]), amount);
    }
    return out;
}

static void print_quotas(const json_t *all)
{
    static const char *const heads[] = {"QUOTA", "AT MOST", "USED"};
    struct table *t = table_new(heads, ARRAY_SIZE(heads));
    const char *name;
    json_t *most;

    json_object_foreach (json_object_get(all, "quota"), name, most) {
        const json_t *used = json_object_get(json_object_get(all, "used"), name);

        table_cell(t, "%s", name);
        if (json_is_integer(most))
            table_cell(t, "%lld", (long long)json_integer_value(most));
        else
            table_cell(t, "-");
        table_cell(t, "%lld", (long long)json_integer_value(used));
    }
    table_print(t, stdout);
    table_free(t);
}

int cmd_tenant_quota(struct cli *c)
{
    json_t *changes = NULL, *answer = NULL;
    struct err e = {.code = ERR_OK};
    char path[PATH_SIZE];
    int status = CLI_OK;
    struct api a;

    if (!cli_is_plain_name(c->operands[0]))
        return cli_usage(c, "\"%s\" is not the name of a tenant", c->operands[0]);
    if (c->operand_count > 1 && !(changes = read_changes(c, &status)))
        return status;
    (void)snprintf(path, sizeof(path), "/cay/v1/tenants/%s/quota", c->operands[0]);
    if (api_open(&a, c, &e) == ERR_OK) {
        if (api_call(&a, changes ? "PATCH" : "GET", path, changes, &answer, &e) == ERR_OK) {
            if (c->json)
                cli_print_json(json_incref(answer));
            else
                print_quotas(answer);
        }
        json_decref(answer);
        api_close(&a);
    }
    json_decref(changes);
    return e.code == ERR_OK ? CLI_OK : cli_fail(c, &e);
}

static void print_usage(const json_t *hours)
{
    static const char *const heads[] = {"HOUR",     "CREATED", "PEAK",        "SANDBOX S",
                                        "PAUSED S", "CPU S",   "MEM GIB S",   "DISK GIB S",
                                        "COMMANDS", "BUILDS",  "IMAGES GIB S"};
    static const char *const numbers[] = {"created",           "peakSandboxes", "sandboxSeconds",
                                          "pausedSeconds",     "cpuSeconds",    "memoryGiBSeconds",
                                          "diskGiBSeconds",    "commands",      "builds",
                                          "templateGiBSeconds"};
    struct table *t = table_new(heads, ARRAY_SIZE(heads));
    const json_t *hour;
    size_t i;

    json_array_foreach (hours, i, hour) {
        table_cell(t, "%.13s", cli_text(hour, "hour"));
        for (size_t k = 0; k < ARRAY_SIZE(numbers); k++)
            table_cell(t, "%.0f", json_number_value(json_object_get(hour, numbers[k])));
    }
    table_print(t, stdout);
    table_free(t);
}

int cmd_tenant_usage(struct cli *c)
{
    const char *hours = cli_value(c, "hours");
    char path[PATH_SIZE];

    if (!cli_is_plain_name(c->operands[0]))
        return cli_usage(c, "\"%s\" is not the name of a tenant", c->operands[0]);
    if (hours && (!*hours || strlen(hours) > 3 || strspn(hours, "0123456789") != strlen(hours)))
        return cli_usage(c, "\"%s\" is not a number of hours", hours);
    (void)snprintf(path, sizeof(path), "/cay/v1/tenants/%s/usage?hours=%s", c->operands[0],
                   hours ? hours : "24");
    return show_answer(c, path, print_usage);
}
