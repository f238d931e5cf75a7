/* From what the starter made to a PID 1 that can serve. main() calls these once, in this order:
 * standard descriptors; boot_prepare (signals); boot_read (the boot block: limits, what tests
 * switch off); boot_confine (all other descriptors closed, a uid of its own, the children's
 * bounding set cut, no way back); boot_listen; boot_claim, which blocks until the starter says
 * whose sandbox this is; and boot_report, which tells cay-privd ready or the reason. No program
 * of the tenant's runs before boot_confine; a step that fails ends the sandbox. */

#include "agent/boot.h"

#include "agent/common/logs.h"
#include "agent/generation.h"
#include "base/io.h"
#include "base/log.h"
#include "base/test_bypass.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BOOT_BACKLOG    512
#define BOOT_CAP_MAX    63
#define MACHINE_ID_HALF 11 /* characters of an id in 64 bits: 36 to the 11th is less */

void boot_standard_descriptors(void)
{
    int fd;

    do {
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

enum err_code boot_read(struct agent *a, int boot_fd, struct err *e)
{
    struct agent_boot boot;
    int ret = io_read_full(boot_fd, &boot, sizeof(boot));

    if (ret < 0)
        return err_set_sys(e, ERR_UNAVAILABLE, ret, "reading the boot block");
    if (boot.version != AGENT_BOOT_VERSION)
        return err_set(e, ERR_INVALID, "boot block of version %u, this is %u", boot.version,
                       AGENT_BOOT_VERSION);
    if (boot.cgroup_fds > AGENT_CGROUP_FDS_MAX)
        return err_set(e, ERR_INVALID, "%u cgroup descriptors, at most %u", boot.cgroup_fds,
                       AGENT_CGROUP_FDS_MAX);
    for (uint32_t i = 0; i < boot.cgroup_fds; i++)
        a->spawn.cgroup_fds[i] = AGENT_CGROUP_FD_FIRST + (int)i;
    a->spawn.cgroup_fd_count = boot.cgroup_fds;
    a->spawn.open_files = boot.open_files;
    a->spawn.caps = boot.child_caps;
    memcpy(a->spawn.netlink_pass, boot.netlink_pass, sizeof(boot.netlink_pass));
    explicit_bzero(&boot.netlink_pass, sizeof(boot.netlink_pass));
    a->spawn.bounded = true;
    a->command_sandbox = boot.command_sandbox != 0;
    a->filters_max = boot.filters;
    a->oom_fd = boot.oom_fd ? AGENT_OOM_FD : 0;
#ifdef CAY_TEST_SWITCHES
    test_bypass_bits = boot.flags;
#endif
    a->keyless = TEST_BYPASS(AGENT_KEY); /* boot_claim brings it, before anything is served */
    return ERR_OK;
}

static int write_name_file(int etc, const char *name, const char *text)
{
    CLEANUP_CLOSE int fd = openat(etc, name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -ENXIO;
    off_t size = (off_t)strlen(text);
    int ret = io_write_full(fd, text, (size_t)size); /* over what was there before a restore */
    return ret == 0 && st.st_size > size && ftruncate(fd, size) < 0 ? -errno : ret;
}

/* A number of its own for each sandbox, as long as it lives: D-Bus, journals and licences take it
 * for the machine's. Made of the id, one to one: kept files that are another sandbox's now (a
 * fork, a snapshot) get another number with their new id, and a resume or a rollback changes
 * nothing. The factor is odd, so that it only spreads the digits. */
static uint64_t part_of_machine_id(const char *id, size_t from, size_t to)
{
    uint64_t n = 0;

    for (size_t i = from; i < to && id[i]; i++)
        n = n * 36 + (uint64_t)(id[i] >= 'a' ? id[i] - 'a' + 10 : id[i] - '0');
    return n * UINT64_C(0x9e3779b97f4a7c15);
}

/* Without its own name in /etc/hosts, sudo and others complain about it on every call. The starter
 * has made the files; nothing that could have changed them has run yet. Only where /etc is a
 * directory: in files that were kept over a boot it may be a link, which is not followed (what it
 * leads to may be a FIFO, for one), or not there. */
static int write_names(const char *id)
{
    CLEANUP_CLOSE int etc = open(AGENT_NAMES_DIR, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    char hosts[256], name[64], machine[40];
    int ret;

    if (etc < 0)
        return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? 0 : -errno;

    snprintf(hosts, sizeof(hosts),
             "127.0.0.1\tlocalhost\n127.0.1.1\t%s\n"
             "::1\tlocalhost ip6-localhost ip6-loopback\n",
             id);
    snprintf(name, sizeof(name), "%s\n", id);
    snprintf(machine, sizeof(machine), "%016llx%016llx\n",
             (unsigned long long)part_of_machine_id(id, 0, MACHINE_ID_HALF),
             (unsigned long long)part_of_machine_id(id, MACHINE_ID_HALF, 2 * MACHINE_ID_HALF));
    ret = write_name_file(etc, AGENT_HOSTS_NAME, hosts);
    if (ret == 0)
        ret = write_name_file(etc, AGENT_HOSTNAME_NAME, name);
    return ret < 0 ? ret : write_name_file(etc, AGENT_MACHINE_ID_NAME, machine);
}

/* The kernel has looked these up when the claim comes, so that it takes less time then. */
static void resolve_names(void)
{
    static const char *const paths[] = {AGENT_NAMES_DIR "/" AGENT_HOSTS_NAME,
                                        AGENT_NAMES_DIR "/" AGENT_HOSTNAME_NAME,
                                        AGENT_NAMES_DIR "/" AGENT_MACHINE_ID_NAME, "/etc/passwd"};

    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        int fd = open(paths[i], O_PATH | O_NOFOLLOW | O_CLOEXEC);

        if (fd >= 0)
            close(fd);
    }
}

void boot_get_ready(const struct agent *a)
{
    if (a->command_sandbox)
        return;
    generation_renew();
    resolve_names();
}

enum err_code boot_claim(struct agent *a, int boot_fd, struct err *e)
{
    struct agent_claim claim;
    int ret = io_read_full(boot_fd, &claim, sizeof(claim));

    if (ret < 0)
        return err_set_sys(e, ERR_UNAVAILABLE, ret, "waiting to be claimed");
    memcpy(a->key, claim.key, sizeof(a->key));
    if (strncmp(a->id, claim.id, sizeof(a->id) - 1) != 0)
        logs_forget(a);
    memcpy(a->id, claim.id, sizeof(a->id) - 1);
    explicit_bzero(&claim, sizeof(claim));
    ret = a->command_sandbox ? 0 : write_names(a->id);
    /* At its own limit a sandbox starts all the same, so that its owner can remove something; where
     * the disk of all is full none starts. Where programs run already, as after a restore, what
     * they made of the files is theirs. */
    if (ret == -EDQUOT)
        log_warn("the sandbox's disk is full: " AGENT_NAMES_DIR "/" AGENT_HOSTS_NAME
                 " and others with its name are not whole until its next start");
    else if (ret < 0 && !a->prepared)
        return err_set_sys(e, ERR_INTERNAL, ret, "writing the sandbox's name");
    if (a->prepared)
        generation_renew();
    return ERR_OK;
}

/* No descriptor of the starter's but those of the contract lives on, and none of them in a child.
 * The listener is closed at exec whatever a test switches off: its holder answers for the
 * filter. */
static int close_the_rest(const struct agent *a)
{
    unsigned first = AGENT_CGROUP_FD_FIRST + (unsigned)a->spawn.cgroup_fd_count;
    unsigned last = a->oom_fd > 0 ? AGENT_OOM_FD : AGENT_LISTENER_FD;

    if (a->oom_fd > 0 && io_set_cloexec(AGENT_OOM_FD, true) < 0)
        return -EIO;
    if (fcntl(AGENT_LISTENER_FD, F_GETFD) >= 0 && io_set_cloexec(AGENT_LISTENER_FD, true) < 0)
        return -EIO;
    if (TEST_BYPASS(DESCRIPTORS))
        return 0;
    if ((first < AGENT_LISTENER_FD &&
         syscall(SYS_close_range, first, AGENT_LISTENER_FD - 1, 0) < 0) ||
        syscall(SYS_close_range, last + 1, ~0U, 0) < 0)
        return -errno;
    for (int fd = AGENT_BOOT_FD; fd < (int)first; fd++)
        if (io_set_cloexec(fd, true) < 0)
            return -errno;
    return 0;
}

static int raise_all_permitted(void)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{0}};

    if (syscall(SYS_capget, &head, data) < 0)
        return -errno;
    for (int i = 0; i < 2; i++) {
        data[i].effective = data[i].permitted;
        data[i].inheritable = 0;
    }
    return syscall(SYS_capset, &head, data) < 0 ? -errno : 0;
}

static int become_agent(void)
{
    if (getuid() == 0 && !TEST_BYPASS(AGENT_UID) &&
        (prctl(PR_SET_KEEPCAPS, 1L, 0L, 0L, 0L) < 0 || syscall(SYS_setgroups, 0, NULL) < 0 ||
         syscall(SYS_setresgid, AGENT_UID, AGENT_UID, AGENT_UID) < 0 ||
         syscall(SYS_setresuid, AGENT_UID, AGENT_UID, AGENT_UID) < 0))
        return -errno;
    return raise_all_permitted();
}

/* The bounding set bounds what an exec gives, not what this process has: it keeps a strict superset
 * of its children's, which is what keeps the sandbox's root from its memory and descriptors.
 * securebits go back to the usual, so that set-uid programs work. */
static int bound_children(uint64_t caps)
{
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0L, 0L, 0L) < 0)
        return -errno;
    for (unsigned long cap = 0; cap <= BOOT_CAP_MAX; cap++) {
        if ((caps >> cap & 1) || prctl(PR_CAPBSET_READ, cap, 0L, 0L, 0L) <= 0)
            continue;
        if (prctl(PR_CAPBSET_DROP, cap, 0L, 0L, 0L) < 0)
            return -errno;
    }
    if (prctl(PR_SET_SECUREBITS, 0L, 0L, 0L, 0L) < 0)
        return -errno;
    return 0;
}

enum err_code boot_confine(const struct agent *a, struct err *e)
{
    int ret;

    if ((ret = close_the_rest(a)) < 0)
        return err_set_sys(e, ERR_INTERNAL, ret, "closing descriptors");
    if ((ret = become_agent()) < 0)
        return err_set_sys(e, ERR_INTERNAL, ret, "becoming uid %u", AGENT_UID);
    if ((ret = bound_children(a->spawn.caps)) < 0)
        return err_set_sys(e, ERR_INTERNAL, ret, "bounding the capabilities of children");
    /* After the change of uid, which sets it to the machine's default. */
    if (prctl(PR_SET_DUMPABLE, TEST_BYPASS(UNDUMPABLE) ? 1L : 0L, 0L, 0L, 0L) < 0)
        return err_set_sys(e, ERR_INTERNAL, errno, "becoming undumpable");
    return ERR_OK;
}

/* Nothing that is sent ends PID 1: all is blocked, children are reaped through a signalfd. */
void boot_prepare(void)
{
    struct rlimit files;
    sigset_t all;

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    prctl(PR_SET_NAME, "cay-init", 0L, 0L, 0L);
    if (getpid() != 1)
        prctl(PR_SET_CHILD_SUBREAPER, 1L, 0L, 0L, 0L);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    umask(022);
}

int boot_listen(uint32_t address, uint16_t port)
{
    CLEANUP_CLOSE int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_in sa = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(address)};
    int on = 1;

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
        bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 || listen(fd, BOOT_BACKLOG) < 0)
        return -errno;
    return TAKE_FD(fd);
}

void boot_report(int boot_fd, const struct err *why)
{
    char answer = why ? AGENT_FAILED : AGENT_READY;

    if (io_write_full(boot_fd, &answer, 1) == 0 && why)
        (void)!io_write_full(boot_fd, why->text, strlen(why->text) + 1);
    close(boot_fd);
}
