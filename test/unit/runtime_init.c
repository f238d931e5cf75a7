/* Stands in for cay-init in the runtime's tests: takes the boot block, says ready, then runs one shell
 * script after the other as the boot socket asks: "<uid> <length>\n<script>", answered by the script's
 * output, a NUL and its exit status as one byte. Like cay-init it drops to the children's capabilities
 * and puts each child into the work cgroup. Static, so that it needs nothing of the template. */

#include "contract/agent_boot.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

static struct agent_boot boot;

static int read_full(void *out, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = read(AGENT_BOOT_FD, (char *)out + done, n - done);
        if (got <= 0)
            return -1;
        done += (size_t)got;
    }
    return 0;
}

static void drop(unsigned uid)
{
    for (int cap = 0; cap < 64; cap++)
        if (!(boot.child_caps & (UINT64_C(1) << cap)))
            prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    if (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0)
        _exit(120);
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    memset(data, 0, sizeof(data));
    data[0].permitted = data[0].effective = uid == 0 ? (uint32_t)boot.child_caps : 0;
    if (syscall(SYS_capset, &header, data) < 0)
        _exit(121);
}

static void run_child(unsigned uid, const char *script)
{
    for (unsigned i = 0; i < boot.cgroup_fds; i++)
        if (write((int)(AGENT_CGROUP_FD_FIRST + i), "0", 1) != 1)
            _exit(122);
    dup2(AGENT_BOOT_FD, 1);
    dup2(AGENT_BOOT_FD, 2);
    close_range(3, ~0U, 0);
    drop(uid);
    if (chdir("/") < 0)
        _exit(124);
    execl("/bin/sh", "sh", "-c", script, NULL);
    _exit(123);
}

static void serve(unsigned uid, const char *script)
{
    int status;
    pid_t pid = fork();
    if (pid == 0)
        run_child(uid, script);
    for (pid_t ended; (ended = waitpid(-1, &status, 0)) != pid;)
        if (ended < 0)
            break;
    char tail[2] = {0, (char)(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status))};
    (void)!write(AGENT_BOOT_FD, tail, sizeof(tail));
}

/* For reading alone, also where it is opened again. */
static bool is_the_count(int fd)
{
    char text[1024] = "", path[64];
    int again;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    again = open(path, O_WRONLY | O_CLOEXEC);
    if (again >= 0)
        close(again);
    return again < 0 && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY &&
           pread(fd, text, sizeof(text) - 1, 0) > 0 && strstr(text, "\noom_kill ");
}

int main(void)
{
    char line[64], script[8192];

    if (read_full(&boot, sizeof(boot)) < 0 || boot.version != AGENT_BOOT_VERSION)
        return 1;
    /* The filter's questions are not answered here: a netlink socket is then ENOSYS. */
    if (close(AGENT_LISTENER_FD) < 0)
        return 7;
    if (!boot.oom_fd || !is_the_count(AGENT_OOM_FD) || close(AGENT_OOM_FD) < 0)
        return 8;
    /* Nothing but what was promised is open, and nothing of the host is behind 0 to 2. */
    for (int fd = (int)(AGENT_CGROUP_FD_FIRST + boot.cgroup_fds); fd < 1024; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            return 3;
    for (int fd = 0; fd < 3; fd++) {
        struct stat st;
        if (fstat(fd, &st) < 0 || !S_ISCHR(st.st_mode) || st.st_rdev != makedev(1, 3))
            return 4;
    }
    struct agent_claim claim;
    char name[64] = "";
    if (read_full(&claim, sizeof(claim)) < 0)
        return 5;
    if (gethostname(name, sizeof(name)) < 0 || strcmp(name, claim.id) != 0)
        return 6;
    (void)!write(AGENT_BOOT_FD, "R", 1);
    for (;;) {
        size_t n = 0;
        unsigned uid, length;
        while (n < sizeof(line) - 1 && read_full(&line[n], 1) == 0 && line[n] != '\n')
            n++;
        line[n] = '\0';
        if (sscanf(line, "%u %u", &uid, &length) != 2 || length >= sizeof(script))
            return 0;
        if (read_full(script, length) < 0)
            return 2;
        script[length] = '\0';
        serve(uid, script);
    }
}
