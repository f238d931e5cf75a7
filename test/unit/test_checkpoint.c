/* The words of the kernel about processes and mounts, and those of images, as cay-checkpoint
 * reads them. With real sandboxes and CRIU: test_checkpoint.py and test_checkpoint_restore.py in
 * test/scenario. */
#include "base/io.h"
#include "checkpoint/agent_socket.h"
#include "checkpoint/connections.h"
#include "checkpoint/criu.h"
#include "checkpoint/criu_image.h"
#include "checkpoint/dump_options.h"
#include "checkpoint/ipc_objects.h"
#include "checkpoint/notes.h"
#include "checkpoint/refusal.h"
#include "checkpoint/unsent.h"
#include "skip.h"
#include "sys/netlink.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define STATUS(state, nspid, tracer, nnp, filters)                                         \
    "Name:\tname\nUmask:\t0022\nState:\t" state "\nTgid:\t9\nPid:\t9\nTracerPid:\t" tracer \
    "\nNSpid:\t" nspid "\nVmSize:\t 100 kB\nNoNewPrivs:\t" nnp                             \
    "\nSeccomp:\t2\nSeccomp_filters:\t" filters "\nCpus_allowed:\t3\n"

static void threads_that_lose_something_are_refused(void **state)
{
    static const struct {
        const char *status, *told; /* NULL: it may be dumped */
    } cases[] = {
        {STATUS("S (sleeping)", "9", "0", "0", "3"), NULL},
        {STATUS("T (stopped)", "9", "0", "0", "3"), NULL},
        {STATUS("S (sleeping)", "9", "0", "1", "3"), "has set no_new_privs"},
        {STATUS("S (sleeping)", "9", "0", "0", "4"), "a system call filter of its own"},
        {STATUS("S (sleeping)", "9", "0", "0", "2"), "a system call filter of its own"},
        {STATUS("t (tracing stop)", "9", "7", "0", "3"), "traced by a debugger"},
        {STATUS("S (sleeping)", "9\t1", "0", "0", "3"), "a network of its own"},
        /* it has ended: nothing of it is kept but its status */
        {STATUS("Z (zombie)", "9", "0", "1", "0"), NULL},
        {STATUS("X (dead)", "9", "0", "1", "0"), NULL},
        /* what the kernel does not say is not taken for good */
        {"Name:\tname\nState:\tS (sleeping)\n", "traced"},
        {"", "traced"},
        /* a name of the tenant's, in which the kernel escapes line feeds */
        {"Name:\ta\\nState:\tZ\nState:\tS (sleeping)\nTracerPid:\t0\nNSpid:\t9\nNoNewPrivs:\t1\n"
         "Seccomp_filters:\t3\n",
         "has set no_new_privs"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct checkpoint_why why = {""};
        int rc = refusal_of(cases[i].status, "9", 3, &why);

        if (rc != (cases[i].told ? -EOPNOTSUPP : 0) ||
            (cases[i].told &&
             (!strstr(why.text, cases[i].told) || !strstr(why.text, "process 9 "))))
            fail_msg("case %zu: %d %s", i, rc, why.text);
    }
}

static void shared_mappings_of_memory_files_are_seen(void **state)
{
    static const struct {
        const char *line;
        bool seen;
    } cases[] = {
        {"7f00-7f01 rw-s 00000000 00:01 1034     /memfd:pool (deleted)\n", true},
        {"7f00-7f01 r--s 00001000 00:01 1034 /memfd: (deleted)\n", true},
        {"7f00-7f01 rw-p 00000000 00:01 1034     /memfd:pool (deleted)\n", false},
        {"7f00-7f01 r-xp 00001000 00:01 42826    /memfd:cay-init (deleted)\n", false},
        {"7f00-7f01 rw-s 00000000 00:01 1035     /dev/zero (deleted)\n", false},
        {"7f00-7f01 rw-s 00000000 00:22 77       /home/user/memfd:file\n", false},
        {"7f00-7f01 rw-p 00000000 00:00 0 \n", false},
        {"", false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        if (refusal_is_shared_memory_file(cases[i].line) != cases[i].seen)
            fail_msg("%s", cases[i].line);
}

#define SHM_HEAD                                                                             \
    "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid" \
    "  cgid      atime      dtime      ctime                   rss                  swap\n"
#define SHM_LINE(key, id, perms, creator)                                                         \
    key " " id "  " perms "                  4096     " creator "     0      0  1000  1000  1000" \
        "  1000          0          0 1796053406                     0                     0\n"

static void shared_memory_of_system_v_is_named(void **state)
{
    static const struct {
        const char *line, *told; /* NULL: it names none */
    } cases[] = {
        {SHM_HEAD, NULL},
        {"", NULL},
        {SHM_LINE("4660", "98305", " 666", "0"),
         "System V shared memory cannot be kept: id 98305, key 0x00001234, 4096 bytes, made by "
         "a process that has ended; ipcrm -m 98305 removes it"},
        {SHM_LINE("-2147483648", "2147483647", " 600", "4194305"),
         "System V shared memory cannot be kept: id 2147483647, key 0x80000000, 4096 bytes, made "
         "by a process that has ended; ipcrm -m 2147483647 removes it"},
        {SHM_LINE("0", "0", "1666", "0"),
         "System V shared memory cannot be kept: id 0, removed and still attached, 4096 bytes, "
         "made by a process that has ended"},
    };
    struct checkpoint_why why = {""};
    char line[256], told[64];

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        int rc = ipc_objects_of_line(cases[i].line, &why);

        if (rc != (cases[i].told ? -EOPNOTSUPP : 0) ||
            (cases[i].told && strcmp(why.text, cases[i].told) != 0))
            fail_msg("case %zu: %d %s", i, rc, why.text);
    }
    snprintf(line, sizeof(line), SHM_LINE("0", "0", " 600", "%d"), (int)getpid());
    snprintf(told, sizeof(told), "made by process %d;", (int)getpid());
    assert_int_equal(ipc_objects_of_line(line, &why), -EOPNOTSUPP);
    assert_non_null(strstr(why.text, told));
}

static void half_closed_connections_are_told(void **state)
{
    static const struct {
        unsigned state, unread, inode;
        bool is_half_closed;
    } cases[] = {
        {TCP_CLOSE_WAIT, 17, 12345, true},
        {TCP_CLOSE_WAIT, 1, 12345, false}, /* nothing is left to be read */
        {TCP_CLOSE_WAIT, 17, 0, false},    /* no program's */
        {TCP_LAST_ACK, 2, 7, true},
        {TCP_FIN_WAIT1, 0, 7, true},
        {TCP_FIN_WAIT2, 0, 99, true},
        {TCP_FIN_WAIT2, 0, 0, false},
        {TCP_CLOSING, 0, 7, true},
        {TCP_LISTEN, 0, 4711, false},
        {TCP_ESTABLISHED, 5, 31, false},
        {200, 5, 31, false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct inet_diag_msg m = {.idiag_state = (uint8_t)cases[i].state,
                                        .idiag_rqueue = cases[i].unread,
                                        .idiag_inode = cases[i].inode};

        if (connections_is_half_closed(&m) != cases[i].is_half_closed)
            fail_msg("case %zu", i);
    }
}

static void begun_connections_are_told(void **state)
{
    const struct inet_diag_msg begun = {.idiag_state = TCP_SYN_SENT, .idiag_inode = 7};
    const struct inet_diag_msg of_none = {.idiag_state = TCP_SYN_SENT};
    const struct inet_diag_msg whole = {.idiag_state = TCP_ESTABLISHED, .idiag_inode = 7};

    assert_true(connections_is_begun(&begun));
    assert_false(connections_is_begun(&of_none));
    assert_false(connections_is_begun(&whole));
}

static void listen_on(int fd, int family, struct sockaddr_storage *at, socklen_t *size)
{
    const struct sockaddr_in v4 = {.sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};

    assert_int_equal(family == AF_INET ? bind(fd, (const struct sockaddr *)&v4, sizeof(v4))
                                       : bind(fd, (const struct sockaddr *)&v6, sizeof(v6)),
                     0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)at, size), 0);
}

/* The two ends of a connection over loopback. */
static void connect_ends(int family, int ends[2])
{
    struct sockaddr_storage at;
    socklen_t size = sizeof(at);
    int door = socket(family, SOCK_STREAM, 0);

    listen_on(door, family, &at, &size);
    ends[0] = socket(family, SOCK_STREAM, 0);
    assert_int_equal(connect(ends[0], (const struct sockaddr *)&at, size), 0);
    ends[1] = accept(door, NULL, NULL);
    assert_true(ends[1] >= 0);
    close(door);
}

static void one_is_found_in(int family)
{
    bool found = true;
    int ends[2];

    connect_ends(family, ends);
    assert_int_equal(connections_find_half_closed(&found), 0);
    assert_false(found);
    assert_int_equal(shutdown(ends[0], SHUT_WR), 0);
    assert_int_equal(connections_find_half_closed(&found), 0);
    assert_true(found);
    close(ends[0]);
    close(ends[1]);
}

/* In a network namespace of the test's own, as there may be such connections on the machine. */
static void in_a_network(void (*run)(void))
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        if (unshare(CLONE_NEWNET) < 0 || netlink_setup_loopback() < 0)
            _exit(1);
        run();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void in_either_family(void)
{
    one_is_found_in(AF_INET);
    one_is_found_in(AF_INET6);
}

static void unsent_is_found_in(int family)
{
    static char bytes[1 << 20];
    bool found = true;
    int ends[2];

    connect_ends(family, ends);
    assert_int_equal(send(ends[0], bytes, 1000, 0), 1000); /* there is room for these */
    assert_int_equal(recv(ends[1], bytes, 1000, MSG_WAITALL | MSG_PEEK), 1000);
    assert_int_equal(unsent_find(&found), 0);
    assert_false(found);
    assert_true(send(ends[0], bytes, sizeof(bytes), MSG_DONTWAIT) > 0);
    assert_int_equal(unsent_find(&found), 0);
    assert_true(found);
    close(ends[0]);
    close(ends[1]);
}

static void unsent_in_either_family(void)
{
    bool found = true;

    assert_int_equal(unsent_find(&found), 0);
    assert_false(found);
    unsent_is_found_in(AF_INET);
    unsent_is_found_in(AF_INET6);
}

static void unsent_bytes_are_found_in_either_family(void **state)
{
    NEEDS_ROOT;
    in_a_network(unsent_in_either_family);
}

static void a_half_closed_connection_is_found_in_either_family(void **state)
{
    NEEDS_ROOT;
    in_a_network(in_either_family);
}

/* An abstract name, bound as door, or connected to. */
static int at_name(int type, const char *text, bool is_door)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(text));
    int fd = socket(AF_UNIX, type, 0);

    memcpy(name.sun_path + 1, text, strlen(text));
    if (is_door) {
        assert_int_equal(bind(fd, (const struct sockaddr *)&name, size), 0);
        assert_int_equal(listen(fd, 4), 0);
    } else {
        assert_int_equal(connect(fd, (const struct sockaddr *)&name, size), 0);
    }
    return fd;
}

static void only_those_that_wait_at_its_own(void)
{
    static const struct {
        int type;
        const char *name;
    } others[] = {
        {SOCK_STREAM, "cay-init"}, {SOCK_SEQPACKET, "cay-init2"}, {SOCK_SEQPACKET, "cay"}};
    int door = at_name(SOCK_SEQPACKET, "cay-init", true);
    bool found = true;

    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        at_name(others[i].type, others[i].name, true);
        at_name(others[i].type, others[i].name, false);
    }
    assert_int_equal(agent_socket_find_waiting(&found), 0);
    assert_false(found);
    int fd = at_name(SOCK_SEQPACKET, "cay-init", false);
    assert_int_equal(agent_socket_find_waiting(&found), 0);
    assert_true(found);
    close(fd); /* it waits there still */
    assert_int_equal(agent_socket_find_waiting(&found), 0);
    assert_true(found);
    assert_true(accept(door, NULL, NULL) >= 0);
    assert_int_equal(agent_socket_find_waiting(&found), 0);
    assert_false(found);
}

static void connections_that_wait_for_cay_init_are_found(void **state)
{
    NEEDS_ROOT;
    in_a_network(only_those_that_wait_at_its_own);
}

static void numbers_of_processes_are_not_shown(void **state)
{
    static const struct {
        const char *line, *shown; /* NULL: as it is */
    } cases[] = {
        {"CRIU: Error (criu/cr-dump.c:1545): Dump files (pid: 16830) failed with -1",
         "CRIU: Error (criu/cr-dump.c:1545): Dump files (pid: ?) failed with -1"},
        {"CRIU: Error (a.c:1): 16830 exited with 3, 16831 (python3), pid 16832's, pid=7",
         "CRIU: Error (a.c:1): ? exited with 3, ? (python3), pid ?'s, pid=?"},
        {"CRIU: Error (a.c:1): /proc/4711/maps of 12(34), fd 3 on pid 5",
         "CRIU: Error (a.c:1): /proc/?/maps of ?(?), fd 3 on pid ?"},
        {"CRIU: Error (criu/files.c:496): Can't dump file 3 of that type [100600] (unknown)", NULL},
        {"CRIU: Error (a.c:1): in-flight socket to 0x9a7388 at /home/2024/data7.txt", NULL},
        {"CRIU: Error (a.c:1): ", NULL},
        {"16830", "?"},
        {"", NULL},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[160];

        snprintf(text, sizeof(text), "%s", cases[i].line);
        criu_hide_numbers(text);
        assert_string_equal(text, cases[i].shown ? cases[i].shown : cases[i].line);
    }
}

static void words_of_criu_tell_what_the_host_lacks_from_what_it_does_not_keep(void **state)
{
    static const struct {
        const char *line;
        int rc;
    } cases[] = {
        {"CRIU: Error (criu/files.c:496): Can't dump file 3 of that type [100600] (unknown)",
         -EOPNOTSUPP},
        {"CRIU: Error (criu/sk-unix.c:1): Can't dump half of stream unix connection.", -EOPNOTSUPP},
        {"CRIU: Error (criu/image.c:1): Unable to open pages-1.img: No space left on device",
         -ENOSPC},
        {"CRIU: Error (criu/page-xfer.c:1): Unable to write: File too large", -EFBIG},
        {"CRIU: Error (criu/mem.c:1): Can't map: Cannot allocate memory", -ENOMEM},
        {"CRIU: Error (criu/pipes.c:1): Can't create pipe: Too many open files", -EMFILE},
        {"CRIU: Error (criu/bfd.c:1): Error flushing image: Input/output error", -EIO},
        {"CRIU: Error (criu/action-scripts.c:97): Script /proc/?/exe exited with -1", -EIO},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_int_equal(refusal_of_criu(cases[i].line), cases[i].rc);
}

/* As CRIU writes it where its action script was killed: that its processes cannot be let go of as
 * they are, which follows, is of no process. */
static void the_cause_is_one_line_of_the_log(void **state)
{
#define LIMIT  "Error (criu/util.c:1): rlimit: Can't setup RLIMIT_NOFILE for self: not permitted\n"
#define KILLED "Error (criu/util.c:660): killed by signal 9: Killed\n"
#define SCRIPT "Error (criu/action-scripts.c:97): Script /proc/9/exe exited with -1\n"
#define DETACH "Error (compel/src/lib/infect.c:417): Unable to detach from 9: No such process\n"
#define FAILED "Error (criu/cr-dump.c:1975): Dumping FAILED.\n"
    static const struct {
        const char *log;
        bool is_restore;
        const char *cause;
    } cases[] = {
        {LIMIT KILLED SCRIPT "Error (criu/cr-dump.c:2011): failed with -1!\n" DETACH FAILED, false,
         SCRIPT},
        {LIMIT KILLED DETACH FAILED, false, DETACH},
        {LIMIT KILLED DETACH, true, KILLED},
        {LIMIT FAILED, false, FAILED},
        {LIMIT, false, NULL},
        {"", true, NULL},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *cause = criu_cause(cases[i].log, cases[i].is_restore);

        assert_int_equal(cause != NULL, cases[i].cause != NULL);
        if (cause)
            assert_memory_equal(cause, cases[i].cause, strlen(cases[i].cause));
    }
}

static void mounts_are_external_but_those_that_criu_makes(void **state)
{
    static const struct {
        const char *line, *path; /* NULL: CRIU is not told of it */
    } cases[] = {
        {"681 53 0:196 / / rw,nodev,relatime - overlay overlay rw,lowerdir=lower:view", NULL},
        {"685 681 0:198 / /usr rw,nodev,relatime - overlay overlay rw", "/usr"},
        {"700 686 0:202 / /dev/pts rw,nosuid - devpts devpts rw,mode=620", NULL},
        {"702 681 0:203 / /proc rw,nosuid - proc proc rw", NULL},
        {"704 702 0:203 /sys /proc/sys ro,nosuid - proc proc rw", NULL}, /* part of /proc */
        {"743 702 0:194 /dev/null /proc/cgroups rw,nosuid master:5 - tmpfs tmpfs rw",
         "/proc/cgroups"},
        {"704 702 0:203 /sys", NULL},
        {"", NULL},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char path[WORD_PATH] = "";

        assert_int_equal(words_mount(cases[i].line, "", path), cases[i].path != NULL);
        if (cases[i].path)
            assert_string_equal(path, cases[i].path);
    }
}

/* Of this process, which has mounts of its own: the words end with NULL, and none is cut. */
static void options_of_a_process_are_whole(void **state)
{
    static struct words o;
    struct checkpoint_why why = {""};
    int rc = dump_options_make(&o, getpid(), "/proc/1/exe", &why);

    if (rc == -E2BIG || rc == -ENAMETOOLONG) /* a machine of very many, or deep, mounts */
        SKIP("this machine's mounts are not like a sandbox's");
    assert_int_equal(rc, 0);
    assert_string_equal(o.argv[0], CHECKPOINT_CRIU);
    assert_string_equal(o.argv[1], "dump");
    assert_string_equal(o.argv[o.n - 2], "--external");
    assert_int_equal(strncmp(o.argv[o.n - 1], "file[", 5), 0);
    assert_null(o.argv[o.n]);
}

/* Of a restore: those below its root, at the path that they have there. */
static void mounts_below_a_root_are_told_by_their_path(void **state)
{
    static const struct {
        const char *line, *path;
    } cases[] = {
        {"681 53 0:196 / /tmp/root rw - overlay overlay rw", NULL},
        {"685 681 0:198 / /tmp/root/usr rw - overlay overlay rw", "/usr"},
        {"685 681 0:198 / /tmp/root/dev/pts rw - devpts devpts rw", NULL},
        {"685 681 0:198 / /tmp/rootless rw - tmpfs tmpfs rw", NULL},
        {"685 681 0:198 / /tmp rw - tmpfs tmpfs rw", NULL},
        {"685 681 0:198 / /usr rw - ext4 ext4 rw", NULL},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char path[WORD_PATH] = "";

        assert_int_equal(words_mount(cases[i].line, "/tmp/root", path), cases[i].path != NULL);
        if (cases[i].path)
            assert_string_equal(path, cases[i].path);
    }
}

/* -- images ------------------------------------------------------------------------------------ */

static void notes_come_back(void **state)
{
    static const char *const bad[] = {"",
                                      "program file[1:2]",
                                      "program file[1:2]\nmonotonic 1 2\nboottime 3",
                                      "program file[1:2]\nmonotonic -1 2\nboottime 3 4",
                                      "program file[1:2]\nmonotonic 1 1000000000\nboottime 3 4",
                                      "program seccomp\nmonotonic 1 2\nboottime 3 4",
                                      "program file[1:2]x\nmonotonic 1 2\nboottime 3 4",
                                      "program file[1:2\nmonotonic 1 2\nboottime 3 4"};
    struct notes n = {.program = "file[1a:2b]", .monotonic = {5, 6}, .boottime = {7, 999999999}},
                 out;
    char dir[] = "/tmp/cay-notes-XXXXXX";

    assert_non_null(mkdtemp(dir));
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(notes_read(fd, &out), -ENOENT);
    assert_int_equal(notes_write(fd, &n), 0);
    assert_int_equal(notes_write(fd, &n), -EEXIST);
    assert_int_equal(notes_read(fd, &out), 0);
    assert_string_equal(out.program, n.program);
    assert_memory_equal(&out.monotonic, &n.monotonic, sizeof(n.monotonic));
    assert_memory_equal(&out.boottime, &n.boottime, sizeof(n.boottime));
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        assert_int_equal(io_replace_file_at(fd, NOTES_FILE, bad[i], strlen(bad[i]), 0600), 0);
        if (notes_read(fd, &out) != -EINVAL)
            fail_msg("taken: %s", bad[i]);
    }
    assert_int_equal(unlinkat(fd, NOTES_FILE, 0), 0);
    close(fd);
    assert_int_equal(rmdir(dir), 0);
}

/* Files as CRIU writes them, of PID 1 with a thread 3, its child 2, and a zombie 4. */
#define HEAD(magic)   "\x19\x43\x56\x54" magic
#define PSTREE        HEAD("\x30\x30\x27\x50")
#define CORE          HEAD("\x47\x38\x05\x55")
#define MM            HEAD("\x20\x28\x49\x57")
#define PAGEMAP       HEAD("\x25\x40\x08\x56")
#define LIVES         CORE "\x06\0\0\0\x08\x01\x1a\x02\x08\x01"
#define ZOMBIE        CORE "\x06\0\0\0\x08\x01\x1a\x02\x08\x02"
#define TEXT(...)     __VA_ARGS__, sizeof(__VA_ARGS__) - 1
#define PROCESS(a, b) "\x0a\0\0\0\x08" a "\x10" b "\x18\x01\x20\x01\x28" a
#define ZOMBIE_4      "\x0a\0\0\0\x08\x04\x10\x01\x18\x01\x20\x01\x28\x09" /* its thread: any number */
#define PROCESS_1     "\x0c\0\0\0\x08\x01\x10\x00\x18\x01\x20\x01\x28\x01\x28\x03"

struct image_file {
    const char *name, *bytes;
    size_t n;
};

static const struct image_file whole[] = {
    {"pstree.img", TEXT(PSTREE PROCESS_1 PROCESS("\x02", "\x01") ZOMBIE_4)},
    {"core-1.img", TEXT(LIVES)},
    {"core-2.img", TEXT(LIVES)},
    {"core-3.img", TEXT(LIVES)},
    {"core-4.img", TEXT(ZOMBIE)},
    {"mm-1.img", TEXT(MM "\0\0\0\0")},
    {"mm-2.img", TEXT(MM "\0\0\0\0")},
    {"pagemap-1.img", TEXT(PAGEMAP "\0\0\0\0")},
    {"pagemap-2.img", TEXT(PAGEMAP "\0\0\0\0")},
};

static void put(int dir_fd, const struct image_file *f)
{
    assert_int_equal(io_replace_file_at(dir_fd, f->name, f->bytes, f->n, 0600), 0);
}

static void an_image_lacks_nothing(void **state)
{
    static const struct image_file changed[] = {
        {"pstree.img", TEXT(PSTREE)},
        {"pstree.img", TEXT(PSTREE PROCESS("\x02", "\x01"))},
        {"pstree.img", TEXT(PSTREE PROCESS_1 "\x0a\0\0\0\x08\x02")},
        {"pstree.img", TEXT(PSTREE PROCESS_1 "\x0a\0")},
        {"pstree.img", TEXT(PSTREE PROCESS_1 "\xff\xff\xff\xff\x08\x02")},
        {"pstree.img", TEXT(PSTREE PROCESS_1 "\x02\0\0\0\x10\x01")},
        {"pstree.img", TEXT(PSTREE PROCESS_1 "\x07\0\0\0\x08\x02\x10\x01\x2a\x7f\x01")},
        {"core-1.img", TEXT(CORE "\x06\0\0\0\x08\x01\x1a\x7f\x08\x01")},
        {"core-1.img", TEXT(CORE "\x02\0\0\0\x08\x01")},
        {"core-1.img", TEXT(MM "\x06\0\0\0\x08\x01\x1a\x02\x08\x01")},
        {"mm-2.img", TEXT(CORE "\0\0\0\0")},
        {"mm-2.img", TEXT(MM)},
        {"pagemap-1.img", TEXT("")},
    };
    struct checkpoint_why why;
    char dir[] = "/tmp/cay-image-XXXXXX";

    assert_non_null(mkdtemp(dir));
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; i < ARRAY_SIZE(whole); i++)
        put(fd, &whole[i]);
    assert_int_equal(criu_image_check(fd, &why), 0);
    for (size_t i = 0; i < ARRAY_SIZE(whole); i++) {
        assert_int_equal(unlinkat(fd, whole[i].name, 0), 0);
        if (criu_image_check(fd, &why) == 0)
            fail_msg("taken without %s", whole[i].name);
        put(fd, &whole[i]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(changed); i++) {
        put(fd, &changed[i]);
        if (criu_image_check(fd, &why) == 0)
            fail_msg("change %zu of %s is taken", i, changed[i].name);
        for (size_t j = 0; j < ARRAY_SIZE(whole); j++)
            put(fd, &whole[j]);
    }
    assert_int_equal(criu_image_check(fd, &why), 0);
    for (size_t i = 0; i < ARRAY_SIZE(whole); i++)
        assert_int_equal(unlinkat(fd, whole[i].name, 0), 0);
    close(fd);
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_that_lose_something_are_refused),
        cmocka_unit_test(shared_mappings_of_memory_files_are_seen),
        cmocka_unit_test(shared_memory_of_system_v_is_named),
        cmocka_unit_test(half_closed_connections_are_told),
        cmocka_unit_test(begun_connections_are_told),
        cmocka_unit_test(a_half_closed_connection_is_found_in_either_family),
        cmocka_unit_test(unsent_bytes_are_found_in_either_family),
        cmocka_unit_test(connections_that_wait_for_cay_init_are_found),
        cmocka_unit_test(numbers_of_processes_are_not_shown),
        cmocka_unit_test(words_of_criu_tell_what_the_host_lacks_from_what_it_does_not_keep),
        cmocka_unit_test(the_cause_is_one_line_of_the_log),
        cmocka_unit_test(mounts_are_external_but_those_that_criu_makes),
        cmocka_unit_test(options_of_a_process_are_whole),
        cmocka_unit_test(mounts_below_a_root_are_told_by_their_path),
        cmocka_unit_test(notes_come_back),
        cmocka_unit_test(an_image_lacks_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
