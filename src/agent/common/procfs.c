#include "agent/common/procfs.h"

#include "base/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void close_dir(DIR **d)
{
    if (*d)
        closedir(*d);
}

#define STAT_FIELDS 24 /* up to rss */

/* The name in /proc/PID/stat may hold anything, ')' and spaces included: fields start after the
 * last ')', with number 3 of proc_pid_stat(5), the state, which is no number. */
static int parse_stat(const char *text, struct procfs_stat *s)
{
    const char *at = strrchr(text, ')');
    uint64_t field[STAT_FIELDS + 1] = {0};
    char *end;

    if (!at || strlen(at) < 4)
        return -EINVAL;
    s->state = at[2];
    at += 3;
    for (size_t i = 4; i <= STAT_FIELDS; i++, at = end) {
        field[i] = strtoull(at, &end, 10);
        if (end == at)
            return -EINVAL;
    }
    s->pid = (pid_t)strtol(text, NULL, 10);
    s->cpu_ticks = field[14] + field[15] + field[16] + field[17];
    s->rss_pages = field[24];
    return 0;
}

int procfs_each(bool (*each)(const struct procfs_stat *s, void *arg), void *arg)
{
    CLEANUP(close_dir) DIR *dir = opendir("/proc");
    const struct dirent *entry;

    if (!dir)
        return -errno;
    while ((entry = readdir(dir))) {
        char path[sizeof(entry->d_name) + 8], text[1024];
        struct procfs_stat s;

        if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
            continue;
        snprintf(path, sizeof(path), "%s/stat", entry->d_name);
        if (io_read_text_at(dirfd(dir), path, text, sizeof(text)) < 0 || parse_stat(text, &s) < 0)
            continue; /* it ended meanwhile */
        if (!each(&s, arg))
            break;
    }
    return 0;
}

/* "Max file locks            7                    7                    locks" of
 * proc_pid_limits(5). */
uint64_t procfs_file_locks_limit(pid_t pid)
{
    static const char name[] = "Max file locks";
    char path[32], text[4096], *line, *end;

    snprintf(path, sizeof(path), "/proc/%d/limits", (int)pid);
    if (io_read_text_at(AT_FDCWD, path, text, sizeof(text)) < 0 || !(line = strstr(text, name)))
        return 0;
    (void)strtoull(line + sizeof(name) - 1, &end, 10); /* the soft limit */
    return strtoull(end, NULL, 10);                    /* "unlimited" gives 0 */
}

uint64_t procfs_meminfo_bytes(const char *field)
{
    char text[4096];
    size_t len = strlen(field);

    if (io_read_text_at(AT_FDCWD, "/proc/meminfo", text, sizeof(text)) < 0)
        return 0;
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, field, len) == 0 && line[len] == ':')
            return strtoull(line + len + 1, NULL, 10) * 1024;
    }
    return 0;
}
