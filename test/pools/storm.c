/* storm list | storm NAME SECONDS: does one thing as fast as four processes can, within the limits of the sandbox, for
 * some seconds; what it takes it gives back, so that no pool is filled. */

#include "base/util.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROCESSES   4
#define SECONDS_MAX 10
#define HELD_MAX    2000 /* things that a process holds at a time */

static void close_all(const int *fds, int n)
{
    for (int i = 0; i < n; i++)
        close(fds[i]);
}

/* Nothing of the kernel: what sharing the processors costs. */
static void spin(void)
{
    for (volatile int i = 0; i < 1000000; i++)
        ;
}

/* sched_setattr(2): how long its turns are, on Linux 6.12 and later 0.1 to 100 ms. */
static void ask_for_turns(uint64_t ns)
{
    const struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime_ns, deadline_ns, period_ns;
    } wish = {.size = 48, .runtime_ns = ns};

    (void)!syscall(SYS_sched_setattr, 0, &wish, 0);
}

static void long_turns(void)
{
    ask_for_turns(100000000);
    spin();
}

static void short_turns(void)
{
    ask_for_turns(100000);
    spin();
}

/* A single inode, many ranges: each open and close of it looks at them. */
static void locks_of(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    struct flock all = {.l_type = F_UNLCK};

    for (int i = 0; fd >= 0 && i < 10 * HELD_MAX; i++) {
        struct flock l = {.l_type = F_WRLCK, .l_start = 2 * (10 * HELD_MAX - i), .l_len = 1};
        fcntl(fd, F_SETLK, &l);
    }
    fcntl(fd, F_SETLK, &all);
    close(fd);
}

static void locks_device(void)
{
    locks_of("/dev/null");
}

static void locks_file(void)
{
    locks_of("/tmp/storm-locks");
}

static void hold(int (*make)(void))
{
    int fds[HELD_MAX], n = 0;

    for (; n < HELD_MAX && (fds[n] = make()) >= 0; n++)
        ;
    close_all(fds, n);
}

static int make_netlink(void)
{
    return socket(AF_NETLINK, SOCK_RAW, 0);
}

static int make_socket(void)
{
    return socket(AF_INET6, SOCK_STREAM, 0);
}

static int make_file(void)
{
    return open("/dev/null", O_RDONLY);
}

static int make_timer(void)
{
    int fd = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec soon = {{0, 1000000}, {0, 1000000}};

    timerfd_settime(fd, 0, &soon, NULL);
    return fd;
}

static int make_terminal(void)
{
    return open("/dev/ptmx", O_RDWR | O_NOCTTY);
}

static int make_watch(void)
{
    int fd = inotify_init1(0);

    inotify_add_watch(fd, "/tmp", IN_ALL_EVENTS);
    return fd;
}

static void netlink(void)
{
    hold(make_netlink);
}

static void sockets(void)
{
    hold(make_socket);
}

static void descriptors(void)
{
    hold(make_file);
}

static void timers(void)
{
    hold(make_timer);
}

static void terminals(void)
{
    hold(make_terminal);
}

static void watches(void)
{
    hold(make_watch);
}

static void pipes(void)
{
    static const char data[1 << 16];
    int fds[2];

    if (pipe2(fds, O_NONBLOCK) < 0)
        return;
    fcntl(fds[1], F_SETPIPE_SZ, 1 << 20);
    for (int i = 0; i < 16; i++)
        (void)!write(fds[1], data, sizeof(data));
    close_all(fds, 2);
}

static void datagrams(void)
{
    static const char data[8192];
    struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(sin);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);

    if (bind(fd, (struct sockaddr *)&sin, len) < 0 ||
        getsockname(fd, (struct sockaddr *)&sin, &len) < 0)
        return;
    for (int i = 0; i < 1000; i++)
        sendto(fd, data, sizeof(data), MSG_DONTWAIT, (struct sockaddr *)&sin, len);
    close(fd);
}

static void names(void)
{
    static unsigned at;
    struct stat st;
    char name[64];

    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof(name), "/usr/lib/storm-%d-%u", (int)getpid(), at++ % 20000);
        stat(name, &st);
    }
}

static void files(void)
{
    static unsigned at;
    char name[64];

    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof(name), "/var/tmp/storm-%d-%u", (int)getpid(), at++ % 100);
        close(open(name, O_CREAT | O_WRONLY, 0600));
        unlink(name);
    }
}

static void write_and(void (*flush)(int fd, char *at))
{
    static const char data[1 << 16];
    char name[64];

    snprintf(name, sizeof(name), "/var/tmp/storm-%d", (int)getpid());
    int fd = open(name, O_CREAT | O_RDWR, 0600);
    char *at = ftruncate(fd, 1 << 20) < 0
                   ? MAP_FAILED
                   : mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    for (int i = 0; at != MAP_FAILED && i < 16; i++) {
        (void)!pwrite(fd, data, sizeof(data), (off_t)i << 16);
        at[i << 16]++;
        flush(fd, at);
    }
    if (at != MAP_FAILED)
        munmap(at, 1 << 20);
    close(fd);
}

static void by_fsync(int fd, char *at)
{
    (void)at;
    fsync(fd);
}

static void by_sync(int fd, char *at)
{
    msync(at, 1 << 20, MS_SYNC);
    syncfs(fd);
    sync();
}

/* Starts the writes of the file itself, which is the one flush that is left. */
static void by_range(int fd, char *at)
{
    (void)at;
    sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
}

static void fsyncs(void)
{
    write_and(by_fsync);
}

static void syncs(void)
{
    write_and(by_sync);
}

static void ranges(void)
{
    write_and(by_range);
}

static void forks(void)
{
    pid_t pid = fork();

    if (pid == 0)
        _exit(0);
    waitpid(pid, NULL, 0);
}

static void memory(void)
{
    size_t size = (size_t)32 << 20;
    char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED)
        return;
    memset(at, 1, size);
    munmap(at, size);
}

static void segments(void)
{
    int id = shmget(IPC_PRIVATE, 1 << 16, 0600);

    shmctl(id, IPC_RMID, NULL);
}

static void words(void)
{
    static const char line[] = "a line that has to be carried away, and is never read\n";

    for (int i = 0; i < 100; i++)
        (void)!write(1, line, sizeof(line) - 1);
}

/* To where nothing may go: each is a connection of the way out, and a refusal. */
static void flows(void)
{
    static unsigned at;
    struct sockaddr_in sin = {.sin_family = AF_INET,
                              .sin_port = htons(9),
                              .sin_addr.s_addr = htonl(0x0a000001u + at++ % 1000)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

    (void)connect(fd, (struct sockaddr *)&sin, sizeof(sin));
    (void)!send(fd, "x", 1, MSG_DONTWAIT);
    usleep(200);
    close(fd);
}

static void questions(void)
{
    static const unsigned char question[] = "\0\1\1\0\0\1\0\0\0\0\0\0\3web\7example\3com\0\0\1\0";
    struct sockaddr_in sin = {
        .sin_family = AF_INET, .sin_port = htons(53), .sin_addr.s_addr = htonl(0x08080808)};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);

    for (int i = 0; i < 100; i++)
        sendto(fd, question, sizeof(question), MSG_DONTWAIT, (struct sockaddr *)&sin, sizeof(sin));
    close(fd);
}

static const struct {
    const char *name, *about;
    void (*once)(void);
} storms[] = {
    {"spin", "nothing but computing", spin},
    {"long_turns", "computing, in turns of 100 ms that are asked for", long_turns},
    {"short_turns", "computing, in turns of 0.1 ms", short_turns},
    {"locks_device", "20,000 range locks on its /dev/null, made and dropped", locks_device},
    {"locks_file", "the same on a file of its own", locks_file},
    {"netlink", "netlink sockets", netlink},
    {"sockets", "TCP sockets", sockets},
    {"descriptors", "open files", descriptors},
    {"timers", "timers that fire each millisecond", timers},
    {"terminals", "terminals", terminals},
    {"watches", "inotify watches", watches},
    {"pipes", "pipes of 1 MiB, filled", pipes},
    {"datagrams", "datagrams that are not read", datagrams},
    {"names", "names that are not there", names},
    {"files", "files made and removed", files},
    {"fsyncs", "writes, each with fsync", fsyncs},
    {"syncs", "writes, each with msync, syncfs and sync", syncs},
    {"ranges", "writes, each with sync_file_range", ranges},
    {"forks", "processes that end at once", forks},
    {"memory", "memory touched and given back", memory},
    {"segments", "System V segments", segments},
    {"words", "unread output", words},
    {"flows", "connections that are refused by policy", flows},
    {"questions", "questions to the resolver", questions},
};

static void run_for(void (*once)(void), int seconds)
{
    struct timespec now, begun;

    signal(SIGPIPE, SIG_IGN);
    alarm(SECONDS_MAX + 2);
    clock_gettime(CLOCK_MONOTONIC, &begun);
    do {
        once();
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - begun.tv_sec < seconds);
}

static int storm(void (*once)(void), int seconds)
{
    for (int i = 0; i < PROCESSES; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            run_for(once, seconds);
            _exit(0);
        }
    }
    while (wait(NULL) > 0)
        ;
    return 0;
}

int main(int argc, char **argv)
{
    for (size_t i = 0; i < ARRAY_SIZE(storms); i++) {
        if (argc == 2 && strcmp(argv[1], "list") == 0)
            printf("%s\t%s\n", storms[i].name, storms[i].about);
        if (argc == 3 && strcmp(argv[1], storms[i].name) == 0)
            return storm(storms[i].once, MIN(atoi(argv[2]), SECONDS_MAX));
    }
    if (argc == 2)
        return 0;
    fprintf(stderr, "usage: storm list | storm NAME SECONDS\n");
    return 2;
}
