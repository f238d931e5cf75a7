/* cay-checkpoint: dumps the processes of one sandbox, with CRIU, into a directory.
 *
 *     cay-checkpoint dump SECONDS FILE_BYTES_MAX
 *
 * Descriptors: checkpoint.h. Started as root of the host, it enters the sandbox's namespaces, its
 * user namespace last, and from there on has no right on the host; only then it looks at a process
 * of the tenant's, and starts CRIU. On failure it writes one line, "E <errno> <text>", and ends
 * with status 1; the processes go on then, but for ETIMEDOUT. A program of its own, so that neither
 * privd nor a copy of its memory runs what looks into processes of tenants. CRIU starts it too,
 * without words, as its action script. */

#include "checkpoint/dump.h"

#include <errno.h>
#include <linux/close_range.h>
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

int main(int argc, char **argv)
{
    const char *action = getenv("CRTOOLS_SCRIPT_ACTION");
    struct checkpoint_why why = {""};
    struct dump_limits limits;
    uint64_t seconds;

    if (argc == 1 && action)
        return dump_hook(argv[0], action, getenv("CRTOOLS_INIT_PID"));
    if (argc != 4 || strcmp(argv[1], "dump") != 0 ||
        parse_number(argv[2], SECONDS_MAX, &seconds) < 0 ||
        parse_number(argv[3], INT64_MAX, &limits.file_bytes) < 0) {
        fprintf(stderr,
                "usage: cay-checkpoint dump SECONDS FILE_BYTES_MAX   (started by cay-privd)\n");
        return 2;
    }
    limits.seconds = (unsigned)seconds;
    if (close_range(CHECKPOINT_ANSWER_FD + 1, ~0U, 0) < 0)
        return 1;
    int rc = dump_run(&limits, &why);
    if (rc < 0)
        printf("E %d %s\n", -rc, why.text);
    return rc < 0;
}
