#include "runtime/internal.h"

#include "base/io.h"
#include "base/log.h"
#include "sys/mnt.h"
#include "sys/ns.h"
#include "sys/pid.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define EGRESS_BACKLOG 1024

#ifndef MFD_EXEC
#define MFD_EXEC 0x10U
#endif

#define AGENT_MAX_BYTES (64 << 20)

uint32_t runtime_slot_uid(const struct runtime *rt, uint32_t slot)
{
    return rt->uid_base + slot * RUNTIME_UID_COUNT;
}

/* --- the agent's binary ------------------------------------------------------------------------ */

static int copy_file(int from, int to, off_t size)
{
    for (off_t done = 0; done < size;) {
        ssize_t n = sendfile(to, from, NULL, (size_t)(size - done));
        if (n < 0)
            return -errno;
        if (n == 0)
            return -ENODATA;
        done += n;
    }
    return 0;
}

static int new_memfd(void)
{
    int fd = memfd_create("cay-init", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);
    if (fd < 0 && errno == EINVAL) /* before Linux 6.3 */
        fd = memfd_create("cay-init", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return fd < 0 ? -errno : fd;
}

/* A sealed copy: nothing that runs from it can change it, and the file on disk may be replaced at any
 * time. Owned by the host's root and execute-only, which does more than it seems: a process whose program
 * it may not read belongs, for tracing and for /proc, to the user namespace that owns the file: the
 * host's. Root inside a sandbox has no say over PID 1 by any capability of its own (exec's would_dump). */
static int load_agent(const char *path)
{
    struct stat st;
    CLEANUP_CLOSE int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0 || fstat(file, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_size <= 0 || st.st_size > AGENT_MAX_BYTES)
        return -ENOEXEC;
    CLEANUP_CLOSE int fd = new_memfd();
    if (fd < 0)
        return fd;
    int rc = copy_file(file, fd, st.st_size);
    if (rc < 0)
        return rc;
    int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    if (fchmod(fd, TEST_BYPASS(UNREADABLE) ? 0555 : 0111) < 0 || fcntl(fd, F_ADD_SEALS, seals) < 0)
        return -errno;
    return TAKE_FD(fd);
}

int runtime_reload_agent(struct runtime *rt)
{
    int fd = load_agent(rt->agent_path);
    if (fd < 0) {
        log_error("runtime: %s: %s", rt->agent_path, strerror(-fd));
        return fd;
    }
    util_close(&rt->agent_fd);
    rt->agent_fd = fd;
    return 0;
}

/* --- opening ----------------------------------------------------------------------------------- */

/* Absolute, and every component a directory that only root can change: whatever is below is then ours. */
static int open_state(const char *path)
{
    struct stat st;
    CLEANUP_CLOSE int fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const char *p = path;

    if (*p != '/' || fd < 0)
        return *p != '/' ? -EINVAL : -errno;
    while (*(p += strspn(p, "/"))) {
        char name[256];
        size_t n = strcspn(p, "/");
        if (n >= sizeof(name))
            return -ENAMETOOLONG;
        memcpy(name, p, n);
        name[n] = '\0';
        p += n;
        int next = mnt_open_beneath(fd, name, O_RDONLY | O_DIRECTORY, 0);
        if (next < 0)
            return next;
        util_close(&fd);
        fd = next;
        if (fstat(fd, &st) < 0)
            return -errno;
        if (st.st_uid != 0 || ((st.st_mode & 022) && !(st.st_mode & S_ISVTX)))
            return -EPERM;
    }
    return TAKE_FD(fd);
}

static int open_dirs(struct runtime *rt, const struct runtime_config *config)
{
    struct stat st;
    rt->state_fd = open_state(config->state_dir);
    if (rt->state_fd < 0 || fstat(rt->state_fd, &st) < 0) {
        log_error(
            "runtime: state directory %s: %s (every part of it has to be a directory of root's "
            "that nobody else can write to)",
            config->state_dir, strerror(rt->state_fd < 0 ? -rt->state_fd : errno));
        return rt->state_fd < 0 ? rt->state_fd : -errno;
    }
    if (st.st_mode & 077) {
        log_error("runtime: state directory %s: mode has to be 0700", config->state_dir);
        return -EPERM;
    }
    if (mkdirat(rt->state_fd, RUNTIME_STAGE_DIR, 0700) < 0 && errno != EEXIST) {
        int rc = -errno;
        log_error("runtime: cannot make a directory in %s: %s%s", config->state_dir, strerror(-rc),
                  rc == -ENOSPC ? " (space or inodes)" : "");
        return rc;
    }
    rt->stage_fd = mnt_open_beneath(rt->state_fd, RUNTIME_STAGE_DIR, O_RDONLY | O_DIRECTORY, 0);
    return rt->stage_fd < 0 ? rt->stage_fd : 0;
}

static int fill(struct runtime *rt, const struct runtime_config *config)
{
    char why[192] = "";
    rt->slots_max = config->slots_max;
    rt->cpus = (uint32_t)MAX(sysconf(_SC_NPROCESSORS_CONF), 1L);
    rt->uid_base = config->uid_base ? config->uid_base : RUNTIME_UID_BASE;
    rt->agent_path = strdup(config->agent_path);
    if (!rt->agent_path)
        return -ENOMEM;
    int rc = open_dirs(rt, config);
    if (rc == 0)
        rc = runtime_reload_agent(rt);
    if (rc < 0)
        return rc;
    rc = cgroup_open(config->cgroup_name, &rt->cgroups, why, sizeof(why));
    if (rc < 0) {
        log_error("runtime: %s", why);
        return rc;
    }
    log_info("runtime: cgroup %s", cgroup_version(rt->cgroups));
    rc = filter_build(AGENT_UID, false, &rt->filter);
    if (rc == 0)
        rc = filter_build(AGENT_UID, true, &rt->asking_filter);
    if (rc < 0) {
        log_error("runtime: system call filter: %s", strerror(-rc));
        return rc;
    }
    return disk_open(config, rt->state_fd, &rt->disk);
}

int runtime_open(const struct runtime_config *config, struct runtime **out)
{
    if (config->slots_max == 0 || config->slots_max > RUNTIME_SLOTS_MAX)
        return -ERANGE;
    struct runtime *rt = calloc(1, sizeof(*rt));
    if (!rt)
        return -ENOMEM;
    rt->state_fd = rt->stage_fd = rt->agent_fd = -1;
    rt->disk = (struct disk){
        .root_fd = -1, .templates_fd = -1, .layers_fd = -1, .spare_fd = -1, .view_fd = -1};
    int rc = fill(rt, config);
    if (rc < 0) {
        runtime_close(rt);
        return rc;
    }
    *out = rt;
    return 0;
}

void runtime_close(struct runtime *rt)
{
    if (!rt)
        return;
    disk_close(&rt->disk);
    cgroup_close(rt->cgroups);
    filter_free(&rt->filter);
    filter_free(&rt->asking_filter);
    util_close(&rt->agent_fd);
    util_close(&rt->stage_fd);
    util_close(&rt->state_fd);
    free(rt->agent_path);
    free(rt);
}

int runtime_shutdown(struct runtime *rt)
{
    int rc = cgroup_remove_base(rt->cgroups);
    int disk_rc = disk_unmount(&rt->disk, rt->state_fd);
    return rc < 0 ? rc : disk_rc;
}

const char *runtime_disk_name(const struct runtime *rt)
{
    return rt->disk.backend->name;
}

int runtime_disk_space(const struct runtime *rt, uint64_t *total_bytes, uint64_t *free_bytes)
{
    return disk_space(&rt->disk, total_bytes, free_bytes);
}

int runtime_disk_trouble(const struct runtime *rt)
{
    return disk_trouble(&rt->disk);
}

int runtime_templates_fd(const struct runtime *rt)
{
    return rt->disk.templates_fd;
}

/* --- running sandboxes ------------------------------------------------------------------------- */

int runtime_kill(struct runtime *rt, uint32_t slot, int pidfd)
{
    if (pidfd < 0)
        return cgroup_kill(rt->cgroups, slot);
    int rc = pid_kill(pidfd, SIGKILL);
    /* A task that was killed in a frozen version 1 cgroup stays until it is thawed. */
    cgroup_freeze(rt->cgroups, slot, false);
    return rc;
}

void runtime_thaw(const struct runtime *rt, uint32_t slot)
{
    (void)cgroup_freeze(rt->cgroups, slot, false);
}

int runtime_reap(int pidfd, struct runtime_exit *out)
{
    struct runtime_exit e = {0};
    int rc = pid_reap(pidfd, &e.code, &e.status);
    if (rc == 0)
        *out = e;
    return rc;
}

bool runtime_was_oom(const struct runtime *rt, uint32_t slot)
{
    return cgroup_oom_kills(rt->cgroups, slot, CGROUP_AGENT) > 0;
}

/* Runs fn inside a namespace of pidfd's process. Safe as long as fn makes one thing there and nothing else
 * runs in between; to go on from the wrong namespace is not. */
static int within(int pidfd, int type, const char *own, int (*fn)(void *arg), void *arg)
{
    CLEANUP_CLOSE int home = open(own, O_RDONLY | O_CLOEXEC);
    if (home < 0)
        return -errno;
    int rc = ns_enter(pidfd, type);
    if (rc < 0)
        return rc;
    rc = fn(arg);
    if (ns_enter(home, type) < 0)
        abort();
    return rc;
}

static int set_host_name(void *arg)
{
    const char *id = arg;
    return sethostname(id, strlen(id)) < 0 ? -errno : 0;
}

int runtime_claim(const struct runtime *rt, int pidfd, int boot_fd,
                  const struct runtime_claim *claim)
{
    struct agent_claim block;
    if (memchr(claim->id, '\0', sizeof(claim->id)) == NULL)
        return -EINVAL;
    int rc = within(pidfd, CLONE_NEWUTS, "/proc/self/ns/uts", set_host_name, (void *)claim->id);
    if (rc < 0)
        return rc;
    memcpy(block.key, claim->key, sizeof(block.key));
    memcpy(block.id, claim->id, sizeof(block.id));
    rc = io_write_full(boot_fd, &block, sizeof(block)); /* the socket's buffer is empty */
    explicit_bzero(&block, sizeof(block));
    return rc;
}

struct sockets {
    int *fds;
    unsigned n;
};

/* None is connected yet. */
static int open_sockets(void *arg)
{
    const struct sockets *s = arg;
    for (unsigned i = 0; i < s->n; i++) {
        s->fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (s->fds[i] >= 0)
            continue;
        int rc = -errno;
        while (i > 0)
            util_close(&s->fds[--i]);
        return rc;
    }
    return 0;
}

int runtime_sockets(const struct runtime *rt, int pidfd, int *fds, unsigned n)
{
    struct sockets sockets = {.fds = fds, .n = n};
    if (n == 0 || n > RUNTIME_SOCKETS_MAX)
        return -EINVAL;
    return within(pidfd, CLONE_NEWNET, "/proc/self/ns/net", open_sockets, &sockets);
}

/* Dual stack, and with it one socket for both families. The address may be used again, since after a
 * death of cay-egress the connections that it had still linger on the port; who listens there bars it
 * all the same. */
static int bind_everywhere(int type, uint16_t port)
{
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    CLEANUP_CLOSE int fd = socket(AF_INET6, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int off = 0, again = type == SOCK_STREAM;

    if (fd < 0 || setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &again, sizeof(again)) < 0 ||
        bind(fd, (const struct sockaddr *)&at, sizeof(at)) < 0)
        return -errno;
    return TAKE_FD(fd);
}

static int open_listeners(void *arg)
{
    CLEANUP_CLOSE int tcp = bind_everywhere(SOCK_STREAM, EGRESS_TCP_PORT);
    CLEANUP_CLOSE int udp = bind_everywhere(SOCK_DGRAM, EGRESS_UDP_PORT);
    int *fds = arg, on = 1;

    if (tcp < 0 || udp < 0)
        return tcp < 0 ? tcp : udp;
    if (listen(tcp, EGRESS_BACKLOG) < 0 ||
        setsockopt(udp, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof(on)) < 0)
        return -errno;
    fds[0] = TAKE_FD(tcp);
    fds[1] = TAKE_FD(udp);
    return 0;
}

int runtime_listeners(const struct runtime *rt, int pidfd, int fds[static PRIVSEP_EGRESS_FDS])
{
    if (TEST_BYPASS(NETWORK_NAMESPACE))
        return -EOPNOTSUPP; /* they would stand in the host's own */
    return within(pidfd, CLONE_NEWNET, "/proc/self/ns/net", open_listeners, fds);
}
