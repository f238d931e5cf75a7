/* Shared by all levels, opened once at privd's start and closed at its end: the state
 * directory, whose every component only root can change; the disk; the control groups;
 * cay-init's binary, in a sealed memory file that every start executes and that is read anew
 * for a new one; the filters. A failure to open any of it is why privd does not start. Kept
 * files are dropped by tasks (*_begin returns at once, *_finish collects); nothing here is of one
 * sandbox. */

#include "runtime/copies_ahead.h"
#include "runtime/state.h"

#include "base/io.h"
#include "base/log.h"
#include "sys/memfd.h"
#include "sys/mnt.h"
#include "sys/ns.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#ifndef MFD_EXEC
#define MFD_EXEC 0x10U
#endif

uint32_t runtime_slot_uid(const struct runtime *rt, uint32_t slot)
{
    return rt->uid_base + slot * RUNTIME_UID_COUNT;
}

/* --- the agent's binary ----------------------------------------------------------------------- */

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

/* A sealed copy: nothing that runs from it can change it, and the file on disk may be replaced at
 * any time. Owned by the host's root and execute-only, which does more than it seems: a process
 * whose program it may not read belongs, for tracing and for /proc, to the user namespace that owns
 * the file: the host's. Root inside a sandbox has no say over PID 1 by any capability of its own
 * (exec's would_dump). */
static int load_agent(const char *path)
{
    struct stat st;
    CLEANUP_CLOSE int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0 || fstat(file, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_size <= 0 || st.st_size > RUNTIME_AGENT_BYTES_MAX)
        return -ENOEXEC;
    CLEANUP_CLOSE int fd = new_memfd();
    if (fd < 0)
        return fd;
    int rc = copy_file(file, fd, st.st_size);
    if (rc < 0)
        return rc;
    if (fchmod(fd, TEST_BYPASS(UNREADABLE) ? 0555 : 0111) < 0)
        return -errno;
    rc = memfd_seal(fd);
    return rc < 0 ? rc : TAKE_FD(fd);
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

/* --- opening ---------------------------------------------------------------------------------- */

/* Absolute, and every component a directory that only root can change: whatever is below is then
 * ours. */
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
            "that no other user can write to)",
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

static int open_own_namespaces(struct runtime *rt)
{
    rt->own_uts_fd = ns_open(getpid(), "uts");
    rt->own_net_fd = rt->own_uts_fd < 0 ? rt->own_uts_fd : ns_open(getpid(), "net");
    if (rt->own_net_fd < 0)
        log_error("runtime: own namespaces: %s", strerror(-rt->own_net_fd));
    return rt->own_net_fd < 0 ? rt->own_net_fd : 0;
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
        rc = open_own_namespaces(rt);
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
    rt->state_fd = rt->stage_fd = rt->agent_fd = rt->own_uts_fd = rt->own_net_fd = -1;
    rt->host_dir_fds = config->host_dir_fds;
    rt->checkpoint_path = config->checkpoint_path;
    rt->seal_path = config->seal_path;
    rt->exchange_key = config->exchange_key;
    rt->disk = (struct disk){.root_fd = -1,
                             .templates_fd = -1,
                             .layers_fd = -1,
                             .kept_fd = -1,
                             .volumes_fd = -1,
                             .recycled_fd = -1,
                             .view_fd = -1};
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
    util_close(&rt->own_uts_fd);
    util_close(&rt->own_net_fd);
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

bool runtime_can_keep(const struct runtime *rt)
{
    return rt->disk.backend->layer_keep != NULL;
}

bool runtime_is_kept(const struct runtime *rt, uint32_t number)
{
    return runtime_can_keep(rt) && disk_is_kept(&rt->disk, number);
}

bool runtime_has_memory(const struct runtime *rt, uint32_t number)
{
    return runtime_can_keep(rt) && disk_has_image(&rt->disk, number);
}

void runtime_copies_undo_all(struct runtime *rt)
{
    copies_ahead_undo(&rt->disk);
}

int runtime_drop(const struct runtime *rt, uint32_t number, uint32_t ahead)
{
    return runtime_can_keep(rt) ? rt->disk.backend->kept_drop(&rt->disk, number, ahead)
                                : -EOPNOTSUPP;
}

struct drop_args {
    const struct runtime *rt;
    uint32_t number, ahead;
    int records_fd;
};

static int drop_kept(void *arg, struct task_result *out)
{
    const struct drop_args *a = arg;

    if (fdatasync(a->records_fd) < 0)
        return -errno;
    return runtime_drop(a->rt, a->number, a->ahead);
}

int runtime_drop_begin(struct runtime *rt, uint32_t number, uint32_t ahead, int records_fd,
                       struct task *out)
{
    struct drop_args args = {.rt = rt, .number = number, .ahead = ahead, .records_fd = records_fd};

    return task_spawn(drop_kept, &args, out);
}

int runtime_drop_finish(struct task *t)
{
    struct task_result result = {0};
    int rc = task_collect(t, &result);

    return rc == 0 ? result.status : rc;
}

bool runtime_is_volume(const struct runtime *rt, uint32_t number)
{
    return runtime_can_keep(rt) && disk_is_volume(&rt->disk, number);
}

int runtime_volume_remove(const struct runtime *rt, uint32_t number)
{
    return runtime_can_keep(rt) ? rt->disk.backend->volume_remove(&rt->disk, number) : -EOPNOTSUPP;
}

struct volume_args {
    const struct runtime *rt;
    uint32_t number;
    uint64_t bytes; /* 0: it is removed */
    int records_fd;
};

static int change_volume(void *arg, struct task_result *out)
{
    const struct volume_args *a = arg;
    const struct disk *d = &a->rt->disk;

    if (fdatasync(a->records_fd) < 0)
        return -errno;
    return a->bytes ? d->backend->volume_make(d, a->number, a->bytes)
                    : d->backend->volume_remove(d, a->number);
}

int runtime_volume_make_begin(struct runtime *rt, uint32_t number, uint64_t bytes, int records_fd,
                              struct task *out)
{
    struct volume_args args = {
        .rt = rt, .number = number, .bytes = bytes, .records_fd = records_fd};

    if (bytes == 0)
        return -EINVAL;
    return runtime_can_keep(rt) ? task_spawn(change_volume, &args, out) : -EOPNOTSUPP;
}

int runtime_volume_remove_begin(struct runtime *rt, uint32_t number, int records_fd,
                                struct task *out)
{
    struct volume_args args = {.rt = rt, .number = number, .records_fd = records_fd};

    return runtime_can_keep(rt) ? task_spawn(change_volume, &args, out) : -EOPNOTSUPP;
}

int runtime_volume_finish(struct task *t)
{
    return runtime_drop_finish(t);
}

int runtime_templates_fd(const struct runtime *rt)
{
    return rt->disk.templates_fd;
}
