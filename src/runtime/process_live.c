/* The process level while a sandbox lives: sockets inside its network namespace, its claim,
 * freezing, and its end by signal. All of it is inline in privd's loop: microseconds, one
 * thread. */

#include "runtime/level.h"
#include "runtime/slot.h"
#include "runtime/state.h"

#include "base/io.h"
#include "base/log.h"
#include "sys/ns.h"
#include "sys/pid.h"

#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>

#define EGRESS_BACKLOG 1024

/* --- stopping and ending ---------------------------------------------------------------------- */

int process_freeze(const struct runtime *rt, const struct runtime_sandbox *sb)
{
    return cgroup_freeze(rt->cgroups, sb->slot, true);
}

bool process_is_frozen(const struct runtime *rt, const struct runtime_sandbox *sb)
{
    return cgroup_is_frozen(rt->cgroups, sb->slot);
}

int process_thaw(const struct runtime *rt, const struct runtime_sandbox *sb)
{
    return cgroup_freeze(rt->cgroups, sb->slot, false);
}

/* A cay-init that is there still: the pidfd is not another's. */
void process_notify_resumed(const struct runtime_sandbox *sb)
{
    if (sb->pidfd >= 0)
        (void)pid_kill(sb->pidfd, SIGUSR1);
}

int process_kill(const struct runtime *rt, const struct runtime_sandbox *sb)
{
    if (sb->pidfd < 0)
        return cgroup_kill(rt->cgroups, sb->slot);
    int rc = pid_kill(sb->pidfd, SIGKILL);
    /* A task that was killed in a frozen version 1 cgroup stays until it is thawed. */
    (void)process_thaw(rt, sb);
    return rc;
}

/* A cay-init has FILTER_PROGRAMS, a command sandbox's too; limits.filters are its programs' own. */
/* The listener is of the filter that was installed last, and holds the one before it, too. */
int process_pin(const struct runtime_sandbox *sb)
{
    return pid_get_fd(sb->pidfd, AGENT_LISTENER_FD);
}

uint32_t process_kill_cost(const struct privsep_limits *limits, uint32_t command_sandboxes)
{
    return FILTER_PROGRAMS * ((limits ? 1 : 0) + command_sandboxes) +
           (limits ? limits->filters : 0);
}

int process_reap(const struct runtime_sandbox *sb, struct runtime_exit *out)
{
    struct runtime_exit e = {0};
    int rc = pid_reap(sb->pidfd, &e.code, &e.status);
    if (rc == 0)
        *out = e;
    return rc;
}

bool process_was_oom(const struct runtime *rt, const struct runtime_sandbox *sb)
{
    return cgroup_oom_kills(rt->cgroups, sb->slot, CGROUP_AGENT) > 0;
}

/* --- inside its namespaces -------------------------------------------------------------------- */

/* Runs fn inside a namespace of pidfd's process; own_fd is privd's own. Safe as long as fn makes
 * one thing there and nothing else runs in between; to go on from the wrong namespace is not. */
static int within(int pidfd, int type, int own_fd, int (*fn)(void *arg), void *arg)
{
    int rc = ns_enter(pidfd, type);
    if (rc < 0)
        return rc;
    rc = fn(arg);
    if (ns_enter(own_fd, type) < 0) {
        log_error("there is no way back from a sandbox's namespace: no other is served from it");
        abort();
    }
    return rc;
}

static int set_host_name(void *arg)
{
    const char *id = arg;
    return sethostname(id, strlen(id)) < 0 ? -errno : 0;
}

int process_claim(const struct runtime *rt, const struct runtime_sandbox *sb, int boot_fd,
                  const struct runtime_claim *claim)
{
    struct agent_claim block;
    if (memchr(claim->id, '\0', sizeof(claim->id)) == NULL)
        return -EINVAL;
    int rc = within(sb->pidfd, CLONE_NEWUTS, rt->own_uts_fd, set_host_name, (void *)claim->id);
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

int process_sockets(const struct runtime *rt, const struct runtime_sandbox *sb, int *fds,
                    unsigned n)
{
    struct sockets sockets = {.fds = fds, .n = n};
    if (n == 0 || n > RUNTIME_SOCKETS_MAX)
        return -EINVAL;
    return within(sb->pidfd, CLONE_NEWNET, rt->own_net_fd, open_sockets, &sockets);
}

/* Dual stack, and with it one socket for both families. The address may be used again, since after
 * a death of cay-egress the connections that it had still linger on the port; a listener there bars
 * it all the same. */
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

int process_listeners(const struct runtime *rt, const struct runtime_sandbox *sb,
                      int fds[PRIVSEP_EGRESS_FDS])
{
    if (TEST_BYPASS(NETWORK_NAMESPACE))
        return -EOPNOTSUPP; /* they would stand in the host's own */
    return within(sb->pidfd, CLONE_NEWNET, rt->own_net_fd, open_listeners, fds);
}
