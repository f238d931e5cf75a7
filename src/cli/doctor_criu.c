/* The program that a pause on disk needs. Older versions dump no sandbox on current kernels, and
 * none whose system call filter has a listener without cay's changes (scripts/criu.patches). */
#include "cli/doctor.h"

#include "base/io.h"
#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEAST      "4.2.1" /* that of scripts/criu */
#define CHANGES    "Changes: cay 8"
#define ANSWER_S   5 /* for what is no CRIU, and does not end */
#define HOW_TO_GET "`make criu` builds " LEAST " or newer"

/* major.minor.patch as one number; -1: it is none. A part that is not there is 0. */
static long version_number(const char *text)
{
    unsigned major = 0, minor = 0, patch = 0;

    if (sscanf(text, "%4u.%4u.%4u", &major, &minor, &patch) < 1)
        return -1;
    return (long)major * 100000000 + (long)minor * 10000 + (long)patch;
}

/* Up to the end of file, at most size bytes; or -errno. */
static ssize_t read_all(int fd, char *out, size_t size)
{
    size_t have = 0;
    ssize_t n = 0;

    while (have < size && (n = io_read_some(fd, out + have, size - have)) > 0)
        have += (size_t)n;
    return n < 0 ? n : (ssize_t)have;
}

/* The beginning of the program's output, at most size - 1 bytes of it. 0 or -errno. */
static int first_output(const char *path, char *out, size_t size)
{
    int fds[2], status;
    pid_t pid;

    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    pid = fork();
    if (pid == 0) {
        alarm(ANSWER_S);
        if (dup2(fds[1], STDOUT_FILENO) >= 0 && dup2(fds[1], STDERR_FILENO) >= 0)
            execl(path, path, "--version", (char *)NULL);
        _exit(127);
    }
    close(fds[1]);
    ssize_t n = pid < 0 ? -1 : read_all(fds[0], out, size - 1);
    close(fds[0]);
    if (pid < 0 || waitpid(pid, &status, 0) != pid || n < 0)
        return -EIO;
    out[n] = '\0';
    return 0;
}

/* "Version: 4.2.1", and "Changes: cay 8" in a line of its own */
static bool read_version(const char *path, char *out, size_t size, bool *changed)
{
    static const char head[] = "Version: ";
    char text[256];

    if (first_output(path, text, sizeof(text)) < 0 || strncmp(text, head, sizeof(head) - 1) != 0)
        return false;
    const char *number = text + sizeof(head) - 1;
    size_t n = strspn(number, "0123456789.");
    if (n >= size)
        return false;
    memcpy(out, number, n);
    out[n] = '\0';
    *changed = strstr(text, "\n" CHANGES "\n") != NULL;
    return version_number(out) >= 0;
}

void doctor_criu(const char *path, struct doctor_result *r)
{
    char version[32];
    bool changed = false;

    r->level = path ? DOCTOR_LIMITED : DOCTOR_MISSING;
    if (!path) {
        snprintf(r->text, sizeof(r->text), "pauses on disk need it: " HOW_TO_GET);
    } else if (!read_version(path, version, sizeof(version), &changed)) {
        snprintf(r->text, sizeof(r->text), "%.64s does not tell a version of CRIU: " HOW_TO_GET,
                 path);
    } else if (version_number(version) < version_number(LEAST)) {
        snprintf(r->text, sizeof(r->text),
                 "%.48s is CRIU %.16s, too old for pauses on disk: " HOW_TO_GET, path, version);
    } else if (!changed) {
        snprintf(r->text, sizeof(r->text), "%.48s is CRIU %.16s without cay's changes: " HOW_TO_GET,
                 path, version);
    } else {
        r->level = DOCTOR_OK;
        snprintf(r->text, sizeof(r->text), "%.64s is CRIU %.16s", path, version);
    }
}
