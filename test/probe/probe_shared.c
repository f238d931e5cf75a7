/* Objects that two sandboxes, or one and the host, could have in common (class 16): an inode, a path, a number.
 * The test has locks of the host's on the byte LOCKED_BYTE of what stands in `nodes` and of LOWER_FILE. */
#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOCKED_BYTE 0x0ca1ca1
#define LOWER_FILE  "/usr/bin/env"
#define PAGE_FILE   "/usr/lib/os-release"
#define IDS_MAX     65535 /* of a sandbox */

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif
#ifndef TCP_ULP
#define TCP_ULP 31
#endif
#ifndef PR_SCHED_CORE
#define PR_SCHED_CORE 62
#endif

static const char *const nodes[] = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random",
                                    "/dev/urandom"};

/* Whether another process has a lock there. */
static bool is_locked(const char *path, int flags)
{
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LOCKED_BYTE, .l_len = 1};
    int fd = open(path, flags);
    bool locked = fd >= 0 && fcntl(fd, F_GETLK, &l) == 0 && l.l_type != F_UNLCK;

    if (fd >= 0)
        close(fd);
    return locked;
}

static void node_locks(struct finding *f)
{
    found_refused(f, "no lock of the host's is there");
    for (size_t i = 0; i < ARRAY_SIZE(nodes) && f->verdict == REFUSED; i++)
        if (is_locked(nodes[i], O_RDWR))
            found_open(f, "a lock of the host's on %s", nodes[i]);
}

static void file_locks(struct finding *f)
{
    if (is_locked(LOWER_FILE, O_RDONLY))
        found_open(f, "a lock of the host's on " LOWER_FILE);
    else
        found_refused(f, "no lock of the host's is there");
}

/* Whether the first page of a file of the template is in memory, as far as this user is told: it has read it. */
static bool is_kept(int fd, void (*advise)(int fd, void *page))
{
    unsigned char seen = 0;
    char byte;
    void *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);

    if (page == MAP_FAILED || pread(fd, &byte, 1, 0) != 1)
        return true;
    if (mincore(page, 4096, &seen) < 0 || !(seen & 1))
        return true; /* nothing can be told */
    advise(fd, page);
    return mincore(page, 4096, &seen) < 0 || (seen & 1);
}

static void forget_by_file(int fd, void *page)
{
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

static void forget_by_page(int fd, void *page)
{
    char byte = *(volatile char *)page; /* it is mapped now */

    (void)byte;
    (void)madvise(page, 4096, MADV_PAGEOUT);
}

/* The kernel keeps a page that another process has mapped at that moment, and one that waits in a processor's batch of
 * pages to be sorted, which the calls empty for the processor that they run on alone (lru_add_drain): each try is made
 * whole on one processor, and they take turns. */
static void run_on(const cpu_set_t *all, int turn)
{
    cpu_set_t one;

    turn %= CPU_COUNT(all) > 0 ? CPU_COUNT(all) : 1;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, all) && turn-- == 0)
            CPU_SET(cpu, &one);
    (void)sched_setaffinity(0, sizeof(one), &one);
}

static void forget(struct finding *f, void (*advise)(int fd, void *page))
{
    int fd = open(PAGE_FILE, O_RDONLY);
    bool kept = true;
    cpu_set_t all;

    CPU_ZERO(&all);
    (void)sched_getaffinity(0, sizeof(all), &all);
    for (int i = 0; i < 10 && fd >= 0 && kept; i++) {
        usleep(i > 0 ? 10000 : 0);
        run_on(&all, i);
        kept = is_kept(fd, advise);
    }
    (void)sched_setaffinity(0, sizeof(all), &all);
    if (fd < 0)
        found_none(f, PAGE_FILE ": %s", strerror(errno));
    else if (kept)
        found_refused(f, PAGE_FILE " stays in memory");
    else
        found_open(f, PAGE_FILE " was thrown out of memory, for all");
}

static void page_cache(struct finding *f)
{
    forget(f, forget_by_file);
}

static void page_out(struct finding *f)
{
    forget(f, forget_by_page);
}

/* A lock that is there, so that an empty list tells of a mask. */
static void list_locks(struct finding *f)
{
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    char text[256] = "";
    int own = open("/tmp", O_TMPFILE | O_RDWR, 0600), fd = open("/proc/locks", O_RDONLY);

    if (own < 0 || fcntl(own, F_SETLK, &l) < 0)
        found_none(f, "no lock of its own: %s", strerror(errno));
    else if (fd >= 0 && read(fd, text, sizeof(text) - 1) > 0)
        found_open(f, "%.60s", text);
    else
        found_refused(f, "/proc/locks: %s", fd < 0 ? strerror(errno) : "empty");
}

static void read_pressure(struct finding *f)
{
    char text[128] = "";
    int fd = open("/proc/pressure/cpu", O_RDONLY);

    if (fd >= 0 && read(fd, text, sizeof(text) - 1) > 0)
        found_open(f, "%.60s", text);
    else
        found_refused(f, "/proc/pressure/cpu: %s", strerror(errno));
}

/* The number after key= in a line of mountinfo; -1: it has none. */
static long option(const char *line, const char *key)
{
    const char *at = strstr(line, key);
    return at ? strtol(at + strlen(key), NULL, 10) : -1;
}

static void mount_ids(struct finding *f)
{
    char line[1024];
    FILE *file = fopen("/proc/self/mountinfo", "re");

    found_refused(f, "no mount tells an id of the host");
    while (file && f->verdict == REFUSED && fgets(line, sizeof(line), file))
        if (option(line, ",uid=") > IDS_MAX || option(line, ",gid=") > IDS_MAX ||
            option(line, " rw,gid=") > IDS_MAX)
            found_open(f, "%.100s", strstr(line, " - "));
    if (file)
        fclose(file);
}

static void cgroup_path(struct finding *f)
{
    char line[256];
    FILE *file = fopen("/proc/self/cgroup", "re");

    if (!file) {
        found_none(f, "/proc/self/cgroup: %s", strerror(errno));
        return;
    }
    found_refused(f, "all paths are /");
    while (f->verdict == REFUSED && fgets(line, sizeof(line), file)) {
        const char *path = strrchr(line, ':');
        if (path && strcmp(path, ":/\n") != 0)
            found_open(f, "%.60s", line);
    }
    fclose(file);
}

/* To one without an owner, which is taken on for good where it may be: in a child of the probe, which ends. */
static void login_uid(struct finding *f)
{
    int fd = open("/proc/self/loginuid", O_WRONLY);

    if (fd < 0)
        found_refused(f, "/proc/self/loginuid: %s", strerror(errno));
    else
        found_call(f, "write to /proc/self/loginuid", write(fd, "1000", 4));
}

static void line_discipline(struct finding *f)
{
    int usual = 0, fd = probe_terminal();

    if (fd < 0)
        found_none(f, "no terminal: %s", strerror(errno));
    else
        found_call(f, "TIOCSETD", ioctl(fd, TIOCSETD, &usual));
}

/* A protocol that does not exist: a kernel that looks for it says so. */
static void upper_protocol(struct finding *f)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int rc = fd < 0 ? -1 : setsockopt(fd, IPPROTO_TCP, TCP_ULP, "cay-none", 8);

    if (rc < 0 && fd >= 0 && errno != ENOPROTOOPT)
        found_open(f, "TCP_ULP was looked for: %s", strerror(errno));
    else
        found_call(f, "TCP_ULP", rc);
}

static void core_scheduling(struct finding *f)
{
    int rc = prctl(PR_SCHED_CORE, 1 /* CREATE */, 0, 0 /* a thread */, 0);

    if (rc < 0 && errno != EINVAL)
        found_open(f, "PR_SCHED_CORE was looked at: %s", strerror(errno));
    else
        found_call(f, "PR_SCHED_CORE", rc);
}

/* --- locks on ranges --------------------------------------------------------------------------- */

#define LOCK_FILES    200
#define LOCKS_OF_FILE 200 /* the kernel goes through all of one file's for each */
#define LOCKS_WAIT_US 2000000
#define STILL_HELD    1

/* 40,000 of them: 8 MiB that no limit sees. */
NORETURN static void lock_ranges(void)
{
    char path[64];

    for (int i = 0; i < LOCK_FILES; i++) {
        snprintf(path, sizeof(path), "/tmp/probe-locks-%d", i);
        int fd = open(path, O_RDWR | O_CREAT, 0600);
        (void)unlink(path);
        for (int j = 0; j < LOCKS_OF_FILE; j++) {
            struct flock l = {
                .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 2L * j, .l_len = 1};
            if (fd < 0 || fcntl(fd, F_SETLK, &l) < 0)
                _exit(2);
        }
    }
    usleep(LOCKS_WAIT_US);
    _exit(STILL_HELD);
}

static void many_locks(struct finding *f)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0)
        lock_ranges();
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        found_none(f, "no process: %s", strerror(errno));
    else if (WIFEXITED(status) && WEXITSTATUS(status) == STILL_HELD)
        found_open(f, "%d locks were held for two seconds", LOCK_FILES * LOCKS_OF_FILE);
    else if (WIFSIGNALED(status))
        found_refused(f, "who held too many was ended by signal %d", WTERMSIG(status));
    else
        found_none(f, "files in /tmp cannot be locked");
}

const struct probe_case probe_shared_cases[] = {
    {"share.node_locks", "a lock of the host's on a device node", node_locks, 1},
    {"share.file_locks", "a lock of the host's on a file of the template", file_locks, 1},
    {"share.page_cache", "throw a file of the template out of memory, for all", page_cache, 1},
    {"share.page_out", "the same by its mapping", page_out, 1},
    {"proc.locks", "read what locks there are", list_locks, 1},
    {"proc.pressure", "read how busy the host is, to the microsecond", read_pressure, 1},
    {"id.mounts", "read the slot's ids of the host from the mounts", mount_ids, 0},
    {"id.login", "have one's deeds noted as another's by the host's audit", login_uid, 0},
    {"cgroup.root", "read where the own control group stands", cgroup_path, 1},
    {"kernel.tiocsetd", "have the host load a line discipline", line_discipline, 1},
    {"kernel.tcp_ulp", "have the host load a protocol on top of TCP", upper_protocol, 1},
    {"kernel.sched_core", "decide on who shares a core", core_scheduling, 1},
    {"pool.locks", "locks on ranges of files, uncharged", many_locks, 1},
    {0},
};
