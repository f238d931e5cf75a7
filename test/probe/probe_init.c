/* PID 1 against root inside, by every call that goes by ids or by signals, and what is left of the ids
 * themselves (class 8). Outside of a sandbox a victim stands for PID 1: CAY_PROBE_PID. */
#include "probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#define AGENT_ID   65533
#define AGENT_PORT 49983
#define HIGH       (1L << 32)

static char state_of(pid_t pid)
{
    char path[64], line[256] = "", *end;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    fd = open(path, O_RDONLY);
    if (fd < 0)
        return 0;
    if (read(fd, line, sizeof(line) - 1) <= 0)
        line[0] = 0;
    close(fd);
    end = strrchr(line, ')');
    return end ? end[2] : 0;
}

/* After a signal: is it dead or stopped? */
static void evaluate(struct finding *f, const char *how)
{
    char state;

    usleep(50000);
    state = state_of(probe_target());
    if (state == 0 || state == 'Z' || state == 'X')
        found_open(f, "%s: PID 1 is gone", how);
    else if (state == 'T' || state == 't')
        found_open(f, "%s: PID 1 is stopped", how);
    else
        found_refused(f, "%s: PID 1 goes on (%c)", how, state);
}

static int pidfd(void)
{
    return (int)syscall(434 /* pidfd_open */, probe_target(), 0);
}

static void by_pidfd(struct finding *f)
{
    if (probe_spared(f))
        return;
    syscall(424 /* pidfd_send_signal */, pidfd(), SIGKILL, NULL, 0);
    evaluate(f, "pidfd_send_signal(SIGKILL)");
}

static void by_thread(struct finding *f)
{
    if (probe_spared(f))
        return;
    syscall(SYS_tgkill, probe_target(), probe_target(), SIGSTOP);
    evaluate(f, "tgkill(SIGSTOP)");
}

static void by_crash(struct finding *f)
{
    if (probe_spared(f))
        return;
    kill(probe_target(), SIGSEGV);
    evaluate(f, "kill(SIGSEGV)");
}

static void affinity(struct finding *f)
{
    cpu_set_t set;

    if (probe_spared(f))
        return;
    sched_getaffinity(0, sizeof(set), &set);
    found_call(f, "sched_setaffinity of PID 1",
               sched_setaffinity(probe_target(), sizeof(set), &set));
}

static void idle_class(struct finding *f)
{
    struct sched_param p = {0};

    if (probe_spared(f))
        return;
    found_call(f, "sched_setscheduler(IDLE) of PID 1",
               sched_setscheduler(probe_target(), SCHED_IDLE, &p));
}

static void idle_io(struct finding *f)
{
    if (probe_spared(f))
        return;
    found_call(f, "ioprio_set of PID 1", syscall(SYS_ioprio_set, 1, probe_target(), 3 << 13));
}

/* Not mapped anywhere, so that nothing is written where it is allowed. */
static void write_memory(struct finding *f)
{
    char byte = 0;
    struct iovec local = {&byte, 1}, remote = {(void *)16, 1};
    long r = process_vm_writev(probe_target(), &local, 1, &remote, 1, 0);

    if (r < 0 && errno == EFAULT)
        found_open(f, "process_vm_writev may write");
    else
        found_call(f, "process_vm_writev", r);
}

static void compare(struct finding *f)
{
    found_call(f, "kcmp with PID 1", syscall(SYS_kcmp, probe_target(), probe_target(), 1, 0, 0));
}

#define FILE_CASE(fn, name, flags)                                           \
    static void fn(struct finding *f)                                        \
    {                                                                        \
        char path[64];                                                       \
        int fd;                                                              \
                                                                             \
        snprintf(path, sizeof(path), "/proc/%d/" name, (int)probe_target()); \
        fd = open(path, flags);                                              \
        if (fd < 0)                                                          \
            found_refused(f, "%s: %s", path, strerror(errno));               \
        else                                                                 \
            found_open(f, "%s opened", path);                                \
    }
FILE_CASE(clear_refs, "clear_refs", O_WRONLY)
FILE_CASE(coredump_filter, "coredump_filter", O_RDWR)
FILE_CASE(oom_adj, "oom_adj", O_WRONLY)
FILE_CASE(autogroup, "autogroup", O_RDWR)
FILE_CASE(auxv, "auxv", O_RDONLY)
FILE_CASE(map_files, "map_files", O_RDONLY | O_DIRECTORY)
FILE_CASE(task_mem, "task/1/../../mem", O_RDWR)
FILE_CASE(cwd, "cwd", O_RDONLY | O_DIRECTORY)

#define JOIN_CASE(fn, name)                                                     \
    static void fn(struct finding *f)                                           \
    {                                                                           \
        char path[64];                                                          \
        int fd;                                                                 \
                                                                                \
        snprintf(path, sizeof(path), "/proc/%d/ns/" name, (int)probe_target()); \
        fd = open(path, O_RDONLY);                                              \
        if (fd < 0)                                                             \
            found_refused(f, "%s: %s", path, strerror(errno));                  \
        else                                                                    \
            found_call(f, "setns " name, setns(fd, 0));                         \
    }
JOIN_CASE(join_net, "net")
JOIN_CASE(join_ipc, "ipc")
JOIN_CASE(join_pid, "pid")
JOIN_CASE(join_uts, "uts")
JOIN_CASE(join_cgroup, "cgroup")

/* --- becoming PID 1's user --------------------------------------------------------------------- */

#define ID_CASE(fn, ...)                                   \
    static void fn(struct finding *f)                      \
    {                                                      \
        found_call(f, #__VA_ARGS__, syscall(__VA_ARGS__)); \
    }
ID_CASE(set_uid, SYS_setuid, AGENT_ID)
ID_CASE(set_uid_high, SYS_setuid, HIGH | AGENT_ID)
ID_CASE(set_resuid, SYS_setresuid, -1, AGENT_ID, -1)
ID_CASE(set_reuid, SYS_setreuid, -1, AGENT_ID)
ID_CASE(set_gid, SYS_setgid, AGENT_ID)

static void set_fsuid(struct finding *f)
{
    syscall(SYS_setfsuid, AGENT_ID);
    if (syscall(SYS_setfsuid, -1) == AGENT_ID)
        found_open(f, "the file system id is PID 1's");
    else
        found_refused(f, "setfsuid changed nothing");
}

static int copy_self(const char *to)
{
    char room[65536];
    ssize_t n;
    int in = open("/proc/self/exe", O_RDONLY), out;

    unlink(to);
    out = open(to, O_WRONLY | O_CREAT | O_EXCL, 0755);
    while (in >= 0 && out >= 0 && (n = read(in, room, sizeof(room))) > 0)
        if (write(out, room, (size_t)n) != n)
            break;
    close(in);
    return close(out);
}

/* Runs this program again from a file that was prepared to give more, and takes its verdict. */
static void from_file(struct finding *f, const char *path, const char *inner)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 1);
        execl(path, path, inner, (char *)NULL);
        _exit(126);
    }
    waitpid(pid, &status, 0);
    unlink(path);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 1)
        found_open(f, "%s from the prepared file", inner);
    else
        found_refused(f, "%s from the prepared file: status %#x", inner, (unsigned)status);
}

/* A set-uid file gives its owner's id to the program's caller: no call of setuid is needed. */
static void set_uid_file(struct finding *f)
{
    const char *path = "/tmp/cay-probe-suid";
    char by_descriptor[64];

    if (probe_spared(f))
        return;
    copy_self(path);
    if (chown(path, AGENT_ID, AGENT_ID) < 0) {
        int fd = open(path, O_PATH);

        /* The neighbours of chown. */
        snprintf(by_descriptor, sizeof(by_descriptor), "/proc/self/fd/%d", fd);
        if (lchown(path, AGENT_ID, AGENT_ID) < 0 &&
            fchownat(fd, "", AGENT_ID, AGENT_ID, AT_EMPTY_PATH) < 0 &&
            syscall(SYS_chown, by_descriptor, HIGH | AGENT_ID, HIGH | AGENT_ID) < 0) {
            found_refused(f, "no file can be given to PID 1's user: %s", strerror(errno));
            unlink(path);
            return;
        }
    }
    chmod(path, 06755);
    from_file(f, path, "init.oom_adj");
}

/* Capabilities of a file are bounded too. */
static void file_caps(struct finding *f)
{
    const char *path = "/tmp/cay-probe-caps";
    struct vfs_cap_data data = {
        .magic_etc = VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE,
        .data[0].permitted = 1u << CAP_SYS_ADMIN,
    };

    copy_self(path);
    if (setxattr(path, "security.capability", &data, sizeof(data.magic_etc) + sizeof(data.data),
                 0) < 0) {
        found_refused(f, "setting file capabilities: %s", strerror(errno));
        unlink(path);
        return;
    }
    from_file(f, path, "id.effective");
}

static void effective(struct finding *f)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};

    syscall(SYS_capget, &header, data);
    if (data[0].effective & 1u << CAP_SYS_ADMIN)
        found_open(f, "SYS_ADMIN is effective");
    else
        found_refused(f, "SYS_ADMIN is not effective");
}

/* --- core files -------------------------------------------------------------------------------- */

/* With any value but 1 a core_pattern that pipes would have the host run a program at a crash. */
static void core_is(struct finding *f, const char *how)
{
    struct rlimit lim = {0};

    getrlimit(RLIMIT_CORE, &lim);
    if (lim.rlim_cur == 1 && lim.rlim_max == 1)
        found_refused(f, "%s: the core limit is 1, which means never", how);
    else
        found_open(f, "%s: the core limit is %ld", how, (long)lim.rlim_cur);
}

static void core_limit(struct finding *f)
{
    core_is(f, "as started");
}

static void core_by_setrlimit(struct finding *f)
{
    struct rlimit lim = {0, 1};

    syscall(SYS_setrlimit, RLIMIT_CORE, &lim);
    core_is(f, "after setrlimit");
}

static void core_by_prlimit(struct finding *f)
{
    struct rlimit lim = {0, 1};

    syscall(SYS_prlimit64, 0, HIGH | RLIMIT_CORE, &lim, NULL);
    core_is(f, "after prlimit");
}

/* --- PID 1's own API --------------------------------------------------------------------------- */

static void ask(struct finding *f, const char *request)
{
    struct sockaddr_in sin = {.sin_family = AF_INET,
                              .sin_port = htons(AGENT_PORT),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char answer[128] = "";
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    if (connect(fd, (struct sockaddr *)&sin, sizeof(sin)) < 0) {
        found_none(f, "no agent here: %s", strerror(errno));
        return;
    }
    if (write(fd, request, strlen(request)) < 0 || read(fd, answer, sizeof(answer) - 1) <= 0)
        answer[0] = 0;
    answer[strcspn(answer, "\r\n")] = 0;
    if (strstr(answer, " 200 "))
        found_open(f, "the agent answers: %s", answer);
    else
        found_refused(f, "the agent answers: %s", answer);
}

static void api_list(struct finding *f)
{
    ask(f, "POST /process.Process/List HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
           "Content-Length: 2\r\n\r\n{}");
}

static void api_read(struct finding *f)
{
    ask(f, "GET /files?path=/etc/shadow&username=root HTTP/1.1\r\nHost: x\r\n\r\n");
}

static void api_guess(struct finding *f)
{
    ask(f, "GET /files?path=/etc/shadow&username=root HTTP/1.1\r\nHost: x\r\nX-Cay-Agent-Key: "
           "0000000000000000000000000000000000000000000000000000000000000000\r\n\r\n");
}

const struct probe_case probe_init_cases[] = {
    {"init.pidfd_kill", "kill PID 1 by pidfd", by_pidfd, 1},
    {"init.tgkill", "stop PID 1 by thread", by_thread, 1},
    {"init.segv", "crash PID 1 by signal", by_crash, 1},
    {"init.affinity", "pin PID 1 to a processor", affinity, 1},
    {"init.idle", "PID 1 only when nothing else runs", idle_class, 1},
    {"init.ioprio", "PID 1 last at the disk", idle_io, 1},
    {"init.vm_write", "write PID 1's memory", write_memory, 1},
    {"init.kcmp", "learn of PID 1's pointers", compare, 1},
    {"init.clear_refs", "/proc/1/clear_refs", clear_refs, 1},
    {"init.coredump_filter", "/proc/1/coredump_filter", coredump_filter, 1},
    {"init.oom_adj", "/proc/1/oom_adj", oom_adj, 1},
    {"init.autogroup", "/proc/1/autogroup", autogroup, 1},
    {"init.auxv", "/proc/1/auxv: where its memory is", auxv, 1},
    {"init.map_files", "/proc/1/map_files", map_files, 1},
    {"init.mem_by_task", "its memory by another path", task_mem, 1},
    {"init.cwd", "walk through PID 1's working directory", cwd, 1},
    {"ns.join_net", "join PID 1's network namespace", join_net, 1},
    {"ns.join_ipc", "join PID 1's ipc namespace", join_ipc, 1},
    {"ns.join_pid", "join PID 1's pid namespace", join_pid, 1},
    {"ns.join_uts", "join PID 1's uts namespace", join_uts, 1},
    {"ns.join_cgroup", "join PID 1's cgroup namespace", join_cgroup, 1},
    {"id.setuid", "become PID 1's user", set_uid, 1},
    {"id.setuid_high", "the same with an upper half", set_uid_high, 1},
    {"id.setresuid", "the same by setresuid", set_resuid, 1},
    {"id.setreuid", "the same by setreuid", set_reuid, 1},
    {"id.setfsuid", "the same by setfsuid", set_fsuid, 1},
    {"id.setgid", "PID 1's group", set_gid, 1},
    {"id.setuid_file", "PID 1's user by a set-uid file", set_uid_file, 1},
    {"id.effective", "SYS_ADMIN", effective, 1},
    {"id.file_caps", "SYS_ADMIN by a file's capabilities", file_caps, 1},
    {"id.core_limit", "a crash that has the host run a program", core_limit, 1},
    {"id.core_setrlimit", "the same after changing the limit", core_by_setrlimit, 1},
    {"id.core_prlimit", "the same by prlimit with an upper half", core_by_prlimit, 1},
    {"agent.list", "ask PID 1's API for the processes", api_list, 0},
    {"agent.read", "have PID 1's API read a file as root", api_read, 0},
    {"agent.guess", "the same with a guessed key", api_guess, 0},
    {0},
};
