/* Why a command was killed, where that was the memory limit: the kernel kills without a word to the
 * parent, and counts it in a file of the control group, which cay-init holds open
 * (agent_boot.h). */

#include "agent/process/proc_oom.h"

#include "agent/process/proc.h"
#include "base/io.h"

#include <ctype.h>
#include <fcntl.h>
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

/* Across reads: a shell writes its word and the command's text apart. */
size_t proc_oom_line(struct proc *p, const char *bytes, size_t n)
{
    static const char word[] = "killed";
    uint64_t kills;

    for (size_t i = 0; i < n; i++) {
        int c = tolower((unsigned char)bytes[i]);

        if (p->killed_match < sizeof(word) - 1) {
            p->killed_match = c == word[p->killed_match] ? p->killed_match + 1 : c == word[0];
            continue;
        }
        if (c != '\n')
            continue;
        p->killed_match = 0;
        kills = proc_oom_kills(p->agent);
        if (kills > MAX(p->oom_reported, p->oom_kills)) {
            p->oom_reported = kills;
            return i + 1;
        }
    }
    return 0;
}

/* For cayd, about commands of which a shell inside alone knows the end: how many were killed so
 * far, and the message about one. */
void process_oom_get(struct http_exchange *x, struct agent *a)
{
    static const struct http_header headers[] = {{"Content-Type", "application/json"}};
    char text[512], body[640];

    proc_oom_text(a, NULL, text, sizeof(text));
    http_respond(x, 200, headers, ARRAY_SIZE(headers), body,
                 (size_t)snprintf(body, sizeof(body), "{\"kills\":%" PRIu64 ",\"text\":\"%s\"}",
                                  proc_oom_kills(a), text));
}

/* The program's own word for itself: its name, or what it has set with prctl. */
void proc_oom_name(struct proc *p)
{
    char path[32];

    snprintf(path, sizeof(path), "/proc/%d/comm", (int)p->pid);
    if (io_read_text_at(AT_FDCWD, path, p->name, sizeof(p->name)) < 0)
        p->name[0] = '\0';
    for (char *at = p->name; *at; at++)
        if (*at < ' ' || *at > '~')
            *at = '?';
}

void proc_oom_text(const struct agent *a, const struct proc_end *killed, char *out, size_t size)
{
    char limit[64] = "", who[PROC_NAME_SIZE + 40] = "";

    if (killed && killed->name[0])
        snprintf(who, sizeof(who), "%s (pid %d) was killed: ", killed->name, (int)killed->pid);
    if (a->limits.memory_bytes > 0)
        snprintf(limit, sizeof(limit), " of %" PRIu64 " MiB", a->limits.memory_bytes >> 20);
    snprintf(
        out, size,
        "out of memory: %sthe sandbox's programs and what they read and write of files together "
        "reached its limit%s; use less at a time, or a template with more (`cay template limits`)",
        who, limit);
}
