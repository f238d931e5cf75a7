/* A dump's options. Mounts are external, as a restore finds all of them in the tree that a start
 * makes anew: every one but the root (CRIU's own), /proc with what of it is read-only, and
 * terminals, which CRIU mounts itself. The table of mounts is the kernel's, of a mount namespace in
 * which only cay has mounted, and which no program inside can change. cay-init's program is
 * external too: it is in a memory file of privd's. */

#include "checkpoint/dump_options.h"

#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define MOUNTINFO_LINE 1024

static const char *const fixed[] = {
    CHECKPOINT_CRIU,
    "dump",
    "--unprivileged", /* no right on the host is asked for */
    "--images-dir",
    CHECKPOINT_SELF_DIR,
    "--log-file",
    "dump.log",
    "-v1",
    "--network-lock",
    "skip", /* what leads out of the sandbox was closed before */
    "--tcp-established",
    "--skip-in-flight",
    "--file-locks",
    "--ext-unix-sk",
    "--manage-cgroups=ignore",
    "--file-validation",
    "filesize", /* a build id is read from the file, and cay-init's may not be read */
    "--ghost-limit",
    "512M",
    "--irmap-scan-path",
    "/home",
    "--external",
    "seccomp", /* of cay's changes: filters are installed anew, and not suspended */
};

PRINTF(2, 3) static int add(struct dump_options *o, const char *format, ...)
{
    va_list args;

    if (o->n == DUMP_OPTIONS_MAX)
        return -E2BIG;
    va_start(args, format);
    int n = vsnprintf(o->text[o->n], DUMP_OPTION_SIZE, format, args);
    va_end(args);
    if (n < 0 || n >= DUMP_OPTION_SIZE)
        return -ENAMETOOLONG;
    o->argv[o->n] = o->text[o->n];
    o->argv[++o->n] = NULL;
    return 0;
}

/* "36 35 0:22 /root /at opts - type source": without spaces in a path, as the kernel escapes
 * them. */
bool dump_options_mount(const char *line, char path[static DUMP_OPTION_SIZE / 2])
{
    char type[32];
    const char *rest = strstr(line, " - ");

    if (!rest || sscanf(line, "%*d %*d %*s %*s %63s", path) != 1 ||
        sscanf(rest, " - %31s", type) != 1)
        return false;
    return strcmp(path, "/") != 0 && strcmp(type, "devpts") != 0 && strcmp(type, "proc") != 0;
}

static int add_mounts(struct dump_options *o, pid_t pid)
{
    char name[48], line[MOUNTINFO_LINE], path[DUMP_OPTION_SIZE / 2];
    int rc = 0;

    snprintf(name, sizeof(name), "/proc/%d/mountinfo", (int)pid);
    FILE *in = fopen(name, "re");
    if (!in)
        return -errno;
    while (rc == 0 && fgets(line, sizeof(line), in)) {
        if (!dump_options_mount(line, path))
            continue;
        rc = add(o, "--external");
        if (rc == 0)
            rc = add(o, "mnt[%.60s]:%.60s", path, path);
    }
    fclose(in);
    return rc;
}

/* CRIU names a file by the number of its mount and its inode. */
static int add_program(struct dump_options *o, pid_t pid)
{
    char path[48], text[512];
    unsigned mount;
    struct stat st;

    snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
    CLEANUP_CLOSE int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
    ssize_t n = io_read_text_at(AT_FDCWD, path, text, sizeof(text));
    const char *at = n < 0 ? NULL : strstr(text, "mnt_id:");
    if (!at || sscanf(at, "mnt_id: %u", &mount) != 1)
        return n < 0 ? (int)n : -EIO;
    int rc = add(o, "--external");
    return rc < 0 ? rc : add(o, "file[%x:%lx]", mount, (unsigned long)st.st_ino);
}

int dump_options_make(struct dump_options *o, pid_t pid, const char *self,
                      struct checkpoint_why *why)
{
    int rc = 0;

    o->n = 0;
    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(fixed); i++)
        rc = add(o, "%s", fixed[i]);
    if (rc == 0)
        rc = add(o, "--tree");
    if (rc == 0)
        rc = add(o, "%d", (int)pid);
    if (rc == 0)
        rc = add(o, "--action-script");
    if (rc == 0)
        rc = add(o, "%s", self);
    if (rc == 0)
        rc = add_mounts(o, pid);
    if (rc == 0)
        rc = add_program(o, pid);
    return rc < 0 ? checkpoint_fail(why, rc, "options of the dump: %s", strerror(-rc)) : 0;
}
