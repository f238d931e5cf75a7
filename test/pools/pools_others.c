/* Everything but sockets: pipes, terminals, timers, watches, IPC, files, locks, names, mappings. */
#include "pools.h"

#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096

static size_t pipes(size_t want)
{
    static const char data[65536];
    size_t held = 0;

    while (held < want) {
        int fds[2];
        if (pipe2(fds, O_NONBLOCK) < 0)
            return held;
        int size = fcntl(fds[1], F_SETPIPE_SZ, 1 << 20);
        if (size < 0)
            return held;
        for (int i = 0; i < size / (int)sizeof(data); i++)
            (void)!write(fds[1], data, sizeof(data));
        held += (size_t)size;
    }
    return held;
}

/* Pipes of the least size, one byte in each page. */
static size_t pipes_small(size_t want)
{
    size_t n = pools_count(want, 2 * PAGE), made = 0;

    for (; made < n; made++) {
        int fds[2];
        if (pipe2(fds, O_NONBLOCK | O_DIRECT) < 0)
            break;
        (void)!write(fds[1], "x", 1);
        (void)!write(fds[1], "x", 1);
    }
    return made * 2 * PAGE;
}

/* Unread input, and output of the other side. */
static size_t terminals(size_t want)
{
    static const char data[4096];
    size_t n = pools_count(want, 65536), made = 0;

    for (; made < n; made++) {
        int master = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK), unlocked = 0, number = 0;
        char name[32];
        if (master < 0 || ioctl(master, TIOCSPTLCK, &unlocked) < 0 ||
            ioctl(master, TIOCGPTN, &number) < 0)
            break;
        snprintf(name, sizeof(name), "/dev/pts/%d", number);
        int slave = open(name, O_RDWR | O_NOCTTY | O_NONBLOCK);
        for (int i = 0; i < 64 && slave >= 0; i++) {
            (void)!write(slave, data, sizeof(data));
            (void)!write(master, data, sizeof(data));
        }
    }
    return made * 65536;
}

static size_t eventfds(size_t want)
{
    size_t n = pools_count(want, PAGE), made = 0;

    while (made < n && eventfd(0, 0) >= 0)
        made++;
    return made * PAGE;
}

static size_t timerfds(size_t want)
{
    size_t n = pools_count(want, PAGE), made = 0;

    while (made < n && timerfd_create(CLOCK_MONOTONIC, 0) >= 0)
        made++;
    return made * PAGE;
}

static size_t timers(size_t want)
{
    struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
    size_t n = MIN(want / 512, (size_t)40000), made = 0;
    timer_t t;

    while (made < n && timer_create(CLOCK_MONOTONIC, &e, &t) == 0)
        made++;
    return made * 512;
}

static size_t signals(size_t want)
{
    union sigval v = {0};
    sigset_t set;
    size_t n = MIN(want / 128, (size_t)150000), made = 0;

    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &set, NULL);
    while (made < n && sigqueue(getpid(), SIGRTMIN, v) == 0)
        made++;
    return made * 128;
}

/* Each descriptor in many sets. */
static size_t polls(size_t want)
{
    size_t n = MIN(want / 256, (size_t)60000), made = 0;
    int events[200];

    for (size_t i = 0; i < ARRAY_SIZE(events); i++)
        events[i] = eventfd(0, 0);
    while (made < n) {
        int ep = epoll_create1(0);
        if (ep < 0)
            break;
        for (size_t i = 0; i < ARRAY_SIZE(events); i++) {
            struct epoll_event e = {.events = EPOLLIN};
            if (epoll_ctl(ep, EPOLL_CTL_ADD, events[i], &e) < 0)
                return made * 256;
            made++;
        }
    }
    return made * 256;
}

static size_t watches(size_t want)
{
    size_t n = MIN(want / 2048, (size_t)8000), made = 0;
    int fd = inotify_init1(0);
    char name[64];

    for (; fd >= 0 && made < n; made++) {
        snprintf(name, sizeof(name), "/dev/shm/w%zu", made);
        if ((mkdir(name, 0700) < 0 && errno != EEXIST) ||
            inotify_add_watch(fd, name, IN_ALL_EVENTS) < 0)
            break;
    }
    return made * 2048;
}

/* Of which none is read. */
static size_t watch_events(size_t want)
{
    size_t held = 0;
    char name[300] = "/dev/shm/";

    memset(name + 9, 'n', 240);
    for (int s = 0; held < want && s < 120; s++) {
        int fd = inotify_init1(0);
        if (fd < 0 || inotify_add_watch(fd, "/dev/shm", IN_CREATE | IN_DELETE) < 0)
            break;
        for (int i = 0; held < want && i < 8000; i++) {
            snprintf(name + 249, 12, "%d", i);
            close(open(name, O_CREAT | O_WRONLY, 0600));
            unlink(name);
            held += (size_t)2 * 384 * ((size_t)s + 1);
        }
    }
    return held;
}

static size_t sysv_messages(size_t want)
{
    struct {
        long type;
        char text[8192];
    } m = {.type = 1};
    size_t held = 0;

    while (held < want) {
        int id = msgget(IPC_PRIVATE, 0600);
        if (id < 0)
            return held;
        for (int k = 0; k < 2; k++) {
            if (msgsnd(id, &m, sizeof(m.text), IPC_NOWAIT) < 0)
                break;
            held += sizeof(m.text);
        }
    }
    return held;
}

static size_t sysv_semaphores(size_t want)
{
    size_t held = 0;

    while (held < want) {
        if (semget(IPC_PRIVATE, 4000, 0600) < 0)
            return held;
        held += (size_t)4000 * 64;
    }
    return held;
}

static size_t sysv_segments(size_t want)
{
    size_t held = 0;

    while (held < want) {
        int id = shmget(IPC_PRIVATE, 1 << 20, 0600);
        char *at = id < 0 ? (char *)-1 : shmat(id, NULL, 0);
        if (at == (char *)-1)
            return held;
        memset(at, 1, 1 << 20);
        held += 1 << 20;
    }
    return held;
}

static size_t posix_messages(size_t want)
{
    static const char data[8192];
    struct mq_attr attr = {.mq_maxmsg = 10, .mq_msgsize = sizeof(data)};
    size_t held = 0;
    char name[32];

    for (int i = 0; held < want && i < 250; i++) {
        snprintf(name, sizeof(name), "/pools%d", i);
        mqd_t q = mq_open(name, O_CREAT | O_RDWR | O_NONBLOCK, 0600, &attr);
        if (q == (mqd_t)-1)
            return held;
        mq_unlink(name);
        for (int k = 0; k < 10 && mq_send(q, data, sizeof(data), 0) == 0; k++)
            held += sizeof(data);
    }
    return held;
}

static size_t fill_file(int fd, size_t want)
{
    static const char data[1 << 16];
    size_t held = 0;

    while (fd >= 0 && held < want) {
        ssize_t n = write(fd, data, sizeof(data));
        if (n <= 0)
            break;
        held += (size_t)n;
    }
    return held;
}

static size_t memfd(size_t want)
{
    return fill_file(memfd_create("pools", 0), want);
}

static size_t shared_memory(size_t want)
{
    return fill_file(open("/dev/shm/pools", O_CREAT | O_RDWR | O_TRUNC, 0600), want);
}

static size_t secret(size_t want)
{
    int fd = (int)syscall(447 /* memfd_secret */, 0);
    size_t bytes = MIN(want, (size_t)4 << 20);
    char *at = fd < 0 || ftruncate(fd, (off_t)bytes) < 0
                   ? MAP_FAILED
                   : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (at == MAP_FAILED)
        return 0;
    memset(at, 1, bytes);
    return bytes;
}

/* Pages of a pipe that were given by vmsplice stay after they are unmapped. */
static size_t spliced(size_t want)
{
    size_t held = 0;

    while (held < want) {
        int fds[2];
        char *at = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        struct iovec v = {at, 1 << 16};
        if (at == MAP_FAILED || pipe2(fds, O_NONBLOCK) < 0)
            return held;
        memset(at, 1, 1 << 16);
        ssize_t n = vmsplice(fds[1], &v, 1, SPLICE_F_NONBLOCK);
        munmap(at, 1 << 16);
        if (n <= 0)
            return held;
        held += (size_t)n;
    }
    return held;
}

static size_t inodes(size_t want)
{
    size_t n = MIN(want / 1024, (size_t)16000), made = 0;
    char name[64];

    mkdir("/dev/shm/inodes", 0700);
    for (; made < n; made++) {
        snprintf(name, sizeof(name), "/dev/shm/inodes/%zu", made);
        int fd = open(name, O_CREAT | O_WRONLY, 0600);
        if (fd < 0)
            break;
        close(fd);
    }
    return made * 1024;
}

static size_t attributes(size_t want)
{
    static const char value[1024];
    int fd = open("/dev/shm/attributes", O_CREAT | O_RDWR, 0600);
    size_t n = want / sizeof(value), made = 0;
    char name[32];

    for (; fd >= 0 && made < n; made++) {
        snprintf(name, sizeof(name), "user.%zu", made);
        if (fsetxattr(fd, name, value, sizeof(value), 0) < 0)
            break;
    }
    return made * sizeof(value);
}

/* Names that are not there, each of which is remembered. */
static size_t missing_names(const char *folder, size_t want)
{
    size_t n = MIN(want / 192, (size_t)80000);
    struct stat st;
    char name[64];

    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof(name), "%s/missing%zu", folder, i);
        stat(name, &st);
    }
    errno = 0;
    return n * 192;
}

static size_t missing_overlay(size_t want)
{
    return missing_names("/usr/lib", want);
}

static size_t missing_tmpfs(size_t want)
{
    return missing_names("/dev/shm", want);
}

static size_t missing_proc(size_t want)
{
    return missing_names("/proc/self/fd", want);
}

static size_t locks_of(const char *path, size_t want)
{
    int fd = open(path, O_CREAT | O_RDWR, 0600);
    size_t n = MIN(want / 192, (size_t)20000), made = 0;

    for (; fd >= 0 && made < n; made++) {
        struct flock l = {.l_type = F_WRLCK, .l_start = (off_t)(2 * (n - made)), .l_len = 1};
        if (fcntl(fd, F_SETLK, &l) < 0)
            break;
    }
    return made * 192;
}

static size_t locks(size_t want)
{
    return locks_of("/dev/shm/locks", want);
}

static size_t leases(size_t want)
{
    size_t n = pools_count(want, 1024), made = 0;
    char name[64];

    for (; made < n; made++) {
        snprintf(name, sizeof(name), "/dev/shm/lease%zu", made);
        int fd = open(name, O_CREAT | O_RDWR, 0600);
        if (fd < 0 || fcntl(fd, F_SETLEASE, F_WRLCK) < 0)
            break;
    }
    return made * 1024;
}

static size_t mappings(size_t want)
{
    size_t n = MIN(want / 256, (size_t)60000), made = 0;
    char *at = mmap(NULL, n * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    for (; at != MAP_FAILED && made + 1 < n; made += 2)
        if (mprotect(at + made * PAGE, PAGE, PROT_NONE) < 0)
            break;
    return made * 256;
}

/* A page of memory in each 2 MiB: as much again for the tables. */
static size_t page_tables(size_t want)
{
    size_t n = want / PAGE / 2, made = 0;
    char *at = mmap(NULL, n << 21, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    for (; at != MAP_FAILED && made < n; made++)
        at[made << 21] = 1;
    return made * PAGE * 2;
}

static int sleep_long(void *arg)
{
    (void)arg;
    pause();
    return 0;
}

static size_t threads(size_t want)
{
    size_t n = MIN(want / 32768, (size_t)400), made = 0;

    for (; made < n; made++) {
        char *stack = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                           0);
        if (stack == MAP_FAILED ||
            clone(sleep_long, stack + 4 * PAGE,
                  CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM,
                  NULL) < 0)
            break;
    }
    return made * 32768;
}

/* Memory policies, one for each page of a file in memory. */
static size_t policies(size_t want)
{
    size_t n = MIN(want / 256, (size_t)60000), made = 0;
    int fd = memfd_create("policies", 0);
    unsigned long nodes = 1;
    char *at = fd < 0 || ftruncate(fd, (off_t)(2 * n * PAGE)) < 0
                   ? MAP_FAILED
                   : mmap(NULL, 2 * n * PAGE, PROT_READ, MAP_SHARED, fd, 0);

    for (; at != MAP_FAILED && made < MIN(n, (size_t)30000); made++)
        if (syscall(SYS_mbind, at + 2 * made * PAGE, PAGE, 2 /* BIND */, &nodes, 64, 0) < 0)
            break;
    if (at != MAP_FAILED)
        munmap(at, 2 * n * PAGE);
    return made * 256;
}

static size_t huge(size_t want)
{
    char *at = mmap(NULL, 2 << 20, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);

    (void)want;
    if (at == MAP_FAILED)
        return 0;
    *at = 1;
    return 2 << 20;
}

const struct pool pools_others[] = {
    {"pipes", "pipes of the greatest size", pipes, ""},
    {"pipes_small", "pipes with a byte in each page", pipes_small, ""},
    {"terminals", "terminals with input and output that is not read", terminals, ""},
    {"eventfds", "eventfd", eventfds, ""},
    {"timerfds", "timerfd", timerfds, ""},
    {"timers", "POSIX timers", timers, ""},
    {"signals", "signals that wait", signals, ""},
    {"polls", "entries of epoll sets", polls, ""},
    {"watches", "inotify watches, each on a directory of its own", watches, ""},
    {"watch_events", "inotify events that are not read", watch_events, ""},
    {"sysv_messages", "System V messages", sysv_messages, ""},
    {"sysv_semaphores", "System V semaphores", sysv_semaphores, ""},
    {"sysv_segments", "System V segments", sysv_segments, ""},
    {"posix_messages", "POSIX messages", posix_messages, ""},
    {"memfd", "memfd", memfd, ""},
    {"shared_memory", "files in /dev/shm", shared_memory, ""},
    {"secret", "memfd_secret", secret, ""},
    {"spliced", "pages that were given to pipes", spliced, ""},
    {"inodes", "empty files in /dev/shm", inodes, ""},
    {"attributes", "extended attributes in /dev/shm", attributes, ""},
    {"missing_overlay", "names that are not there, in /usr", missing_overlay, ""},
    {"missing_tmpfs", "names that are not there, in /dev/shm", missing_tmpfs, ""},
    {"missing_proc", "names that are not there, in /proc", missing_proc, ""},
    {"locks", "POSIX locks", locks, ""},
    {"leases", "leases", leases, ""},
    {"mappings", "mappings", mappings, ""},
    {"page_tables", "a page in each 2 MiB", page_tables, ""},
    {"threads", "threads", threads, ""},
    {"policies", "memory policies of a memfd's pages", policies, ""},
    {"huge", "huge pages", huge, ""},
    {0},
};
