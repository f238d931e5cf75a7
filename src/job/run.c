#include "job/run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

NORETURN static void become(char *const argv[], int (*enter)(const void *walls), const void *walls,
                            int out_fd)
{
    static char path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    static char lang[] = "LANG=C.UTF-8", home[] = "HOME=/root", tmp[] = "TMPDIR=/tmp";
    static char frontend[] = "DEBIAN_FRONTEND=noninteractive";
    char *env[] = {path, lang, home, tmp, frontend, NULL};
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    if (null_fd < 0 || dup2(null_fd, 0) < 0 || dup2(out_fd, 1) < 0 || dup2(out_fd, 2) < 0)
        _exit(126);
    if (enter && enter(walls) < 0)
        _exit(126);
    execve(argv[0], argv, env);
    _exit(127);
}

static void read_lines(int fd, void (*on_line)(void *arg, const char *line), void *arg)
{
    FILE *in = fdopen(fd, "r");
    char line[RUN_LINE_MAX];

    if (!in) {
        close(fd);
        return;
    }
    while (fgets(line, sizeof(line), in)) {
        line[strcspn(line, "\n")] = '\0';
        on_line(arg, line);
    }
    fclose(in);
}

/* Orphans of the program become ours and are reaped on the way. */
static int wait_for(pid_t pid)
{
    int status;
    pid_t got;

    do
        got = waitpid(-1, &status, 0);
    while (got != pid && (got > 0 || errno == EINTR));
    if (got < 0)
        return -errno;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int run_program_within(char *const argv[], int (*enter)(const void *walls), const void *walls,
                       void (*on_line)(void *arg, const char *line), void *arg)
{
    int fds[2];
    pid_t pid;

    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    pid = fork();
    if (pid == 0)
        become(argv, enter, walls, fds[1]);
    close(fds[1]);
    if (pid < 0) {
        close(fds[0]);
        return -EAGAIN;
    }
    read_lines(fds[0], on_line, arg);
    return wait_for(pid);
}

int run_program(char *const argv[], void (*on_line)(void *arg, const char *line), void *arg)
{
    return run_program_within(argv, NULL, NULL, on_line, arg);
}
