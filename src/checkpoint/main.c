/* cay-checkpoint: dumps the processes of one sandbox, with CRIU, into a directory, and restores
 * them from it.
 *
 *     cay-checkpoint dump SECONDS FILE_BYTES_MAX
 *     cay-checkpoint restore SECONDS
 *
 * Descriptors: contract/checkpoint_boot.h. A dump is started as root of the host and enters the
 * sandbox's namespaces, its user namespace last; a restore is started as root of that namespace.
 * Only without a right on the host it looks at a process or an image of the tenant's, and starts
 * CRIU. On failure it writes one line, "E <errno> <text>", and ends with status 1; the processes
 * of a dump go on then, but for ETIMEDOUT and ECHILD. A program of its own, so that neither privd
 * nor a copy of its memory runs what looks into processes of tenants. In a dump CRIU starts it too,
 * without words, as its action script; in a restore CRIU asks it over a socket. */

#include "checkpoint/dump.h"
#include "checkpoint/restore.h"

#include <errno.h>
#include <linux/close_range.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECONDS_MAX 600u

static int parse_number(const char *text, uint64_t most, uint64_t *out)
{
    char *end;

    errno = 0;
    *out = strtoull(text, &end, 10);
    return text[0] >= '1' && text[0] <= '9' && *end == '\0' && errno == 0 && *out <= most ? 0
                                                                                          : -EINVAL;
}

static int usage(void)
{
    fprintf(stderr, "usage: cay-checkpoint dump SECONDS FILE_BYTES_MAX | restore SECONDS   "
                    "(started by cay-privd)\n");
    return 2;
}

int main(int argc, char **argv)
{
    const char *action = getenv("CRTOOLS_SCRIPT_ACTION");
    struct checkpoint_why why = {""};
    struct criu_limits limits = {.log = CRIU_DUMP_LOG, .beside_fd = CHECKPOINT_DIR_FD};
    uint64_t seconds;

    if (argc == 1 && action)
        return strcmp(action, DUMP_ACTION) == 0 ? dump_hook(argv[0], getenv("CRTOOLS_INIT_PID"))
                                                : 0;
    if (argc < 3 || parse_number(argv[2], SECONDS_MAX, &seconds) < 0)
        return usage();
    bool restore = argc == 3 && strcmp(argv[1], "restore") == 0;
    if (!restore && (argc != 4 || strcmp(argv[1], "dump") != 0 ||
                     parse_number(argv[3], INT64_MAX, &limits.file_bytes) < 0))
        return usage();
    limits.seconds = (unsigned)seconds;
    /* A restore is given these two later. */
    if (restore && (close_range(CHECKPOINT_DIR_FD, CHECKPOINT_DIR_FD, 0) < 0 ||
                    close_range(CHECKPOINT_PROGRAM_FD, CHECKPOINT_PROGRAM_FD, 0) < 0))
        return 1;
    if (close_range((restore ? CHECKPOINT_LAST_FD : CHECKPOINT_ANSWER_FD) + 1, ~0U, 0) < 0)
        return 1;
    int rc = restore ? restore_run(limits.seconds, &why) : dump_run(&limits, &why);
    if (rc < 0)
        printf("E %d %s\n", -rc, why.text);
    return rc < 0;
}
