/* The floor: what the kernel itself takes for a sandbox's namespaces and mounts and an exec, with nothing
 * around it. `floor COUNT` makes that many, one after the other, and prints the time of each from clone
 * to the ready byte, in microseconds, one per line. `floor COUNT true` runs /bin/true so often, from fork to
 * its end.
 *
 * It makes what a sandbox has: user, mount, pid, network, ipc, uts and cgroup namespaces, an overlay on a
 * tmpfs, proc, pivot_root. Run as root. Not a sandbox: no filter, no limits, no uid range. */
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAMESPACES                                                                             \
    (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | \
     CLONE_NEWCGROUP)

static void must(int r, const char *what)
{
    if (r >= 0)
        return;
    fprintf(stderr, "floor: %s: %s\n", what, strerror(errno));
    _exit(1);
}

static void make_root(void)
{
    must(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), "private");
    must(mount("t", "/mnt", "tmpfs", 0, NULL), "tmpfs");
    must(mkdir("/mnt/l", 0755) | mkdir("/mnt/u", 0755) | mkdir("/mnt/w", 0755) |
             mkdir("/mnt/r", 0755) | mkdir("/mnt/l/proc", 0755),
         "mkdir");
    must(mount("o", "/mnt/r", "overlay", 0,
               "lowerdir=/mnt/l,upperdir=/mnt/u,workdir=/mnt/w,userxattr"),
         "overlay");
    must(mount("proc", "/mnt/r/proc", "proc", 0, NULL), "proc");
    must(chdir("/mnt/r"), "chdir");
    must((int)syscall(SYS_pivot_root, ".", "."), "pivot_root");
    must(umount2(".", MNT_DETACH), "umount");
}

static void child(int go, int ready, int self)
{
    char fd[16], byte;

    must(read(go, &byte, 1) == 1 ? 0 : -1, "go");
    must(setgid(0) | setuid(0), "ids");
    make_root();
    snprintf(fd, sizeof(fd), "%d", ready);
    char *const argv[] = {(char[]){"floor"}, (char[]){"--ready"}, fd, NULL};
    char *const envp[] = {NULL};

    must((int)syscall(SYS_execveat, self, "", argv, envp, AT_EMPTY_PATH), "exec");
}

static void write_map(pid_t pid, const char *name)
{
    char path[64];
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    must(fd, path);
    must((int)write(fd, "0 1000000 65536", 15), name);
    close(fd);
}

static uint64_t run_true(void)
{
    uint64_t start = clock_mono_us();
    pid_t pid = fork();
    int status;

    must(pid, "fork");
    if (pid == 0) {
        must(execl("/bin/true", "/bin/true", NULL), "/bin/true");
        _exit(1);
    }
    must(waitpid(pid, &status, 0) == pid && status == 0 ? 0 : -1, "/bin/true did not end well");
    return clock_mono_us() - start;
}

static uint64_t one(int self)
{
    uint64_t start = clock_mono_us();
    int go[2], ready[2];
    char byte;
    pid_t pid;

    must(pipe(go) | pipe(ready), "pipe");
    pid = (pid_t)syscall(SYS_clone, NAMESPACES | SIGCHLD, 0, 0, 0, 0);
    must(pid, "clone");
    if (pid == 0)
        child(go[0], ready[1], self);
    write_map(pid, "uid_map");
    write_map(pid, "gid_map");
    must((int)write(go[1], "g", 1), "go");
    must(read(ready[0], &byte, 1) == 1 ? 0 : -1, "ready");
    start = clock_mono_us() - start;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(go[0]), close(go[1]), close(ready[0]), close(ready[1]);
    return start;
}

int main(int argc, char **argv)
{
    int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    int count = argc > 1 ? atoi(argv[1]) : 100;

    if (argc == 3 && strcmp(argv[1], "--ready") == 0) {
        must((int)write(atoi(argv[2]), "R", 1), "ready byte");
        pause();
    }
    must(self, "/proc/self/exe");
    for (int i = 0; i < count && i < 100000; i++)
        printf("%llu\n", (unsigned long long)(argc == 3 ? run_true() : one(self)));
    return 0;
}
