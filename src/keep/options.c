/* cay-keep's options: one table of rows (keep.h says what they mean); strings point into argv.
 * main() calls options_parse once. --privd-arg, --cayd-arg and --egress-arg are collected in
 * their order and handed on unread: each daemon checks its own. Values that are not given are
 * derived later (prepare.c), so that a default has one place. */

#include "keep/options.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum kind {
    KIND_TEXT,
    KIND_PATH,
    KIND_NUMBER,
    KIND_FLAG,
    KIND_PRIVD_ARG,
    KIND_CAYD_ARG,
    KIND_EGRESS_ARG
};

struct option_row {
    const char *name;
    enum kind kind;
    size_t offset;
    int64_t min, max;
    const char *meta, *help;
};

#define AT(field) offsetof(struct options, field)

static const struct option_row rows[] = {
    {"listen-address", KIND_TEXT, AT(listen_address), 0, 0, "ADDR",
     "numeric address to listen on, or localhost for 127.0.0.1 and ::1 (127.0.0.1)"},
    {"listen-port", KIND_NUMBER, AT(listen_port), 0, 65535, "PORT", "its port (3000)"},
    {"state-dir", KIND_PATH, AT(state_dir), 0, 0, "DIR", "what lasts (/var/lib/cay)"},
    {"run-dir", KIND_PATH, AT(run_dir), 0, 0, "DIR", "what a boot ends (/run/cay)"},
    {"program-dir", KIND_PATH, AT(program_dir), 0, 0, "DIR",
     "where the daemons are (where cay-keep is)"},
    {"cayd", KIND_PATH, AT(cayd), 0, 0, "PATH", "cayd, if elsewhere"},
    {"privd", KIND_PATH, AT(privd), 0, 0, "PATH", "cay-privd, if elsewhere"},
    {"job", KIND_PATH, AT(job), 0, 0, "PATH", "cay-job, if elsewhere"},
    {"agent", KIND_PATH, AT(agent), 0, 0, "PATH", "cay-init, if elsewhere"},
    {"egress", KIND_PATH, AT(egress), 0, 0, "PATH", "cay-egress, if elsewhere"},
    {"log-file", KIND_PATH, AT(log_file), 0, 0, "PATH",
     "standard error of all, appended to (cay-keep's own)"},
    {"user", KIND_TEXT, AT(user), 0, 0, "NAME", "whom cayd runs as (cay)"},
    {"egress-user", KIND_TEXT, AT(egress_user), 0, 0, "NAME",
     "whom cay-egress runs as (cay-egress)"},
    {"egress-processes", KIND_NUMBER, AT(egress_processes), 0, OPTIONS_EGRESS_MAX, "N",
     "processes of cay-egress (0: nothing leaves a sandbox)"},
    {"egress-key-file", KIND_PATH, AT(egress_key_file), 0, 0, "PATH",
     "what credentials are sealed with, opened for cay-egress at each of its starts"},
    {"tls-cert", KIND_PATH, AT(tls_cert), 0, 0, "PATH",
     "certificate chain in PEM, opened for cayd at each of its starts"},
    {"tls-key", KIND_PATH, AT(tls_key), 0, 0, "PATH", "its private key, likewise"},
    {"uid-first", KIND_NUMBER, AT(uid_first), 65536, UINT32_MAX, "UID",
     "first host id of sandboxes, which no other server may use meanwhile"},
    {"uid-ranges", KIND_NUMBER, AT(uid_ranges), 0, 65535, "N",
     "ranges of 65,536 ids from there on (0: not looked after)"},
    {"priority", KIND_NUMBER, AT(priority), 0, 20, "N",
     "how far before other programs the daemons are, as a nice value below 0 (10)"},
    {"privd-arg", KIND_PRIVD_ARG, 0, 0, 0, "ARG", "an argument for cay-privd; may be repeated"},
    {"cayd-arg", KIND_CAYD_ARG, 0, 0, 0, "ARG",
     "an argument for cayd; may be repeated; the same as after --"},
    {"egress-arg", KIND_EGRESS_ARG, 0, 0, 0, "ARG", "an argument for cay-egress; may be repeated"},
    {"ready-timeout-ms", KIND_NUMBER, AT(ready_timeout_ms), 100, 3600000, "MS",
     "how long the start may take (60000)"},
    {"daemon", KIND_FLAG, AT(daemon), 0, 0, NULL, "go to the background when all is ready"},
};

static void print_help(void)
{
    printf("usage: cay-keep [options] [-- arguments for cayd]\n\n"
           "Starts cay-privd, cayd and cay-egress, keeps the listener, starts them again. See "
           "cay-keep(8).\n\n");
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        printf("  --%s%s%s\n        %s\n", rows[i].name, rows[i].meta ? "=" : "",
               rows[i].meta ? rows[i].meta : "", rows[i].help);
}

static int refuse(const struct option_row *row, const char *text, const char *needed)
{
    fprintf(stderr, "cay-keep: --%s=%s: %s is needed\n", row->name, text, needed);
    return -EINVAL;
}

static int parse_number(const struct option_row *row, const char *text, int64_t *out)
{
    char needed[64], *end;
    long long n;

    errno = 0;
    n = strtoll(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || n < row->min || n > row->max) {
        snprintf(needed, sizeof(needed), "a number from %lld to %lld", (long long)row->min,
                 (long long)row->max);
        return refuse(row, text, needed);
    }
    *out = n;
    return 0;
}

static int add_arg(const struct option_row *row, const char *text, const char **args, size_t *n)
{
    if (*n == OPTIONS_ARGS_MAX)
        return refuse(row, text, "a shorter list");
    args[(*n)++] = text;
    return 0;
}

static int parse_value(const struct option_row *row, const char *text, struct options *o)
{
    void *field = (char *)o + row->offset;

    switch (row->kind) {
    case KIND_NUMBER: return parse_number(row, text, field);
    case KIND_PRIVD_ARG: return add_arg(row, text, o->privd_args, &o->n_privd_args);
    case KIND_CAYD_ARG: return add_arg(row, text, o->cayd_args, &o->n_cayd_args);
    case KIND_EGRESS_ARG: return add_arg(row, text, o->egress_args, &o->n_egress_args);
    case KIND_PATH:
        if (*text != '/' || strlen(text) > 200)
            return refuse(row, text, "an absolute path of at most 200 bytes");
        break;
    case KIND_TEXT:
        if (!*text || strlen(text) > 63)
            return refuse(row, text, "a value of at most 63 bytes");
        break;
    case KIND_FLAG: break;
    }
    *(const char **)field = text;
    return 0;
}

static int parse_one(const char *arg, struct options *o)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        size_t n = strlen(rows[i].name);

        if (strncmp(arg, "--", 2) != 0 || strncmp(arg + 2, rows[i].name, n) != 0)
            continue;
        if (rows[i].kind == KIND_FLAG && arg[2 + n] == '\0') {
            *(bool *)((char *)o + rows[i].offset) = true;
            return 0;
        }
        if (rows[i].kind != KIND_FLAG && arg[2 + n] == '=')
            return parse_value(&rows[i], arg + 3 + n, o);
    }
    fprintf(stderr, "cay-keep: unknown option %s (see --help)\n", arg);
    return -EINVAL;
}

static int parse_rest(int argc, char **argv, struct options *o)
{
    static const struct option_row rest = {.name = "cayd-arg"};
    int r = 0;

    for (int i = 0; i < argc && r == 0; i++)
        r = add_arg(&rest, argv[i], o->cayd_args, &o->n_cayd_args);
    return r;
}

int options_parse(int argc, char **argv, struct options *out)
{
    struct options o = {.listen_address = "127.0.0.1",
                        .listen_port = 3000,
                        .ready_timeout_ms = 60000,
                        .priority = 10,
                        .state_dir = "/var/lib/cay",
                        .run_dir = "/run/cay",
                        .user = "cay",
                        .egress_user = "cay-egress"};
    int r = 0;

    for (int i = 1; i < argc && r == 0; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            print_help();
            return 1;
        }
        if (strcmp(argv[i], "--version") == 0) {
            printf("cay-keep %s\n", CAY_VERSION);
            return 1;
        }
        if (strcmp(argv[i], "--") == 0) {
            r = parse_rest(argc - i - 1, argv + i + 1, &o);
            break;
        }
        r = parse_one(argv[i], &o);
    }
    if (r == 0 && !o.tls_cert != !o.tls_key) {
        fprintf(stderr, "cay-keep: --tls-cert and --tls-key are needed together\n");
        r = -EINVAL;
    }
    if (r == 0)
        *out = o;
    return r;
}
