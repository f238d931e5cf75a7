/* Starts real sandboxes with a stand-in for cay-init and looks at them from both sides. As root only. */

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "runtime/runtime.h"
#include "skip.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#define MIB (UINT64_C(1) << 20)
static char cgroup_name[32]; /* of this run: others may be at work on the machine */

/* Ranges of the test's own: a server may be running, or the same test of another tree. */
static uint32_t uid_base(void)
{
    const char *given = getenv("CAY_TEST_UID_BASE");
    return given ? (uint32_t)strtoul(given, NULL, 10) : 0xb0000000u;
}

static char state_dir[64];
static struct runtime *rt;
static const struct runtime_driver *driver;
static const char *skip_reason;
static bool in_memory; /* the other disk back end: RUNTIME_DISK=memory */

struct box {
    struct runtime_slot slot;
    struct runtime_started started;
    int boot_fd;
    uint64_t slot_us, start_us;
};

static void await_task(struct task *t)
{
    struct pollfd p = {.fd = t->pidfd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 20000), 1);
}

static void box_slot(struct box *b, uint32_t number, uint32_t gen)
{
    struct task t = TASK_NONE;
    uint32_t stage = 0;
    uint64_t before = clock_mono_us();
    b->slot = RUNTIME_SLOT_NONE;
    b->slot.number = number;
    b->slot.gen = gen;
    assert_int_equal(driver->slot_begin(rt, number, gen, &t), 0);
    await_task(&t);
    int rc = driver->slot_finish(rt, &t, &b->slot, &stage);
    if (rc < 0)
        fail_msg("slot: %s at stage %u", strerror(-rc), stage);
    b->slot_us = clock_mono_us() - before;
}

static struct runtime_sandbox of_box(const struct box *b)
{
    return (struct runtime_sandbox){
        .slot = b->slot.number, .gen = b->slot.gen, .pidfd = b->started.pidfd};
}

static int box_try_start(struct box *b, uint32_t template_number,
                         const struct privsep_limits *limits, uint32_t *stage)
{
    struct task t = TASK_NONE;
    struct runtime_start start = {.template_number = template_number, .limits = *limits};
    struct runtime_claim claim = {0};
    uint64_t before = clock_mono_us();
    snprintf(claim.id, sizeof(claim.id), "itest%u", b->slot.number);
    memset(claim.key, 'k', sizeof(claim.key));
    b->boot_fd = -1;
    assert_int_equal(driver->start_begin(rt, &b->slot, &start, &t, &b->boot_fd), 0);
    await_task(&t);
    int rc = driver->start_finish(rt, &t, &b->started, stage);
    if (rc < 0) {
        close(b->boot_fd);
        return rc;
    }
    const struct runtime_sandbox sb = of_box(b);
    assert_int_equal(driver->claim(rt, &sb, b->boot_fd, &claim), 0);
    char ready = 0;
    struct pollfd p = {.fd = b->boot_fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 20000), 1);
    assert_int_equal(read(b->boot_fd, &ready, 1), 1);
    assert_int_equal(ready, AGENT_READY);
    b->start_us = clock_mono_us() - before;
    assert_int_equal(io_set_nonblock(b->boot_fd, false), 0);
    driver->slot_close(&b->slot);
    return 0;
}

static const struct privsep_limits small = {.memory_bytes = 128 * MIB,
                                            .disk_bytes = 64 * MIB,
                                            .cpu_milli = 1000,
                                            .pids = 64,
                                            .open_files = 1024};

/* In a slot that was made before, or made by the same task. */
static void box_start_how(struct box *b, uint32_t number, uint32_t gen, bool in_slot)
{
    uint32_t stage = 0;
    b->slot = RUNTIME_SLOT_NONE;
    b->slot.number = number;
    b->slot.gen = gen;
    b->slot_us = 0;
    if (in_slot)
        box_slot(b, number, gen);
    int rc = box_try_start(b, PRIVSEP_TEMPLATE_HOST, &small, &stage);
    if (rc < 0)
        fail_msg("start: %s at stage %u", strerror(-rc), stage);
}

static void box_start(struct box *b, uint32_t number, uint32_t gen)
{
    box_start_how(b, number, gen, (number + gen) % 2 == 0);
}

static void end_slot(uint32_t number, uint32_t gen)
{
    for (int i = 0; i < 50; i++) {
        struct runtime_end e = {.number = number, .gen = gen, .status = 1};
        struct task t = TASK_NONE;
        assert_int_equal(driver->end_begin(rt, &e, 1, &t), 0);
        await_task(&t);
        assert_int_equal(driver->end_finish(rt, &t, &e, 1), 0);
        if (e.status == 0)
            return;
        assert_int_equal(e.status, -EBUSY);
        usleep(10000);
    }
    fail_msg("slot %u stays busy", number);
}

static void box_end(struct box *b)
{
    struct runtime_exit e;
    struct pollfd p = {.fd = b->started.pidfd, .events = POLLIN};
    close(b->boot_fd);
    const struct runtime_sandbox sb = of_box(b);
    assert_int_equal(driver->kill(rt, &sb), 0);
    assert_int_equal(poll(&p, 1, 10000), 1);
    assert_int_equal(driver->reap(&sb, &e), 0);
    close(b->started.pidfd);
    end_slot(b->slot.number, b->slot.gen);
}

/* Runs a script inside; its output without the last newline in out. The exit status. */
static int run(struct box *b, unsigned uid, const char *script, char *out, size_t size)
{
    char head[64];
    size_t n = 0;
    int m = snprintf(head, sizeof(head), "%u %zu\n", uid, strlen(script));
    assert_int_equal(io_write_full(b->boot_fd, head, (size_t)m), 0);
    assert_int_equal(io_write_full(b->boot_fd, script, strlen(script)), 0);
    for (;;) {
        char c;
        struct pollfd p = {.fd = b->boot_fd, .events = POLLIN};
        if (poll(&p, 1, 60000) != 1)
            fail_msg("no answer to: %s", script);
        if (read(b->boot_fd, &c, 1) != 1)
            fail_msg("the sandbox ended during: %s", script);
        if (c == '\0')
            break;
        if (n < size - 1)
            out[n++] = c;
    }
    while (n > 0 && out[n - 1] == '\n')
        n--;
    out[n] = '\0';
    uint8_t status;
    assert_int_equal(read(b->boot_fd, &status, 1), 1);
    return status;
}

static void expect(struct box *b, unsigned uid, const char *script, const char *want)
{
    char out[4096];
    run(b, uid, script, out, sizeof(out));
    if (strcmp(out, want) != 0)
        fail_msg("%s: got \"%s\", want \"%s\"", script, out, want);
}

static void expect_has(struct box *b, unsigned uid, const char *script, const char *want)
{
    char out[8192];
    run(b, uid, script, out, sizeof(out));
    if (!strstr(out, want))
        fail_msg("%s: got \"%s\", want \"%s\" in it", script, out, want);
}

static void note_left(void *arg, const struct runtime_found *f)
{
    struct runtime_found *left = arg;
    *left = *f;
}

/* --- tests -------------------------------------------------------------------------------------- */

#define NEEDS_RUNTIME SKIP_FOR(skip_reason)

static void sees_only_itself(uint32_t gen, bool in_slot)
{
    struct box b;
    box_start_how(&b, 0, gen, in_slot);
    print_message("# slot %llu us, start to ready %llu us\n", (unsigned long long)b.slot_us,
                  (unsigned long long)b.start_us);
    expect(&b, 0, "echo $$ | grep -c . ; hostname", "1\nitest0");
    /* PID 1, the shell, ls. */
    expect(&b, 0, "l=$(ls /proc); for p in $l; do case $p in [0-9]*) echo x;; esac; done",
           "x\nx\nx");
    expect(&b, 0, "id -u; id -g", "0\n0");
    expect(&b, 1000, "id -u; id -g; id -G", "1000\n1000\n1000");
    expect(&b, 0, "grep -E '^(Uid|Gid)' /proc/1/status | tr -s '\\t' ' '",
           "Uid: 65533 65533 65533 65533\nGid: 65533 65533 65533 65533");
    expect_has(&b, 0, "cat /proc/self/mountinfo", " / / rw");
    char out[8192];
    run(&b, 0, "cat /proc/self/mountinfo /proc/mounts", out, sizeof(out));
    assert_null(strstr(out, state_dir));
    assert_null(strstr(out, "/sys/fs/cgroup"));
    expect(&b, 0,
           "cat /proc/cmdline /proc/kallsyms; ls /sys/fs /sys/firmware /usr/src /usr/local/etc",
           "/sys/firmware:\n\n/sys/fs:\n\n/usr/local/etc:\n\n/usr/src:");
    expect(&b, 0, "echo 1 > /proc/sys/kernel/panic; echo $?",
           "sh: 1: cannot create /proc/sys/kernel/panic: Read-only file system\n"
           "2");
    expect(&b, 0, "ls /dev",
           "fd\nfull\nnull\nptmx\npts\nrandom\nshm\nstderr\nstdin\nstdout\ntty\n"
           "urandom\nzero");
    expect(&b, 1000, "echo x > /tmp/a && cat /tmp/a && stat -c '%a %U' /tmp/a", "x\n644 user");
    expect(&b, 0, "echo x > /usr/bin/added && cat /usr/bin/added && stat -c %u /usr/bin/env",
           "x\n0");
    expect(&b, 0, "grep -E '^Cap(Prm|Bnd|Amb)' /proc/self/status | cut -f2",
           "00000000a80405fb\n00000000a80405fb\n0000000000000000");
    box_end(&b);
}

static void test_starts_and_sees_only_itself(void **state)
{
    NEEDS_RUNTIME;
    sees_only_itself(1, true);
    sees_only_itself(101, false);
}

static void test_boot_ids_differ(void **state)
{
    struct box a, b;
    char one[64], two[64];
    NEEDS_RUNTIME;
    box_start(&a, 0, 2);
    box_start(&b, 1, 1);
    run(&a, 1000, "cat /proc/sys/kernel/random/boot_id", one, sizeof(one));
    run(&b, 1000, "cat /proc/sys/kernel/random/boot_id", two, sizeof(two));
    assert_int_equal(strlen(one), 36);
    assert_string_not_equal(one, two);
    box_end(&a);
    box_end(&b);
}

static void test_set_uid_programs_work(void **state)
{
    struct box b;
    NEEDS_RUNTIME;
    box_start(&b, 0, 3);
    /* The parts that sudo rests on: a set-uid root program of the sandbox, made inside, gives the
     * sandbox's root. */
    expect(&b, 0, "cp /usr/bin/id /usr/bin/rootid && chmod 4755 /usr/bin/rootid", "");
    expect(&b, 1000, "rootid -u; grep NoNewPrivs /proc/self/status | cut -f2", "0\n0");
    expect(&b, 0, "setpriv --reuid 1000 --clear-groups id -u", "1000");
    box_end(&b);
}

static void test_root_cannot_touch_pid_1(void **state)
{
    struct box b;
    NEEDS_RUNTIME;
    box_start(&b, 0, 4);
    expect_has(&b, 0, "cat /proc/1/mem", "Permission denied");
    expect_has(&b, 0, "cat /proc/1/environ", "Permission denied");
    expect_has(&b, 0, "ls /proc/1/fd/", "Permission denied");
    expect_has(&b, 0, "ls -l /proc/1/exe /proc/1/root", "Permission denied");
    expect_has(&b, 0, "echo 1000 > /proc/1/oom_score_adj", "Permission denied");
    expect(&b, 0, "kill -9 1; kill -STOP 1; kill -TERM 1; sleep 0.1; echo alive", "alive");
    expect_has(&b, 0, "prlimit --pid 1 --nofile=3:3", "Operation not permitted");
    expect_has(&b, 0, "setpriv --reuid 65533 --clear-groups id", "Operation not permitted");
    expect(&b, 0,
           "python3 -c '\n"
           "import ctypes, os\n"
           "libc = ctypes.CDLL(None, use_errno=True)\n"
           "def e(r): return ctypes.get_errno() if r < 0 else 0\n"
           "print(e(libc.ptrace(16, 1, 0, 0)))\n"   /* PTRACE_ATTACH */
           "p = libc.syscall(434, 1, 0)\n"          /* pidfd_open */
           "print(e(libc.syscall(438, p, 3, 0)))\n" /* pidfd_getfd */
           "print(e(libc.syscall(308, p, 0)))\n"    /* setns */
           "print(e(libc.unshare(0x10000000)), e(libc.unshare(0x20000)))\n"
           "print(e(libc.mount(b\"x\", b\"/mnt\", b\"tmpfs\", 0, 0)))\n"
           "print(e(libc.syscall(435, 0, 0)), e(libc.syscall(425, 1, 0)))\n" /* clone3, io_uring */
           "print(e(libc.syscall(272 | 0x100000000, 0)))\n"
           "'",
           "1\n1\n1\n1 1\n1\n38 1\n0");
    box_end(&b);
}

static void test_network_is_refused_at_once(void **state)
{
    struct box b;
    NEEDS_RUNTIME;
    box_start(&b, 0, 5);
    expect(
        &b, 1000,
        "python3 -c '\n"
        "import socket, time, errno\n"
        "def tcp(f, a):\n"
        "    s = socket.socket(f, socket.SOCK_STREAM); s.settimeout(5); t = time.time()\n"
        "    r = s.connect_ex(a); print(errno.errorcode.get(r, r), time.time() - t < 0.5)\n"
        "def udp(f, a):\n"
        "    s = socket.socket(f, socket.SOCK_DGRAM); s.settimeout(5); t = time.time()\n"
        "    try:\n"
        "        s.connect(a); s.send(b\"x\"); s.recv(1); print(\"answer\")\n"
        "    except TimeoutError: print(\"timeout\")\n"
        "    except OSError as e: print(\"refused\", time.time() - t < 0.5)\n"
        "for a in (\"8.8.8.8\", \"10.0.0.1\", \"169.254.169.254\", \"192.0.2.3\"): tcp(2, (a, "
        "80))\n"
        "tcp(10, (\"2606:4700::1111\", 443)); tcp(10, (\"fd00:ec2::254\", 80))\n"
        "udp(2, (\"8.8.8.8\", 53)); udp(10, (\"2001:4860:4860::8888\", 53)); udp(2, "
        "(\"224.0.0.1\", 9))\n"
        "try:\n"
        "    socket.socket(2, socket.SOCK_RAW, 1); print(\"raw\")\n"
        "except OSError as e: print(errno.errorcode[e.errno])\n"
        "for f in (40, 17, 16, 21):\n"
        "    try: socket.socket(f, 3 if f == 17 else 1, 15 if f == 16 else 0); print(\"open\", f)\n"
        "    except OSError as e: print(errno.errorcode[e.errno])\n"
        "l = socket.create_server((\"127.0.0.1\", 80)); c = "
        "socket.create_connection((\"127.0.0.1\", 80), 2)\n"
        "l = socket.create_server((\"\", 81)); c = socket.create_connection((\"192.0.2.2\", 81), "
        "2)\n"
        "print(sorted(set(x[4][0] for x in socket.getaddrinfo(\"127.0.0.1\", 80, "
        "flags=socket.AI_ADDRCONFIG))))\n"
        "'",
        "ECONNREFUSED True\nECONNREFUSED True\nECONNREFUSED True\nECONNREFUSED True\n"
        "ECONNREFUSED True\nECONNREFUSED True\n"
        "refused True\nrefused True\nrefused True\n"
        "EPERM\nEAFNOSUPPORT\nEAFNOSUPPORT\nEPROTONOSUPPORT\nEAFNOSUPPORT\n['127.0.0.1']");
    box_end(&b);
}

static void test_limits_hold(void **state)
{
    struct box b;
    const struct runtime_sandbox sb = {.slot = 0, .gen = 6, .pidfd = -1};
    struct runtime_stat st;
    NEEDS_RUNTIME;
    const char *full = in_memory ? "No space left" : "isk quota exceeded";
    box_start(&b, 0, 6);
    expect_has(&b, 1000, "dd if=/dev/zero of=/tmp/big bs=1M count=200 2>&1", full);
    expect(&b, 1000, "test $(stat -c %s /tmp/big) -le 67108864 && echo bounded; rm /tmp/big",
           "bounded");
    expect_has(&b, 0, "dd if=/dev/zero of=/usr/big bs=1M count=200 2>&1; rm /usr/big", full);
    assert_int_equal(driver->stat(rt, &sb, &st), 0);
    assert_int_equal(st.disk_limit_bytes, small.disk_bytes);
    assert_int_equal(st.memory_limit_bytes, small.memory_bytes);
    /* Memory that was freed a moment ago is taken off before the kernel has flushed its per-cpu
     * counts. */
    for (int i = 0; i < 100 && st.memory_used_bytes == 0; i++) {
        usleep(20000);
        assert_int_equal(driver->stat(rt, &sb, &st), 0);
    }
    assert_true(st.memory_used_bytes > 0);
    assert_true(st.cpu_used_us > 0);
    assert_true(st.pids_used > 0);
    expect(&b, 0, "ulimit -c 0; grep core /proc/self/limits | tr -s ' '",
           "Max core file size 1 1 bytes ");
    /* Killed by its limit, and PID 1 goes on. */
    expect_has(&b, 1000, "python3 -c 'x = b\"x\" * (400 << 20)' || echo status $?", "status 137");
    assert_false(driver->was_oom(rt, &sb));
    expect(&b, 1000,
           "dd if=/dev/zero of=/dev/shm/x bs=1M count=100 2>/dev/null; "
           "test $(stat -c %s /dev/shm/x) -le 67108864 && echo bounded; rm /dev/shm/x",
           "bounded");
    expect_has(&b, 1000, "i=0; while [ $i -lt 200 ]; do sleep 30 & i=$((i+1)); done 2>&1", "fork");
    expect(&b, 1000, "echo still", "still");
    box_end(&b);
}

static void test_nested_namespaces_and_other_abis(void **state)
{
    struct box b;
    NEEDS_RUNTIME;
    box_start(&b, 0, 7);
    expect_has(&b, 0,
               "unshare -U true; unshare -m true; unshare -n true; chroot / true && echo chroot",
               "chroot");
    expect(&b, 0,
           "unshare -U true 2>/dev/null || unshare -r true 2>/dev/null || unshare -n true "
           "2>/dev/null || echo none",
           "none");
#ifdef __x86_64__
    /* int 0x80, by machine code in an executable page: the process is killed by SIGSYS. */
    expect(&b, 1000,
           "python3 -c '\n"
           "import ctypes, mmap\n"
           "m = mmap.mmap(-1, 4096, prot=7)\n"
           "m.write(bytes.fromhex(\"b814000000cd80c3\"))\n" /* mov eax, 20; int 0x80; ret */
           "f = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))\n"
           "print(f())' ; echo $?",
           "Bad system call\n159");
    expect(&b, 1000,
           "python3 -c 'import ctypes; print(ctypes.CDLL(None).syscall(0x40000000 + 39))'; echo $?",
           "Bad system call\n159");
#endif
    box_end(&b);
}

/* Two sandboxes: what one has or uses up, the other does not see. */
static void test_neighbours_share_nothing(void **state)
{
    struct box a, b;
    NEEDS_RUNTIME;
    box_start(&a, 0, 20);
    box_start(&b, 1, 20);
    expect(&a, 1000,
           "python3 -c '\n"
           "import ctypes, os, socket, sys\n"
           "libc = ctypes.CDLL(None)\n"
           "n = 0\n"
           "while libc.inotify_init() >= 0: n += 1\n" /* per-user limit of the kernel */
           "u = socket.socket(socket.AF_UNIX); u.bind(\"\\0secret\"); u.listen()\n"
           "t = socket.create_server((\"\", 7001))\n"
           "m = libc.shmget(4711, 4096, 0o1666)\n"
           "print(n > 0, m >= 0); sys.stdout.flush()\n"
           "if os.fork() == 0:\n"
           "    os.setsid(); os.dup2(os.open(\"/dev/null\", 2), 1); os.dup2(1, 2)\n"
           "    import time; time.sleep(60)\n"
           "'",
           "True True");
    const char *look = "python3 -c '\n"
                       "import ctypes, errno, socket\n"
                       "libc = ctypes.CDLL(None)\n"
                       "u = socket.socket(socket.AF_UNIX)\n"
                       "print(errno.errorcode.get(u.connect_ex(\"\\0secret\"), 0))\n"
                       "t = socket.socket(); t.settimeout(5)\n"
                       "print(errno.errorcode.get(t.connect_ex((\"192.0.2.2\", 7001)), 0))\n"
                       "print(libc.inotify_init() >= 0, libc.shmget(4711, 4096, 0) >= 0)\n"
                       "'";
    expect(&b, 1000, look, "ECONNREFUSED\nECONNREFUSED\nTrue False");
    expect(&a, 1000, look, "0\n0\nFalse True"); /* the positive control */
    box_end(&a);
    box_end(&b);
}

static void test_sockets_reach_services_inside(void **state)
{
    struct box b;
    int fds[3];
    char byte = 0;
    struct stat before, after;
    NEEDS_RUNTIME;
    box_start(&b, 0, 8);
    expect(&b, 1000,
           "python3 -c '\n"
           "import socket, os, sys\n"
           "l = socket.create_server((\"127.0.0.1\", 7000))\n"
           "if os.fork() == 0:\n"
           "    os.setsid()\n"
           "    for i in range(3): l.accept()[0].send(b\"S\")\n"
           "    os._exit(0)\n"
           "' >/dev/null 2>&1; echo up",
           "up");
    assert_int_equal(stat("/proc/self/ns/net", &before), 0);
    const struct runtime_sandbox sb = of_box(&b);
    uint64_t t = clock_mono_us();
    assert_int_equal(driver->sockets(rt, &sb, fds, 3), 0);
    print_message("# 3 sockets in %llu us\n", (unsigned long long)(clock_mono_us() - t));
    assert_int_equal(stat("/proc/self/ns/net", &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    for (int i = 0; i < 3; i++) {
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(7000)};
        struct pollfd p = {.fd = fds[i], .events = POLLIN};
        assert_true(fcntl(fds[i], F_GETFL) & O_NONBLOCK);
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        assert_true(connect(fds[i], (struct sockaddr *)&to, sizeof(to)) == 0 ||
                    errno == EINPROGRESS);
        assert_int_equal(poll(&p, 1, 5000), 1);
        assert_int_equal(read(fds[i], &byte, 1), 1);
        assert_int_equal(byte, 'S');
        close(fds[i]);
    }
    assert_int_equal(driver->sockets(rt, &sb, fds, RUNTIME_SOCKETS_MAX + 1), -EINVAL);
    struct runtime_sandbox gone = {.slot = sb.slot, .gen = sb.gen, .pidfd = dup(sb.pidfd)};
    box_end(&b);
    assert_int_equal(driver->sockets(rt, &gone, fds, 1), -ESRCH);
    close(gone.pidfd);
}

static void test_failures_are_named_and_undone(void **state)
{
    struct box b;
    uint32_t stage = 0;
    NEEDS_RUNTIME;
    box_slot(&b, 0, 9);
    assert_int_equal(box_try_start(&b, 77, &small, &stage), -ENOENT);
    assert_int_equal(stage, PRIVSEP_STAGE_TEMPLATE);
    end_slot(0, 9);
    driver->slot_close(&b.slot);
    end_slot(0, 9); /* idempotent */
    struct task t = TASK_NONE;
    assert_int_equal(driver->slot_begin(rt, RUNTIME_SLOTS_MAX, 1, &t), -ERANGE);
    assert_null(runtime_driver(PRIVSEP_LEVEL_COUNT));
    char why[128] = "";
    assert_int_equal(driver->probe(rt, why, sizeof(why)), 0);
    assert_int_equal(runtime_driver(PRIVSEP_LEVEL_VM)->probe(rt, why, sizeof(why)), -EOPNOTSUPP);
    assert_non_null(strstr(why, "vm"));
}

/* Everything that privd does to a sandbox has a function in each row. Beside the name a row is pointers to
 * functions only, all of one size. */
static void test_rows_are_complete(void **state)
{
    for (uint32_t level = 0; level < PRIVSEP_LEVEL_COUNT; level++) {
        const struct runtime_driver *d = runtime_driver(level);
        void (*all[sizeof(*d) / sizeof(void (*)(void))])(void);
        assert_non_null(d);
        memcpy(all, d, sizeof(all));
        for (size_t i = 0; i < ARRAY_SIZE(all); i++)
            if (!all[i])
                fail_msg("level %s: entry %zu of its row is missing", d->name, i);
    }
    assert_null(runtime_driver(PRIVSEP_LEVEL_COUNT));
}

static void refuses(const struct runtime_driver *d)
{
    const struct runtime_sandbox sb = {.slot = 1, .gen = 1, .pidfd = -1};
    struct runtime_slot slot = RUNTIME_SLOT_NONE;
    struct runtime_start start = {0};
    struct runtime_claim claim = {0};
    struct task t = TASK_NONE;
    int fds[2], fd = -1;
    char why[128] = "";
    assert_int_equal(d->probe(NULL, why, sizeof(why)), -EOPNOTSUPP);
    assert_non_null(strstr(why, d->name));
    assert_int_equal(d->slot_begin(NULL, 1, 1, &t), -EOPNOTSUPP);
    assert_int_equal(d->start_begin(NULL, &slot, &start, &t, &fd), -EOPNOTSUPP);
    assert_int_equal(d->claim(NULL, &sb, -1, &claim), -EOPNOTSUPP);
    assert_int_equal(d->sockets(NULL, &sb, fds, 2), -EOPNOTSUPP);
    assert_int_equal(d->listeners(NULL, &sb, fds), -EOPNOTSUPP);
    assert_int_equal(d->freeze(NULL, &sb), -EOPNOTSUPP);
    assert_int_equal(d->thaw(NULL, &sb), -EOPNOTSUPP);
    assert_int_equal(d->kill(NULL, &sb), -EOPNOTSUPP);
    assert_int_equal(d->command_sandbox_begin(NULL, &sb, 64, &t, &fd), -EOPNOTSUPP);
    assert_int_equal(d->adopt(NULL, 1, 1, &fd), -ESRCH);
    assert_int_equal(fd, -1);
    assert_int_equal(t.pid, TASK_NONE.pid);
}

/* A level that is not there does nothing, also for a caller that did not ask probe. */
static void test_absent_levels_refuse(void **state)
{
    refuses(runtime_driver(PRIVSEP_LEVEL_GVISOR));
    refuses(runtime_driver(PRIVSEP_LEVEL_VM));
}

static void test_freeze_stops_all_and_thaw_goes_on(void **state)
{
    struct box b;
    NEEDS_RUNTIME;
    box_start(&b, 0, 77);
    const struct runtime_sandbox sb = of_box(&b);
    assert_false(driver->is_frozen(rt, &sb));
    assert_int_equal(driver->freeze(rt, &sb), 0);
    for (int i = 0; i < 200 && !driver->is_frozen(rt, &sb); i++)
        usleep(10000);
    assert_true(driver->is_frozen(rt, &sb));
    assert_int_equal(driver->thaw(rt, &sb), 0);
    expect(&b, 1000, "echo on", "on");
    /* A kill reaches a frozen one. */
    assert_int_equal(driver->freeze(rt, &sb), 0);
    box_end(&b);
}

static void test_recovery_finds_and_adopts(void **state)
{
    struct box b;
    struct runtime_found f = {.slot = UINT32_MAX};
    int pidfd = -1;
    NEEDS_RUNTIME;
    box_start(&b, 5, 42);
    assert_int_equal(runtime_scan(rt, note_left, &f), 0);
    assert_int_equal(f.slot, 5);
    assert_int_equal(f.gen, in_memory ? 0 : 42);
    assert_true(f.has_layer == !in_memory && f.has_cgroup);
    assert_int_equal(f.pid, b.started.pid);
    assert_int_equal(driver->adopt(rt, 5, b.started.pid, &pidfd), 0);
    close(pidfd);
    assert_int_equal(driver->adopt(rt, 6, b.started.pid, &pidfd), -ESRCH);
    assert_int_equal(driver->adopt(rt, 5, getpid(), &pidfd), -ESRCH);
    /* A task may not take a layer away under a running sandbox. */
    struct task t = TASK_NONE;
    struct runtime_end ends[] = {
        {6, 1, 1}, {5, 42, 1}, {7, 1, 1}}; /* no slot 6 or 7: nothing to do */
    assert_int_equal(driver->end_begin(rt, ends, ARRAY_SIZE(ends), &t), 0);
    await_task(&t);
    assert_int_equal(driver->end_finish(rt, &t, ends, ARRAY_SIZE(ends)), 0);
    assert_int_equal(ends[0].status, 0);
    assert_int_equal(ends[1].status, -EBUSY);
    assert_int_equal(ends[2].status, 0);
    expect(&b, 1000, "echo x > /tmp/x && cat /tmp/x", "x");
    box_end(&b);
}

struct looked {
    int held, low;
};

static int check_descriptors(void *arg, struct task_result *out)
{
    const struct looked *l = arg;
    out->values[0] = fcntl(l->held, F_GETFD) >= 0;
    out->values[1] = fcntl(l->low, F_GETFD) >= 0;
    out->fds[out->n_fds++] = l->low;
    return 0;
}

static bool task_has_high_fds(const struct looked *l)
{
    struct task t = TASK_NONE;
    struct task_result result;
    struct looked args = *l;
    assert_int_equal(task_spawn(check_descriptors, &args, &t), 0);
    args.held = args.low = -1; /* the task has a copy of its own, of memory too */
    await_task(&t);
    assert_int_equal(task_collect(&t, &result), 0);
    assert_int_equal(result.values[1], 1);
    assert_int_equal(result.n_fds, 1);
    close(result.fds[0]);
    /* Nothing that the task did or closed was done here. */
    assert_true(fcntl(l->held, F_GETFD) >= 0 && fcntl(l->low, F_GETFD) >= 0);
    return result.values[0] == 1;
}

#define HELD 65 /* one more than tasks still copy, src/runtime/task.c */

static void test_tasks_have_no_copy_of_many_held_descriptors(void **state)
{
    int held[HELD], none = -1, pipes[2];
    NEEDS_RUNTIME;
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    struct looked l = {.held = -1, .low = pipes[1]};
    for (int i = 0; i < HELD; i++) {
        held[i] = dup(pipes[0]);
        task_move_high_fd(&held[i]);
        assert_true(held[i] >= TASK_HIGH_FD);
        assert_true(fcntl(held[i], F_GETFD) & FD_CLOEXEC);
        l.held = held[0];
        if (i == 0)
            assert_true(task_has_high_fds(&l)); /* the control: of few it has a copy */
    }
    assert_false(task_has_high_fds(&l));
    for (int i = 0; i < HELD; i++)
        close(held[i]);
    close(pipes[0]);
    close(pipes[1]);
    task_move_high_fd(&none);
    assert_int_equal(none, -1);
}

/* Processes with an id of the slots' ranges, lines of this mount namespace, entries of a directory. */
static unsigned count_processes(void)
{
    unsigned n = 0;
    struct dirent *e;
    struct stat st;
    DIR *dir = opendir("/proc");
    assert_non_null(dir);
    while ((e = readdir(dir)) != NULL)
        if (fstatat(dirfd(dir), e->d_name, &st, 0) == 0 && st.st_uid >= uid_base() &&
            st.st_uid - uid_base() < 512 * RUNTIME_UID_COUNT)
            n++;
    closedir(dir);
    return n;
}

#define MOUNTS_MAX 4096

struct mounts {
    unsigned n;
    int ids[MOUNTS_MAX];
};

/* By their ids. Their number tells nothing: a copy of a mount of other programs goes when those remove its directory. */
static void read_mounts(struct mounts *m)
{
    char line[8192];
    FILE *f = fopen("/proc/self/mountinfo", "r");
    assert_non_null(f);
    for (m->n = 0; fgets(line, sizeof(line), f); m->n++) {
        assert_true(m->n < MOUNTS_MAX);
        m->ids[m->n] = atoi(line);
    }
    fclose(f);
}

static unsigned count_new_mounts(const struct mounts *before)
{
    static struct mounts now;
    unsigned n = 0;
    read_mounts(&now);
    for (unsigned i = 0, j; i < now.n; i++) {
        for (j = 0; j < before->n && before->ids[j] != now.ids[i]; j++)
            ;
        n += j == before->n;
    }
    return n;
}

static unsigned count_entries(const char *path)
{
    unsigned n = 0;
    struct dirent *e;
    DIR *dir = opendir(path);
    if (!dir)
        return 0;
    while ((e = readdir(dir)) != NULL)
        n += e->d_name[0] >= '0' && e->d_name[0] <= '9';
    closedir(dir);
    return n;
}

static void test_nothing_is_left(void **state)
{
    struct box b[3];
    char layers[128], nothing[8];
    static const char *const hierarchies[] = {"memory/", "pids/", "freezer/", ""};
    NEEDS_RUNTIME;
    snprintf(layers, sizeof(layers), "%s/disk/layers", state_dir);
    static struct mounts mounts;
    unsigned processes = count_processes(), fds = count_entries("/proc/self/fd");
    read_mounts(&mounts);
    for (unsigned i = 0; i < 3; i++) {
        box_start(&b[i], i, 60);
        /* Daemons of the tenant, a full disk, a file that is still open. */
        run(&b[i], 0,
            "setsid sleep 1000 >/dev/null 2>&1 & (setsid sh -c 'exec 3>/tmp/x; sleep 1000') "
            ">/dev/null 2>&1 & dd if=/dev/zero of=/tmp/y bs=1M count=20 2>/dev/null; echo",
            nothing, sizeof(nothing));
    }
    assert_int_equal(count_new_mounts(&mounts), 0); /* constant cost: not one per sandbox */
    assert_true(count_processes() >= processes + 9);
    assert_int_equal(count_entries(layers), in_memory ? 0 : 3);
    for (unsigned i = 0; i < 3; i++)
        box_end(&b[i]);
    assert_int_equal(count_processes(), processes);
    assert_int_equal(count_new_mounts(&mounts), 0);
    assert_int_equal(count_entries("/proc/self/fd"), fds);
    assert_int_equal(count_entries(layers), 0);
    for (size_t i = 0; i < ARRAY_SIZE(hierarchies); i++) {
        char path[128];
        snprintf(path, sizeof(path), "/sys/fs/cgroup/%s%s", hierarchies[i], cgroup_name);
        assert_int_equal(count_entries(path), 0);
    }
}

static void test_many_and_how_long(void **state)
{
    enum { N = 40 };
    static struct box b[N];
    uint64_t slot[N], start[N], sum_slot = 0, sum_start = 0, t;
    NEEDS_RUNTIME;
    for (unsigned i = 0; i < N; i++) {
        box_start(&b[i], i, 100);
        slot[i] = b[i].slot_us;
        start[i] = b[i].start_us;
        sum_slot += slot[i];
        sum_start += start[i];
    }
    t = clock_mono_us();
    for (unsigned i = 0; i < N; i++)
        box_end(&b[i]);
    t = clock_mono_us() - t;
    uint64_t best = start[0];
    for (unsigned i = 1; i < N; i++)
        best = MIN(best, start[i]);
    print_message(
        "# %d sandboxes: slot %llu us, start to ready %llu us (least %llu), end %llu us each\n", N,
        (unsigned long long)sum_slot / N, (unsigned long long)sum_start / N,
        (unsigned long long)best, (unsigned long long)t / N);
    struct runtime_found f = {.slot = UINT32_MAX};
    assert_int_equal(runtime_scan(rt, note_left, &f), 0);
    assert_int_equal(f.slot, UINT32_MAX);
}

/* Ends what a failed test has left. */
static int end_rest(void **state)
{
    if (skip_reason)
        return 0;
    for (int i = 0; i < 64; i++) {
        struct runtime_found f = {.slot = UINT32_MAX};
        if (runtime_scan(rt, note_left, &f) < 0 || f.slot == UINT32_MAX)
            return 0;
        const struct runtime_sandbox left = {.slot = f.slot, .gen = f.gen, .pidfd = -1};
        driver->kill(rt, &left);
        usleep(100000);
        end_slot(f.slot, f.gen);
    }
    return -1;
}

/* --- fixture ------------------------------------------------------------------------------------ */

static void make_dirs(const char *base, const char *const *names)
{
    char path[256];
    for (; *names; names++) {
        snprintf(path, sizeof(path), "%s/%s", base, *names);
        assert_true(mkdir(path, 0755) == 0 || errno == EEXIST);
    }
}

static void write_text(const char *dir, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* The least that a template needs: what the real one has is made by cay-job. */
static void make_template(void)
{
    static const char *const top[] = {"",
                                      "rootfs",
                                      "usrmask",
                                      "usrmask/local",
                                      "usrmask/local/etc",
                                      "usrmask/local/src",
                                      "usrmask/src",
                                      NULL};
    static const char *const dirs[] = {"etc", "home", "home/user", "usr", "proc",    "sys", "dev",
                                       "run", "tmp",  "root",      "var", "var/tmp", NULL};
    static const char *const links[] = {"bin", "sbin", "lib", "lib64", NULL};
    static const char *const opaque[] = {"local/etc", "local/src", "src", NULL};
    char base[160], root[192], path[256], to[32];

    snprintf(base, sizeof(base), "%s/disk/templates/%u", state_dir, PRIVSEP_TEMPLATE_HOST);
    make_dirs(base, top);
    snprintf(root, sizeof(root), "%s/rootfs", base);
    make_dirs(root, dirs);
    for (const char *const *l = links; *l; l++) {
        snprintf(path, sizeof(path), "%s/%s", root, *l);
        snprintf(to, sizeof(to), "usr/%s", *l);
        assert_true(symlink(to, path) == 0 || errno == EEXIST);
    }
    for (const char *const *o = opaque; *o; o++) {
        snprintf(path, sizeof(path), "%s/usrmask/%s", base, *o);
        assert_int_equal(setxattr(path, "user.overlay.opaque", "y", 1, 0), 0);
    }
    write_text(root, "etc/passwd",
               "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n");
    write_text(root, "etc/group", "root:x:0:\nuser:x:1000:\n");
}

static int set_up(void **state)
{
    const char *agent = getenv("RUNTIME_INIT");
    if (geteuid() != 0 || !agent) {
        skip_reason = "needs root, and RUNTIME_INIT naming the stand-in for cay-init";
        return 0;
    }
    in_memory = getenv("RUNTIME_DISK") && strcmp(getenv("RUNTIME_DISK"), "memory") == 0;
    log_init("test", LOG_INFO);
    /* The mounts of the runtime are then gone with this process. */
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
        skip_reason = "no mount namespace";
        return 0;
    }
    snprintf(state_dir, sizeof(state_dir), "/tmp/cay-test-XXXXXX");
    if (!mkdtemp(state_dir))
        return -1;
    snprintf(cgroup_name, sizeof(cgroup_name), "cay-test-runtime-%d", (int)getpid());
    struct runtime_config config = {
        .state_dir = state_dir,
        .agent_path = agent,
        .cgroup_name = cgroup_name,
        .disk = in_memory ? RUNTIME_DISK_MEMORY : RUNTIME_DISK_BTRFS,
        .disk_bytes = 1024 * MIB,
        .slots_max = 4096,
        .uid_base = uid_base(),
    };
    int rc = runtime_open(&config, &rt);
    if (rc < 0) {
        print_message("# runtime_open: %s\n", strerror(-rc));
        skip_reason = "runtime_open refused (see above)";
        return 0;
    }
    driver = runtime_driver(PRIVSEP_LEVEL_PROCESS);
    make_template();
    return 0;
}

static int tear_down(void **state)
{
    char command[128];
    int rc = 0;
    if (rt) {
        rc = runtime_shutdown(rt);
        if (rc < 0)
            print_message("# runtime_shutdown: %s\n", strerror(-rc));
        runtime_close(rt);
    }
    snprintf(command, sizeof(command), "rm -rf %s", state_dir);
    return *state_dir && (system(command) != 0 || rc < 0) ? -1 : 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_starts_and_sees_only_itself, end_rest),
        cmocka_unit_test_teardown(test_boot_ids_differ, end_rest),
        cmocka_unit_test_teardown(test_set_uid_programs_work, end_rest),
        cmocka_unit_test_teardown(test_root_cannot_touch_pid_1, end_rest),
        cmocka_unit_test_teardown(test_network_is_refused_at_once, end_rest),
        cmocka_unit_test_teardown(test_limits_hold, end_rest),
        cmocka_unit_test_teardown(test_nested_namespaces_and_other_abis, end_rest),
        cmocka_unit_test_teardown(test_neighbours_share_nothing, end_rest),
        cmocka_unit_test_teardown(test_sockets_reach_services_inside, end_rest),
        cmocka_unit_test_teardown(test_failures_are_named_and_undone, end_rest),
        cmocka_unit_test(
            test_tasks_have_no_copy_of_many_held_descriptors), /* so in all that follow */
        cmocka_unit_test(test_rows_are_complete),
        cmocka_unit_test(test_absent_levels_refuse),
        cmocka_unit_test_teardown(test_freeze_stops_all_and_thaw_goes_on, end_rest),
        cmocka_unit_test_teardown(test_recovery_finds_and_adopts, end_rest),
        cmocka_unit_test_teardown(test_nothing_is_left, end_rest),
        cmocka_unit_test_teardown(test_many_and_how_long, end_rest),
    };
    return cmocka_run_group_tests_name("runtime", tests, set_up, tear_down);
}
