/* The process level's slots, which are made ahead of sandboxes, and whether one can be made here at
 * all. A slot is made by a task (namespaces, their network, places for files and control groups),
 * used by one start, and ended by another task, several at a time, when none of its processes
 * lives. *_begin returns at once, *_finish collects. The probe does the same once at privd's start
 * and undoes it. */

#include "runtime/slot.h"

#include "base/io.h"
#include "base/log.h"
#include "runtime/disk.h"
#include "runtime/level.h"
#include "runtime/state.h"
#include "sys/mnt.h"
#include "sys/netlink.h"
#include "sys/ns.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/securebits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define PROBE_TIMEOUT_MS 10000

int process_fail(struct task_result *out, enum privsep_stage stage, int rc)
{
    out->stage = (uint32_t)stage;
    return rc;
}

int process_collect(struct task *t, struct task_result *result, uint32_t *stage)
{
    int rc = task_collect(t, result);
    if (rc == 0)
        rc = result->status;
    else
        result->n_fds = 0;
    if (rc < 0 && rc != -EAGAIN && stage)
        *stage = result->stage;
    return rc;
}

/* --- slots ------------------------------------------------------------------------------------ */

/* In the new user and network namespace, as its root: safe, as nothing of the host is writable to
 * it. */
int process_set_up_network(struct nft_rate rate)
{
    int rc = ns_become(0, 0);
    if (rc == 0 && !TEST_BYPASS(NETWORK_NAMESPACE))
        rc = netlink_setup_loopback();
    /* NOLINTNEXTLINE(misc-redundant-expression): both are false but in test builds */
    if (rc == 0 && !TEST_BYPASS(NETWORK_NAMESPACE) && !TEST_BYPASS(NETWORK_RULES))
        rc = nft_setup_proxied(EGRESS_TCP_PORT, EGRESS_UDP_PORT, rate);
    return rc;
}

NORETURN static void run_network(int pipe_fd)
{
    char go;
    int32_t rc = io_read_full(pipe_fd, &go, 1);
    if (rc == 0)
        rc = process_set_up_network(NFT_RATE_SANDBOX);
    _exit(io_write_full(pipe_fd, &rc, sizeof(rc)) < 0);
}

/* A child in a new user namespace, and others besides. The namespace's owner is the euid that makes
 * it: with the first id of the range instead of 0, the kernel's per-user counts (inotify, pending
 * signals, ...) are the slot's own. SECBIT_NO_SETUID_FIXUP keeps our capabilities while euid is not
 * 0; only this task, which ends soon, is changed (the child's namespace begins with usual bits).
 * The change of euid takes the parent-death signal from us: it is set again. */
pid_t process_fork_owned(uint32_t uid, uint64_t flags, int exit_signal, int *pidfd)
{
    if (TEST_BYPASS(NETWORK_NAMESPACE))
        flags &= ~(uint64_t)CLONE_NEWNET;
    if (TEST_BYPASS(OWN_COUNTS))
        uid = 0;
    if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) < 0 ||
        setresgid((gid_t)-1, uid, (gid_t)-1) < 0 || setresuid((uid_t)-1, uid, (uid_t)-1) < 0)
        return -errno;
    pid_t pid = ns_fork(CLONE_NEWUSER | flags, exit_signal, pidfd);
    if (pid == 0)
        return 0;
    if (setresuid((uid_t)-1, 0, (uid_t)-1) < 0 || setresgid((gid_t)-1, 0, (gid_t)-1) < 0 ||
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        /* as another user there is nothing that could be done: the child sees it and goes */
        _exit(1);
    return pid;
}

int process_make_namespaces(uint32_t uid, struct task_result *out)
{
    int pair[2], rc;
    int32_t answer = -EIO;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    pid_t pid = process_fork_owned(uid, CLONE_NEWNET, SIGCHLD, NULL);
    if (pid == 0) {
        close(pair[0]);
        run_network(pair[1]);
    }
    close(pair[1]);
    rc = pid < 0 ? pid : ns_write_maps(pid, uid, RUNTIME_UID_COUNT);
    /* Before it goes on: a process that has ended has no namespaces any more. */
    if (rc == 0 && (rc = ns_open(pid, "user")) >= 0)
        out->fds[out->n_fds++] = rc;
    if (rc >= 0 && (rc = ns_open(pid, "net")) >= 0)
        out->fds[out->n_fds++] = rc;
    if (rc >= 0)
        rc = io_write_full(pair[0], "g", 1);
    if (rc == 0)
        rc = io_read_full(pair[0], &answer, sizeof(answer));
    if (rc == 0)
        rc = answer;
    close(pair[0]);
    if (pid > 0)
        waitpid(pid, NULL, 0);
    return rc;
}

/* A kept layer is taken only when its record, which says where to, cannot be lost any more. */
static int make_layer(struct runtime *rt, uint32_t number, uint32_t gen,
                      const struct runtime_start *start)
{
    const struct disk_backend *backend = rt->disk.backend;

    if (!start || !start->kept)
        return backend->layer_make(&rt->disk, number, gen);
    if (!backend->layer_take)
        return -EOPNOTSUPP;
    int rc = !start->copy && fdatasync(start->records_fd) < 0 ? -errno : 0;
    if (rc == 0 && start->last)
        rc = backend->kept_settle(&rt->disk, start->kept);
    if (rc == 0)
        rc = start->copy && !start->last
                 ? backend->layer_from(&rt->disk, number, gen, start->kept, start->ahead)
                 : backend->layer_take(&rt->disk, number, gen, start->kept);
    if (rc == DISK_FORGOT)
        return 0;
    return rc < 0 || start->image ? rc : backend->layer_forget(&rt->disk, number, gen);
}

int process_replace_layer(struct runtime *rt, uint32_t number, uint32_t gen,
                          const struct runtime_start *start, struct task_result *out)
{
    int rc = rt->disk.backend->layer_give_back(&rt->disk, number, gen);

    if (rc == 0)
        rc = make_layer(rt, number, gen, start);
    return rc < 0 ? process_fail(out, PRIVSEP_STAGE_LAYER, rc) : 0;
}

int process_change_layer(struct runtime *rt, uint32_t number, uint32_t gen,
                         const struct runtime_start *start, struct task_result *out)
{
    const struct disk_backend *backend = rt->disk.backend;
    int rc = backend->layer_put_aside ? backend->layer_put_aside(&rt->disk, number, gen)
                                      : -EOPNOTSUPP;

    if (rc == 0)
        rc = make_layer(rt, number, gen, start);
    return rc < 0 ? process_fail(out, PRIVSEP_STAGE_LAYER, rc) : 0;
}

int process_make_dirs(struct runtime *rt, uint32_t number, uint32_t gen,
                      const struct runtime_start *start, struct task_result *out)
{
    int rc = make_layer(rt, number, gen, start);

    if (rc < 0)
        return process_fail(out, PRIVSEP_STAGE_LAYER, rc);
    rc = cgroup_make(rt->cgroups, number);
    return rc < 0 ? process_fail(out, PRIVSEP_STAGE_CGROUP, rc) : 0;
}

static int make_slot(void *arg, struct task_result *out)
{
    const struct process_slot_args *a = arg;
    struct runtime *rt = a->rt;
    int rc = process_make_dirs(rt, a->number, a->gen, NULL, out);

    if (rc == 0) {
        rc = process_make_namespaces(runtime_slot_uid(a->rt, a->number), out);
        if (rc < 0)
            process_fail(out, PRIVSEP_STAGE_NAMESPACES, rc);
    }
    if (rc < 0) {
        cgroup_remove(rt->cgroups, a->number);
        rt->disk.backend->layer_destroy(&rt->disk, a->number, a->gen);
        out->n_fds = 0;
    }
    return rc;
}

int process_slot_begin(struct runtime *rt, uint32_t number, uint32_t gen, struct task *out)
{
    struct process_slot_args args = {.rt = rt, .number = number, .gen = gen};
    if (number >= rt->slots_max)
        return -ERANGE;
    return task_spawn(make_slot, &args, out);
}

int process_slot_finish(struct runtime *rt, struct task *t, struct runtime_slot *out,
                        uint32_t *stage)
{
    struct task_result result = {.stage = PRIVSEP_STAGE_SLOT};
    int rc = process_collect(t, &result, stage);
    if (rc < 0)
        return rc;
    if (result.n_fds != 2) {
        for (uint32_t i = 0; i < result.n_fds; i++)
            util_close(&result.fds[i]);
        return -EPROTO;
    }
    out->userns_fd = result.fds[0];
    out->netns_fd = result.fds[1];
    return 0;
}

void process_slot_close(struct runtime_slot *s)
{
    util_close(&s->userns_fd);
    util_close(&s->netns_fd);
}

/* --- ends ------------------------------------------------------------------------------------- */

struct end_args {
    struct runtime *rt;
    const struct runtime_end *ends;
    unsigned n;
};

/* How each went, two bytes for each. */
#define STATUSES_PER_VALUE 4
_Static_assert(RUNTIME_ENDS_MAX <= STATUSES_PER_VALUE * TASK_MAX_VALUES, "room for all");

/* Pages of the layer's files are charged to the control groups, which are used again only with
 * little charged: so the layer goes first where no process can write to it any more. Of what is
 * left when the groups cannot be removed, the layer is nothing to the next try. */
static int remove_both(struct runtime *rt, const struct runtime_end *e)
{
    const struct disk_backend *backend = rt->disk.backend;
    int rc = backend->layer_destroy(&rt->disk, e->number, e->gen);

    return rc < 0 ? rc : cgroup_remove(rt->cgroups, e->number);
}

/* A start that was to take kept files failed before it did, and the layer is the slot's own; or an
 * end before this one has given the number its files again, and was cut off before a commit of the
 * file system had that. */
static bool was_not_taken(const struct runtime *rt, const struct runtime_end *e)
{
    return e->taken && disk_is_kept(&rt->disk, e->keep);
}

static int end_layer(struct runtime *rt, const struct runtime_end *e)
{
    const struct disk_backend *backend = rt->disk.backend;
    int rc;

    if (!e->keep && !e->sync && cgroup_is_empty(rt->cgroups, e->number))
        return remove_both(rt, e);
    rc = cgroup_remove(rt->cgroups, e->number);
    if (rc == 0 && e->sync && syncfs(rt->disk.volumes_fd) < 0)
        rc = -errno;
    /* A layer that processes may still write to is not taken away: the caller tries again. */
    if (rc == 0 && (!e->keep || was_not_taken(rt, e)))
        rc = backend->layer_destroy(&rt->disk, e->number, e->gen);
    if (rc < 0 || !e->keep)
        return rc;
    if (!backend->layer_keep)
        return -EOPNOTSUPP;
    rc = fdatasync(e->records_fd) < 0 ? -errno : 0;
    if (rc == 0 && e->drop_image)
        rc = backend->image_remove(&rt->disk, e->number, e->gen);
    /* Without a layer it may have its number already. */
    return rc == 0 || rc == -ENOENT ? backend->layer_keep(&rt->disk, e->number, e->gen, e->keep)
                                    : rc;
}

static int end_one(struct runtime *rt, const struct runtime_end *e)
{
    const struct disk_backend *backend = rt->disk.backend;
    int rc = end_layer(rt, e);

    return rc == 0 && backend->layer_aside_end
               ? backend->layer_aside_end(&rt->disk, e->number, e->gen)
               : rc;
}

static int end_slots(void *arg, struct task_result *out)
{
    const struct end_args *a = arg;
    for (unsigned i = 0; i < a->n; i++) {
        uint64_t error = (uint16_t)-end_one(a->rt, &a->ends[i]);
        out->values[i / STATUSES_PER_VALUE] |= error << (16 * (i % STATUSES_PER_VALUE));
    }
    return 0;
}

int process_end_begin(struct runtime *rt, const struct runtime_end *ends, unsigned n,
                      struct task *out)
{
    struct end_args args = {.rt = rt, .ends = ends, .n = n};
    if (n == 0 || n > RUNTIME_ENDS_MAX)
        return -EINVAL;
    for (unsigned i = 0; i < n; i++)
        if (ends[i].number >= RUNTIME_SLOTS_MAX)
            return -ERANGE;
    return task_spawn(end_slots, &args, out);
}

int process_end_finish(struct runtime *rt, struct task *t, struct runtime_end *ends, unsigned n)
{
    struct task_result result = {0};
    int rc = process_collect(t, &result, NULL);
    for (unsigned i = 0; rc == 0 && i < n && i < RUNTIME_ENDS_MAX; i++)
        ends[i].status = -(
            int)((result.values[i / STATUSES_PER_VALUE] >> (16 * (i % STATUSES_PER_VALUE))) &
                 0xffff);
    return rc;
}

/* --- can it work here? ------------------------------------------------------------------------ */

static int try_namespaces(void *arg, struct task_result *out)
{
    struct runtime *rt = arg;
    return process_make_namespaces(runtime_slot_uid(rt, 0), out);
}

/* Makes what every slot needs once, for the reason rather than at the first sandbox. */
static int probe_namespaces(struct runtime *rt, int *userns_fd)
{
    struct task t = TASK_NONE;
    struct task_result result = {0};
    int rc = task_spawn(try_namespaces, rt, &t);
    if (rc < 0)
        return rc;
    struct pollfd p = {.fd = t.pidfd, .events = POLLIN};
    if (poll(&p, 1, PROBE_TIMEOUT_MS) != 1) {
        int left = task_cancel(&t);
        util_close(&left);
        return -ETIMEDOUT;
    }
    rc = process_collect(&t, &result, NULL);
    if (rc == 0 && result.n_fds == 2)
        *userns_fd = TAKE_FD(result.fds[0]);
    for (uint32_t i = 0; i < result.n_fds; i++)
        util_close(&result.fds[i]);
    return rc == 0 && *userns_fd < 0 ? -EPROTO : rc;
}

static const char *namespaces_hint(int rc)
{
    switch (rc) {
    case -ENOSPC: return " (look at /proc/sys/user/max_user_namespaces and max_net_namespaces)";
    case -EMFILE:
    case -ENFILE: return " (RLIMIT_NOFILE is too low)";
    case -EPERM: return " (user namespaces may be off, or whatever runs this machine forbids them)";
    default: return " (it takes user namespaces, and nf_tables with reject)";
    }
}

int process_probe(struct runtime *rt, char *why, size_t why_size)
{
    CLEANUP_CLOSE int userns = -1, disk = -1, usr = -1;
    int rc = probe_namespaces(rt, &userns);
    if (rc < 0) {
        snprintf(why, why_size, "no user and network namespace with rules of its own: %s%s",
                 strerror(-rc), namespaces_hint(rc));
        return rc;
    }
    CLEANUP_CLOSE int overlay = fsopen("overlay", FSOPEN_CLOEXEC);
    if (overlay < 0) {
        rc = -errno;
        snprintf(why, why_size, "the kernel has no overlay file system: %s", strerror(-rc));
        return rc;
    }
    disk = mnt_clone_idmapped(rt->disk.root_fd, "", 0, userns);
    if (disk < 0) {
        snprintf(why, why_size, "mounts of the state disk cannot have ids of their own: %s",
                 strerror(-disk));
        return disk;
    }
    usr = mnt_clone_idmapped(AT_FDCWD, "/usr", RUNTIME_LOWER_ATTR, userns);
    if (usr < 0)
        log_warn(
            "runtime: mounts of this host's /usr cannot have ids of their own (%s): the template "
            "host does not work here, others do",
            strerror(-usr));
    return 0;
}
