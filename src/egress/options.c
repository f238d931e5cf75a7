/* The command line of cay-egress, read once at its start by main.c. Settings come first
 * (settings_load_daemon reads --config and takes --SECTION-KEY=VALUE out of argv), then the
 * program's own options; what cay-keep always gives must be there. A mistake ends the program with
 * KEEP_EXIT_OPTIONS (contract/keep.h). */

#include "egress/options.h"

#include "base/err.h"
#include "base/log.h"
#include "base/util.h"
#include "contract/keep.h"

#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct option long_options[] = {
    {"listen-fd", required_argument, NULL, 'l'}, {"ready-fd", required_argument, NULL, 'r'},
    {"privd", required_argument, NULL, 'p'},     {"peer-uid", required_argument, NULL, 'u'},
    {"shard", required_argument, NULL, 's'},     {"seal-key-fd", required_argument, NULL, 'k'},
    {"config", required_argument, NULL, 'c'},    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'v'},         {0},
};

static void print_help(void)
{
    printf("cay-egress: the way out of sandboxes; started by cay-keep.\n\n"
           "  --listen-fd=N   descriptor of the listening unix socket that cayd speaks to\n"
           "  --ready-fd=N    descriptor to write one byte to when it serves\n"
           "  --privd=PATH    cay-privd's socket for it\n"
           "  --peer-uid=UID  cayd's user\n"
           "  --shard=I/N     serves slots whose number is I modulo N (0/1)\n"
           "  --seal-key-fd=N descriptor of the 32 bytes that credentials are sealed with; without "
           "it\n"
           "                  a file in the state directory\n"
           "  --config=FILE   settings; without it only options count\n\n");
    config_print_help(settings_keys, stdout);
}

NORETURN PRINTF(1, 2) static void wrong(const char *fmt, ...)
{
    char text[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    log_error("%s; see cay-egress --help", text);
    exit(KEEP_EXIT_OPTIONS);
}

static int parse_fd(const char *text)
{
    int fd = keep_parse_fd(text);

    if (fd < 0)
        wrong("\"%s\" is not an open descriptor", text);
    return fd;
}

static void parse_shard(const char *text, struct options *o)
{
    int used = 0;

    if (sscanf(text, "%5" SCNu32 "/%5" SCNu32 "%n", &o->shard, &o->shards, &used) != 2 ||
        text[used] || o->shards == 0 || o->shard >= o->shards)
        wrong("--shard: found \"%s\", allowed is I/N with I less than N", text);
}

static void read_settings(int *argc, char **argv, struct options *o)
{
    struct err e;

    if (settings_load_daemon(&o->settings, argc, argv, &e) != ERR_OK)
        wrong("%s", e.text);
}

static void parse_own(int argc, char **argv, struct options *o)
{
    int c;

    opterr = 0;
    while ((c = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
        switch (c) {
        case 'l': o->listen_fd = parse_fd(optarg); break;
        case 'r': o->ready_fd = parse_fd(optarg); break;
        case 'p': o->privd = optarg; break;
        case 'u': o->peer_uid = (uid_t)strtoul(optarg, NULL, 10); break;
        case 'k': o->seal_key_fd = parse_fd(optarg); break;
        case 's': parse_shard(optarg, o); break;
        case 'c': break;
        case 'h': print_help(); exit(0);
        case 'v': printf("cay-egress %s\n", CAY_VERSION); exit(0);
        default: wrong("unknown option or missing value: %s", argv[optind - 1]);
        }
    }
    if (optind < argc)
        wrong("unexpected argument: %s", argv[optind]);
}

void options_parse(int argc, char **argv, struct options *o)
{
    *o = (struct options){
        .listen_fd = -1, .ready_fd = -1, .seal_key_fd = -1, .shards = 1, .peer_uid = (uid_t)-1};
    read_settings(&argc, argv, o);
    parse_own(argc, argv, o);
    if (o->listen_fd < 0 || !o->privd || o->peer_uid == (uid_t)-1)
        wrong("--listen-fd, --privd and --peer-uid are needed: cay-egress is started by cay-keep");
}
