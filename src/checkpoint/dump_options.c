/* A dump's options. Mounts are external, as a restore finds all of them in the tree that a start
 * makes anew: every one but the root (CRIU's own), /proc with what of it is read-only, and
 * terminals, which CRIU mounts itself. The table of mounts is the kernel's, of a mount namespace in
 * which only cay has mounted, and which no program inside can change. cay-init's program is
 * external too: it is in a memory file of privd's. */

#include "checkpoint/dump_options.h"

#include "base/io.h"
#include "checkpoint/criu.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const char *const fixed[] = {
    CHECKPOINT_CRIU,
    "dump",
    CRIU_OPTIONS_OF_BOTH,
    "--log-file",
    CRIU_DUMP_LOG,
    "--network-lock",
    "skip", /* links that lead out of the sandbox were closed before */
    "--skip-in-flight",
    "--ghost-limit",
    "512M",
    "--irmap-scan-path",
    "/home",
    "--external",
    "seccomp", /* of cay's changes: filters are installed anew, and not suspended */
};

/* CRIU names a file by the number of its mount and its inode. */
int dump_options_program(pid_t pid, char name[static WORD_SIZE])
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
    snprintf(name, WORD_SIZE, "file[%x:%lx]", mount, (unsigned long)st.st_ino);
    return 0;
}

int dump_options_make(struct words *w, pid_t pid, const char *self, struct checkpoint_why *why)
{
    char mountinfo[48], program[WORD_SIZE];

    w->n = 0;
    snprintf(mountinfo, sizeof(mountinfo), "/proc/%d/mountinfo", (int)pid);
    int rc = words_add_all(w, fixed, ARRAY_SIZE(fixed));
    if (rc == 0)
        rc = words_add(w, "--tree");
    if (rc == 0)
        rc = words_add(w, "%d", (int)pid);
    if (rc == 0)
        rc = words_add(w, "--action-script");
    if (rc == 0)
        rc = words_add(w, "%s", self);
    if (rc == 0)
        rc = words_add_mounts(w, mountinfo, "");
    if (rc == 0)
        rc = dump_options_program(pid, program);
    if (rc == 0)
        rc = words_add(w, "--external");
    if (rc == 0)
        rc = words_add(w, "%s", program);
    return rc < 0 ? checkpoint_fail(why, rc, "options of the dump: %s", strerror(-rc)) : 0;
}
