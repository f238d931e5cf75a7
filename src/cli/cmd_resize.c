/* `resize`: one request, whose answer tells what the sandbox has then. */

#include "cli/commands.h"

#include <string.h>

#define CPU_MAX 1000000u

static const char *const sizes[][2] = {{"memory", "memoryBytes"}, {"disk", "diskBytes"}};

/* "2", "0.5" in thousandths; 0: it is none of these. */
static uint32_t read_cpu(const char *text)
{
    uint32_t milli = 0, scale = 1000;
    size_t n = strspn(text, "0123456789");
    const char *rest = text[n] == '.' ? text + n + 1 : text + n;
    size_t more = strspn(rest, "0123456789");

    if (n == 0 || n > 4 || more > 3 || rest[more] != '\0' || (text[n] == '.' && more == 0))
        return 0;
    for (size_t i = 0; i < n; i++)
        milli = milli * 10 + (uint32_t)(text[i] - '0');
    milli *= 1000;
    for (size_t i = 0; i < more; i++)
        milli += (uint32_t)(rest[i] - '0') * (scale /= 10);
    return milli <= CPU_MAX ? milli : 0;
}

/* A new reference; NULL after a usage error. */
static json_t *read_request(struct cli *c)
{
    const char *cpu = cli_value(c, "cpu");
    uint32_t milli = cpu ? read_cpu(cpu) : 0;
    json_t *body = json_object();

    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        const char *text = cli_value(c, sizes[i][0]);
        uint64_t n = 0;

        if (text && (config_parse_bytes(text, &n) < 0 || n == 0 || n > INT64_MAX)) {
            cli_usage(c, "--%s: \"%s\" is not a size such as 512M or 2G", sizes[i][0], text);
            json_decref(body);
            return NULL;
        }
        if (text)
            json_object_set_new(body, sizes[i][1], json_integer((json_int_t)n));
    }
    if (cpu)
        json_object_set_new(body, "cpuMilli", json_integer(milli));
    if ((!cpu || milli > 0) && json_object_size(body) > 0)
        return body;
    json_decref(body);
    if (cpu)
        cli_usage(c, "--cpu: \"%s\" is not a number of processors such as 2 or 0.5", cpu);
    else
        cli_usage(c, "give at least one of --memory, --cpu and --disk");
    return NULL;
}

static void print_limits(const json_t *now)
{
    char memory[32], disk[32];

    table_bytes((uint64_t)json_integer_value(json_object_get(now, "memoryBytes")), memory,
                sizeof(memory));
    table_bytes((uint64_t)json_integer_value(json_object_get(now, "diskBytes")), disk,
                sizeof(disk));
    printf("memory %s, processors %g, disk %s\n", memory,
           (double)json_integer_value(json_object_get(now, "cpuMilli")) / 1e3, disk);
}

int cmd_resize(struct cli *c)
{
    json_t *body = read_request(c), *now = NULL;
    struct err e = {.code = ERR_OK};
    struct api_sandbox s;
    struct api a;
    char path[128];

    if (!body)
        return CLI_USAGE;
    if (api_open(&a, c, &e) != ERR_OK) {
        json_decref(body);
        return cli_fail(c, &e);
    }
    if (api_sandbox_open(&a, c->operands[0], &s, &e) == ERR_OK) {
        (void)snprintf(path, sizeof(path), "/cay/v1/sandboxes/%s/resize", s.id);
        api_call(&a, "POST", path, body, &now, &e);
    }
    if (e.code == ERR_OK && c->json)
        cli_print_json(json_incref(now));
    else if (e.code == ERR_OK)
        print_limits(now);
    json_decref(now);
    json_decref(body);
    api_close(&a);
    return e.code == ERR_OK ? CLI_OK : cli_fail(c, &e);
}
