/* Why a command was killed, where that was the memory limit: the kernel kills without a word to the
 * parent, and counts it in a file of the control group, which cay-init holds open
 * (agent_boot.h). */

#include "agent/process/proc.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define OOM_FILE_BYTES 1024 /* a few short lines, with cgroup v1 as with v2 */
#define SHELL_KILLED   (128 + SIGKILL)

uint64_t proc_oom_kills(const struct agent *a)
{
    static const char key[] = "oom_kill ";
    char text[OOM_FILE_BYTES];
    ssize_t n = a->oom_fd > 0 ? pread(a->oom_fd, text, sizeof(text) - 1, 0) : 0;

    if (n <= 0)
        return 0;
    text[n] = '\0';
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, sizeof(key) - 1) == 0)
            return strtoull(line + sizeof(key) - 1, NULL, 10);
    }
    return 0;
}

bool proc_oom_ended(const struct proc *p)
{
    int status = p->wait_status;
    bool killed = WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL
                                      : WEXITSTATUS(status) == SHELL_KILLED;

    return killed && !p->stopping && proc_oom_kills(p->agent) > p->oom_kills;
}

void proc_oom_text(const struct agent *a, char *out, size_t size)
{
    char limit[64] = "";

    if (a->limits.memory_bytes > 0)
        snprintf(limit, sizeof(limit), " of %" PRIu64 " MiB", a->limits.memory_bytes >> 20);
    snprintf(
        out, size,
        "out of memory: the sandbox's programs and what they read and write of files together "
        "reached its limit%s; use less at a time, or a template with more (`cay template limits`)",
        limit);
}
