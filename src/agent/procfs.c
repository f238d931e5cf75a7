#include "agent/procfs.h"

#include "base/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void close_dir(DIR **d)
{
    if (*d)
        closedir(*d);
}

/* The name in /proc/PID/stat may hold anything, ')' and spaces included: fields start after the last
 * ')'. See proc_pid_stat(5). */
static int parse_stat(const char *text, struct procfs_stat *s)
{
    const char *rest = strrchr(text, ')');
    uint64_t utime, stime, cutime, cstime, rss;
    int pid, session;

    if (!rest || sscanf(text, "%d", &pid) != 1)
        return -EINVAL;
    if (sscanf(rest + 1,
               " %*c %*d %*d %d %*d %*d %*u %*u %*u %*u %*u %" SCNu64 " %" SCNu64 " %" SCNu64
               " %" SCNu64 " %*d %*d %*d %*d %*u %*u %" SCNu64,
               &session, &utime, &stime, &cutime, &cstime, &rss) != 6)
        return -EINVAL;
    *s = (struct procfs_stat){pid, session, utime + stime + cutime + cstime, rss};
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
