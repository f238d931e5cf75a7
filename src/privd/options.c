/* cay-privd's options: one table of rows, from argv alone as cay-keep gives them; no file is
 * read. main() calls options_parse before anything else is done. A value out of its row's range
 * is refused with the range; ranges of ids are checked together at the end, so that no sandbox
 * gets an id of the host's. Nothing here is cayd's: what cayd sends is checked by permit.c. */

#include "privd/options.h"

#include "base/test_bypass.h"
#include "contract/proto.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum kind { KIND_PATH, KIND_NUMBER32, KIND_NUMBER64, KIND_DISK, KIND_HOST_DIR, KIND_TEXT };

struct option_row {
    const char *name;
    enum kind kind;
    size_t offset;
    uint64_t min, max;
    const char *help;
};

_Static_assert(HOST_DIRS_MAX == PRIVSEP_HOST_DIRS_MAX && PRIVSEP_HOST_DIRS_MAX == 8,
               "an option for each, below");
_Static_assert(HOST_DIR_NAME_SIZE - 1 == PRIVSEP_OWNER_SIZE, "a name stands where an owner does");

#define AT(field) offsetof(struct options, field)
#define GIB       (1024ull * 1024 * 1024)

#define HOST_DIR(n)                                                \
    {                                                              \
        "host-dir-" #n, KIND_HOST_DIR, AT(host_dirs[n - 1]), 0, 0, \
            "NAME:PATH of a directory that sandboxes may read"     \
    }

static const struct option_row rows[] = {
    {"state-dir", KIND_PATH, AT(state_dir), 0, 0,
     "templates, layers, disk image (/var/lib/cay/privd)"},
    {"run-dir", KIND_PATH, AT(run_dir), 0, 0, "the channel's socket and the records (/run/cay)"},
    {"agent", KIND_PATH, AT(agent), 0, 0, "the cay-init binary"},
    {"job", KIND_PATH, AT(job), 0, 0, "the cay-job binary"},
    {"checkpoint", KIND_PATH, AT(checkpoint), 0, 0,
     "the cay-checkpoint binary (none: no memory is kept on the disk)"},
    {"seal", KIND_PATH, AT(seal), 0, 0, "the cay-seal binary (likewise)"},
    {"peer-uid", KIND_NUMBER32, AT(peer_uid), 0, UINT32_MAX - 1, "the user that may connect: cayd"},
    {"egress-uid", KIND_NUMBER32, AT(egress_uid), 1, UINT32_MAX - 1,
     "the user of cay-egress, which alone may take the sockets inside of sandboxes"},
    {"egress-processes", KIND_NUMBER32, AT(egress_processes), 0, EGRESS_PROCESSES_MAX,
     "processes of cay-egress (0)"},
    {"slots-max", KIND_NUMBER32, AT(slots_max), 1, RUNTIME_SLOTS_MAX,
     "most sandboxes at a time (1024)"},
    {"slots-ready", KIND_NUMBER32, AT(slots_ready), 0, 256, "slots made ahead (8)"},
    {"uid-base", KIND_NUMBER32, AT(uid_base), RUNTIME_UID_COUNT, UINT32_MAX,
     "first host uid of the sandboxes' ranges, a multiple of 65536 (1006632960)"},
    {"disk-backend", KIND_DISK, AT(disk), 0, 0, "auto, btrfs or memory (auto)"},
    {"disk-size", KIND_NUMBER64, AT(disk_bytes), GIB / 4, 64 * 1024 * GIB,
     "bytes of a disk image that has to be made (32 GiB)"},
    {"template-inodes", KIND_NUMBER32, AT(template_inodes), 0, 4194304,
     "where inode numbers of templates begin, beyond those of layers; 0: anywhere (1048576)"},
    {"archive-devices", KIND_NUMBER32, AT(archive_devices), 1, RUNTIME_ARCHIVE_DEVICES_MAX,
     "sandboxes at a time whose files lie on archives: loop devices (256)"},
    {"bucket", KIND_TEXT, AT(bucket.name), 0, 0, "of S3, for archives (none)"},
    {"bucket-endpoint", KIND_TEXT, AT(bucket.endpoint), 0, 0, "https://HOST of its server"},
    {"bucket-region", KIND_TEXT, AT(bucket.region), 0, 0, "which requests are signed with"},
    {"bucket-credentials", KIND_TEXT, AT(bucket.credentials), 0, 0, "file with the keys"},
    {"bucket-ca-file", KIND_TEXT, AT(bucket.ca_file), 0, 0, "authorities (the system's)"},
    {"exchange-key", KIND_PATH, AT(exchange_key), 0, 0,
     "file with the key of exported snapshots (the own key)"},
    HOST_DIR(1),
    HOST_DIR(2),
    HOST_DIR(3),
    HOST_DIR(4),
    HOST_DIR(5),
    HOST_DIR(6),
    HOST_DIR(7),
    HOST_DIR(8),
    {"ready-fd", KIND_NUMBER32, AT(ready_fd), 0, 1023, "where readiness is told"},
};

static void print_help(void)
{
    printf("usage: cay-privd [options]   (started by cay-keep)\n\n");
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        printf("  --%s=VALUE\n        %s\n", rows[i].name, rows[i].help);
}

static int parse_number(const struct option_row *row, const char *text, uint64_t *out)
{
    char *end;
    unsigned long long n;

    errno = 0;
    n = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || errno || n < row->min || n > row->max) {
        fprintf(stderr, "cay-privd: --%s=%s: a number from %llu to %llu is needed\n", row->name,
                text, (unsigned long long)row->min, (unsigned long long)row->max);
        return -EINVAL;
    }
    *out = n;
    return 0;
}

static int parse_disk(const char *text, enum runtime_disk *out)
{
    static const struct {
        const char *name;
        enum runtime_disk disk;
    } names[] = {{"auto", RUNTIME_DISK_AUTO},
                 {"btrfs", RUNTIME_DISK_BTRFS},
                 {"memory", RUNTIME_DISK_MEMORY}};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (strcmp(names[i].name, text) == 0) {
            *out = names[i].disk;
            return 0;
        }
    }
    fprintf(stderr, "cay-privd: --disk-backend=%s: auto, btrfs or memory is needed\n", text);
    return -EINVAL;
}

static int parse_path(const struct option_row *row, const char *text, const char **out)
{
    if (text[0] != '/' || strlen(text) >= OPTIONS_PATH_MAX) {
        fprintf(stderr, "cay-privd: --%s: an absolute path of less than %d bytes is needed\n",
                row->name, OPTIONS_PATH_MAX);
        return -EINVAL;
    }
    *out = text;
    return 0;
}

static int parse_host_dir(const struct option_row *row, const char *text, struct host_dir *out)
{
    const char *wrong = host_dir_parse(text, out);

    if (!wrong)
        return 0;
    fprintf(stderr, "cay-privd: --%s=%s: %s\n", row->name, text, wrong);
    return -EINVAL;
}

static int parse_value(const struct option_row *row, const char *text, struct options *out)
{
    void *field = (char *)out + row->offset;
    uint64_t n = 0;
    int r;

    if (row->kind == KIND_PATH)
        return parse_path(row, text, field);
    if (row->kind == KIND_TEXT) {
        *(const char **)field = text;
        return 0;
    }
    if (row->kind == KIND_DISK)
        return parse_disk(text, field);
    if (row->kind == KIND_HOST_DIR)
        return parse_host_dir(row, text, field);
    r = parse_number(row, text, &n);
    if (r < 0)
        return r;
    if (row->kind == KIND_NUMBER64)
        *(uint64_t *)field = n;
    else
        *(uint32_t *)field = (uint32_t)n;
    return 0;
}

static int parse_one(const char *arg, struct options *out)
{
#ifdef CAY_TEST_SWITCHES
    if (strncmp(arg, "--without=", 10) == 0)
        return test_bypass_add(arg + 10);
#endif
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        size_t n = strlen(rows[i].name);

        if (strncmp(arg, "--", 2) == 0 && strncmp(arg + 2, rows[i].name, n) == 0 &&
            arg[2 + n] == '=')
            return parse_value(&rows[i], arg + 3 + n, out);
    }
    fprintf(stderr, "cay-privd: unknown option %s (see --help)\n", arg);
    return -EINVAL;
}

/* Ranges must not wrap, nor reach the ids that mean "nobody" and "no change". */
static int check_range(const struct options *o)
{
    uint64_t end = (uint64_t)o->uid_base + (uint64_t)o->slots_max * RUNTIME_UID_COUNT;

    if (o->uid_base % RUNTIME_UID_COUNT == 0 && end <= UINT32_MAX - RUNTIME_UID_COUNT)
        return 0;
    fprintf(stderr,
            "cay-privd: --uid-base=%u: a multiple of %u is needed with room for %u ranges\n",
            o->uid_base, RUNTIME_UID_COUNT, o->slots_max);
    return -EINVAL;
}

static int check_bucket(const struct options *o)
{
    const char *key, *wrong = bucket_check(&o->bucket, &key);

    if (wrong)
        fprintf(stderr, "cay-privd: --bucket, %s: %s\n", key, wrong);
    return wrong ? -EINVAL : 0;
}

static int check_needed(const struct options *o)
{
    if (o->egress_processes > 0 && (!o->egress_uid || o->egress_uid == o->peer_uid)) {
        fprintf(stderr, "cay-privd: --egress-processes needs an --egress-uid of its own\n");
        return -EINVAL;
    }
    if (o->agent && o->job && o->peer_uid != UINT32_MAX)
        return 0;
    fprintf(stderr, "cay-privd: --agent, --job and --peer-uid are needed\n");
    return -EINVAL;
}

int options_parse(int argc, char **argv, struct options *out)
{
    struct options o = {.state_dir = OPTIONS_STATE_DIR,
                        .run_dir = "/run/cay",
                        .disk = RUNTIME_DISK_AUTO,
                        .disk_bytes = 32 * GIB,
                        .template_inodes = 1048576,
                        .slots_max = 1024,
                        .slots_ready = 8,
                        .archive_devices = RUNTIME_ARCHIVE_DEVICES_MAX,
                        .uid_base = RUNTIME_UID_BASE,
                        .peer_uid = UINT32_MAX,
                        .ready_fd = -1};

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "--version") == 0) {
            if (argv[i][2] == 'h')
                print_help();
            else
                printf("cay-privd %s\n", CAY_VERSION);
            return 1;
        }
        if (parse_one(argv[i], &o) < 0)
            return -EINVAL;
    }
    if (check_needed(&o) < 0 || check_range(&o) < 0 || check_bucket(&o) < 0)
        return -EINVAL;
    *out = o;
    return 0;
}
