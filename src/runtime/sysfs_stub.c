#include "runtime/sysfs_stub.h"

#include "base/fnv.h"
#include "base/io.h"
#include "sys/mnt.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define DIR_NAME  "sysview"
#define NEW_NAME  "new"
#define PATH_SIZE 256
#define TEXT_SIZE 4096 /* a file of sysfs is one page at most */
#define DEPTH_MAX 5
#define FILES_MAX 65536 /* 500 processors have 40 each */

static const char *const dirs[] = {
    "sys",
    "sys/block",
    "sys/bus",
    "sys/class",
    "sys/class/net",
    "sys/dev",
    "sys/devices",
    "sys/devices/system",
    "sys/devices/virtual",
    "sys/devices/virtual/net",
    "sys/devices/virtual/net/lo",
    "sys/devices/virtual/net/lo/statistics",
    "sys/firmware",
    "sys/fs",
    "sys/kernel",
    "sys/kernel/mm",
    "sys/module",
    "sys/power",
};

/* The same in each sandbox. */
static const struct {
    const char *path, *text;
} texts[] = {
    {"sys/devices/virtual/net/lo/addr_len", "6"},
    {"sys/devices/virtual/net/lo/address", "00:00:00:00:00:00"},
    {"sys/devices/virtual/net/lo/broadcast", "00:00:00:00:00:00"},
    {"sys/devices/virtual/net/lo/carrier", "1"},
    {"sys/devices/virtual/net/lo/dev_id", "0x0"},
    {"sys/devices/virtual/net/lo/flags", "0x9"},
    {"sys/devices/virtual/net/lo/ifindex", "1"},
    {"sys/devices/virtual/net/lo/iflink", "1"},
    {"sys/devices/virtual/net/lo/mtu", "65536"},
    {"sys/devices/virtual/net/lo/operstate", "unknown"},
    {"sys/devices/virtual/net/lo/tx_queue_len", "1000"},
    {"sys/devices/virtual/net/lo/type", "772"},
    {"sys/devices/virtual/net/lo/statistics/rx_bytes", "0"},
    {"sys/devices/virtual/net/lo/statistics/rx_packets", "0"},
    {"sys/devices/virtual/net/lo/statistics/tx_bytes", "0"},
    {"sys/devices/virtual/net/lo/statistics/tx_packets", "0"},
};

/* Copied from the host's, as far as all users may read them there. */
static const char *const copied[] = {
    "sys/devices/system/cpu",
    "sys/devices/system/node",
    "sys/kernel/mm/transparent_hugepage",
};

/* Not below those: files that change while they are read, and files that programs do not read to
 * learn about processors. */
static const char *const left_out[] = {
    "acpi_cppc", "cpufreq",  "cpuidle", "hotplug", "khugepaged",       "meminfo", "microcode",
    "modalias",  "numastat", "power",   "uevent",  "thermal_throttle", "vmstat",
};
#define HUGE_PAGES "hugepages" /* and hugepages-64kB, ...: counters */

/* Done twice: to know what it would be, and to make it. */
struct walk {
    int to_fd; /* -1: only summed up */
    uint64_t sum;
    unsigned files;
};

static void add_to_sum(struct walk *w, const char *text)
{
    w->sum = fnv_64(w->sum, text, strlen(text));
    w->sum = fnv_64(w->sum, &(const uint8_t){0xff}, 1);
}

static int make_dir(struct walk *w, const char *path)
{
    add_to_sum(w, path);
    if (w->to_fd < 0)
        return 0;
    if (mkdirat(w->to_fd, path, 0755) < 0 && errno != EEXIST)
        return -errno;
    return fchmodat(w->to_fd, path, 0755, 0) < 0 ? -errno : 0; /* whatever the umask is */
}

static int make_file(struct walk *w, const char *path, const char *text)
{
    add_to_sum(w, path);
    add_to_sum(w, text);
    if (++w->files > FILES_MAX)
        return -EMFILE;
    if (w->to_fd < 0)
        return 0;
    CLEANUP_CLOSE int fd = openat(w->to_fd, path,
                                  O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0444);
    if (fd < 0)
        return -errno;
    int rc = io_write_full(fd, text, strlen(text));
    if (rc == 0)
        rc = io_write_full(fd, "\n", 1);
    return rc == 0 && fchmod(fd, 0444) < 0 ? -errno : rc;
}

struct level {
    struct walk *w;
    const char *path;
    unsigned depth;
    int rc;
};

static int copy_tree(struct walk *w, const char *path, unsigned depth);

static bool is_left_out(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(left_out); i++)
        if (strcmp(name, left_out[i]) == 0)
            return true;
    return strncmp(name, HUGE_PAGES, strlen(HUGE_PAGES)) == 0;
}

static bool copy_one(void *arg, const char *name)
{
    struct level *l = arg;
    char path[PATH_SIZE], host[PATH_SIZE + 1], text[TEXT_SIZE];
    struct stat st;

    if (is_left_out(name) ||
        (size_t)snprintf(path, sizeof(path), "%s/%s", l->path, name) >= sizeof(path))
        return true;
    snprintf(host, sizeof(host), "/%s", path);
    if (lstat(host, &st) < 0)
        return true;
    if (S_ISDIR(st.st_mode) && l->depth < DEPTH_MAX)
        l->rc = copy_tree(l->w, path, l->depth + 1);
    else if (S_ISREG(st.st_mode) && (st.st_mode & S_IROTH) &&
             io_read_text_at(AT_FDCWD, host, text, sizeof(text)) >= 0)
        l->rc = make_file(l->w, path, text);
    return l->rc == 0;
}

/* A tree that this host lacks is not there. */
static int copy_tree(struct walk *w, const char *path, unsigned depth)
{
    char host[PATH_SIZE + 1];
    struct level l = {.w = w, .path = path, .depth = depth};
    int rc;

    snprintf(host, sizeof(host), "/%s", path);
    if (access(host, F_OK) < 0)
        return 0;
    rc = make_dir(w, path);
    if (rc == 0)
        rc = io_each_name_at(AT_FDCWD, host, copy_one, &l);
    return rc < 0 ? rc : l.rc;
}

static int make_all(struct walk *w)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(dirs); i++)
        rc = make_dir(w, dirs[i]);
    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(texts); i++)
        rc = make_file(w, texts[i].path, texts[i].text);
    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(copied); i++)
        rc = copy_tree(w, copied[i], 0);
    if (rc == 0 && w->to_fd >= 0 &&
        symlinkat("../../devices/virtual/net/lo", w->to_fd, "sys/class/net/lo") < 0 &&
        errno != EEXIST)
        rc = -errno;
    return rc;
}

static int open_dir(int dir_fd, const char *name, int flags)
{
    return mnt_open_beneath(dir_fd, name, flags | O_DIRECTORY, 0);
}

/* Its name appears only when it is whole, and on the disk: a crash in between leaves nothing that
 * is used. */
static int make_new(int base_fd, const char *name)
{
    struct walk w = {.to_fd = -1};
    if (mkdirat(base_fd, NEW_NAME, 0755) < 0 && errno != EEXIST)
        return -errno;
    CLEANUP_CLOSE int fd = open_dir(base_fd, NEW_NAME, O_RDONLY);
    if (fd < 0 || fchmod(fd, 0755) < 0)
        return fd < 0 ? fd : -errno;
    w.to_fd = fd;
    int rc = make_all(&w);
    if (rc < 0)
        return rc;
    if (syncfs(fd) < 0)
        return -errno;
    return renameat(base_fd, NEW_NAME, base_fd, name) < 0 ? -errno : 0;
}

/* Each state of the host has a directory of its own name: sandboxes that run stand on the one
 * before. */
int sysfs_stub_open(int dir_fd)
{
    struct walk w = {.to_fd = -1, .sum = FNV_64_START};
    char name[32];

    int rc = make_all(&w);
    if (rc < 0)
        return rc;
    snprintf(name, sizeof(name), "%016" PRIx64, w.sum);
    if (mkdirat(dir_fd, DIR_NAME, 0700) < 0 && errno != EEXIST)
        return -errno;
    CLEANUP_CLOSE int base = open_dir(dir_fd, DIR_NAME, O_RDONLY);
    if (base < 0)
        return base;
    int fd = open_dir(base, name, O_PATH);
    if (fd != -ENOENT)
        return fd;
    rc = make_new(base, name);
    return rc < 0 ? rc : open_dir(base, name, O_PATH);
}
