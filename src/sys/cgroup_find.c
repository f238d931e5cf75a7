/* Where the machine has the controllers: the hierarchies of version 2 or 1, and our directory in
 * each. */
#include "sys/cgroup_internal.h"

#include "base/io.h"
#include "base/word_list.h"

#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define SEPARATORS " ," /* of version 2's list of controllers, and of mount options */

static const struct {
    const char *name;
    bool leaves;
    bool required;
} controllers[CONTROLLERS] = {
    [MEMORY] = {"memory", true, true},     [PIDS] = {"pids", true, true},
    [CPU] = {"cpu", true, false},          [CPUACCT] = {"cpuacct", false, false},
    [FREEZER] = {"freezer", false, false},
};

int cgroup_make_dir(int dir_fd, const char *path)
{
    return mkdirat(dir_fd, path, 0755) < 0 && errno != EEXIST ? -errno : 0;
}

/* Opens (makes) `name` below a hierarchy's mount point. The index of the hierarchy, or -errno. */
static int add_hierarchy(struct cgroup *cg, const char *mount_point)
{
    CLEANUP_CLOSE int mount_fd = open(mount_point, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (mount_fd < 0)
        return -errno;
    int rc = cgroup_make_dir(mount_fd, cg->name);
    if (rc < 0)
        return rc;
    int fd = openat(mount_fd, cg->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    cg->h[cg->count] = (struct hierarchy){.fd = fd, .mount_fd = TAKE_FD(mount_fd)};
    return cg->count++;
}

int cgroup_delegate(int dir_fd)
{
    static const char *const needed[] = {"+memory", "+pids", "+cpu"};
    for (size_t i = 0; i < ARRAY_SIZE(needed); i++) {
        int rc = io_write_text_at(dir_fd, "cgroup.subtree_control", needed[i]);
        if (rc < 0 && i < 2)
            return rc;
    }
    return 0;
}

static int open_v2(struct cgroup *cg, const char *mount_point)
{
    char list[256];
    CLEANUP_CLOSE int root = open(mount_point, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0 || io_read_text_at(root, "cgroup.controllers", list, sizeof(list)) < 0)
        return -EOPNOTSUPP;
    if (!word_list_has(list, SEPARATORS, "memory") || !word_list_has(list, SEPARATORS, "pids"))
        return -EOPNOTSUPP;
    int rc = cgroup_delegate(root);
    int index = rc < 0 ? rc : add_hierarchy(cg, mount_point);
    if (index < 0)
        return index;
    cg->v2 = true;
    cg->h[index].leaves = true;
    for (int c = 0; c < CONTROLLERS; c++)
        cg->of[c] = c == CPU && !word_list_has(list, SEPARATORS, "cpu") ? -1 : index;
    return cgroup_delegate(cg->h[index].fd);
}

/* A v1 mount may carry several controllers ("cpu,cpuacct"). */
static int add_v1(struct cgroup *cg, const struct mntent *m)
{
    int index = -1;
    for (int c = 0; c < CONTROLLERS; c++) {
        if (cg->of[c] >= 0 || !word_list_has(m->mnt_opts, SEPARATORS, controllers[c].name))
            continue;
        if (index < 0)
            index = add_hierarchy(cg, m->mnt_dir);
        if (index < 0)
            return index;
        cg->of[c] = index;
        cg->h[index].leaves |= controllers[c].leaves;
    }
    return 0;
}

static int walk_mounts(struct cgroup *cg, const char *type)
{
    FILE *f = setmntent("/proc/self/mounts", "re");
    if (!f)
        return -errno;
    struct mntent m;
    char text[4096];
    int rc = -EOPNOTSUPP;
    while (getmntent_r(f, &m, text, sizeof(text))) {
        if (strcmp(m.mnt_type, type) != 0)
            continue;
        rc = strcmp(type, "cgroup2") == 0 ? open_v2(cg, m.mnt_dir) : add_v1(cg, &m);
        if ((rc < 0 && rc != -EOPNOTSUPP) || (rc == 0 && cg->v2))
            break;
    }
    endmntent(f);
    return rc;
}

static int check(const struct cgroup *cg, char *why, size_t size)
{
    for (int c = 0; c < CONTROLLERS; c++) {
        if (controllers[c].required && cg->of[c] < 0) {
            snprintf(why, size, "the %s controller is in no mounted cgroup hierarchy",
                     controllers[c].name);
            return -EOPNOTSUPP;
        }
    }
    return 0;
}

int cgroup_open(const char *name, struct cgroup **out, char *why, size_t why_size)
{
    char none[128];
    if (!why) {
        why = none;
        why_size = sizeof(none);
    }
    struct cgroup *cg = calloc(1, sizeof(*cg));
    if (!cg)
        return -ENOMEM;
    if (strlen(name) >= sizeof(cg->name)) {
        free(cg);
        return -ENAMETOOLONG;
    }
    snprintf(cg->name, sizeof(cg->name), "%s", name);
    for (int c = 0; c < CONTROLLERS; c++)
        cg->of[c] = -1;
    int rc = walk_mounts(cg, "cgroup2");
    if (rc == -EOPNOTSUPP)
        rc = walk_mounts(cg, "cgroup");
    if (rc < 0)
        snprintf(why, why_size, "control groups below /sys/fs/cgroup cannot be made: %s%s",
                 strerror(-rc),
                 rc == -EROFS || rc == -EACCES || rc == -EPERM
                     ? " (whatever runs this machine has to let cay write there)"
                     : "");
    else
        rc = check(cg, why, why_size);
    if (rc == 0 && (rc = cgroup_spare_open(cg)) < 0)
        snprintf(why, why_size, "a page that tasks share: %s", strerror(-rc));
    if (rc < 0) {
        cgroup_close(cg);
        return rc;
    }
    *out = cg;
    return 0;
}

const char *cgroup_version(const struct cgroup *cg)
{
    return cg->v2 ? "v2" : "v1";
}

void cgroup_close(struct cgroup *cg)
{
    if (!cg)
        return;
    for (int i = 0; i < cg->count; i++) {
        util_close(&cg->h[i].fd);
        util_close(&cg->h[i].mount_fd);
    }
    cgroup_spare_close(cg);
    free(cg);
}
