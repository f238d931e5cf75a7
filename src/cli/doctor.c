/* The checks in the order of the table; each fills one result, and none depends on another's.
 * A check that needs privileges runs that part in a child, whose end it waits for. cmd_doctor
 * prints them, with those of names and TLS (doctor_names.c) of the bucket (doctor_bucket.c) and
 * of what the settings name (doctor_files.c),
 * and fails when something is missing that cay cannot start without; `cay up` runs the first ones.
 */

#include "cli/doctor.h"

#include "base/io.h"
#include "cli/commands.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#define KERNEL_MAJOR 5
#define KERNEL_MINOR 19
/* Of net.core.bpf_jit_limit: 1,000 sandboxes with 8 KiB, 2,048 filters of tenants with 33 KiB. */
#define FILTERS_BYTES (80ull << 20)

/* -- the kernel -------------------------------------------------------------------------------- */

static void check_kernel(struct doctor_result *r)
{
    struct utsname u;
    int major = 0, minor = 0;

    if (uname(&u) < 0 || sscanf(u.release, "%d.%d", &major, &minor) != 2)
        doctor_say(r, DOCTOR_MISSING, "its version cannot be read");
    else if (major > KERNEL_MAJOR || (major == KERNEL_MAJOR && minor >= KERNEL_MINOR))
        doctor_say(r, DOCTOR_OK, "Linux %.64s on %.32s", u.release, u.machine);
    else
        doctor_say(r, DOCTOR_MISSING,
                   "Linux %.64s; %d.%d is needed for overlays over idmapped mounts", u.release,
                   KERNEL_MAJOR, KERNEL_MINOR);
}

/* Whether a child may unshare these namespaces: 0 or an errno. */
static int try_unshare(int flags)
{
    int status;
    pid_t pid = fork();

    if (pid == 0)
        _exit(unshare(flags) == 0 ? 0 : errno & 0xff);
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return ECHILD;
    return WEXITSTATUS(status);
}

static void check_userns(struct doctor_result *r)
{
    int e = try_unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC |
                        CLONE_NEWUTS | CLONE_NEWCGROUP);

    if (e == 0)
        doctor_say(r, DOCTOR_OK, "user, network, pid, mount, ipc, uts and cgroup namespaces work");
    else if (e == EPERM)
        doctor_say(
            r, DOCTOR_MISSING,
            "namespaces cannot be made (%s): the kernel makes none in a chroot (enter the tree "
            "with "
            "pivot_root, as systemd-nspawn does), and containers may forbid them",
            strerror(e));
    else
        doctor_say(
            r, DOCTOR_MISSING,
            "namespaces cannot be made (%s): look at /proc/sys/user/max_*_namespaces and at what "
            "runs this machine",
            strerror(e));
}

static bool in_filesystems(const char *name)
{
    char text[8192], word[64];

    if (io_read_text_at(AT_FDCWD, "/proc/filesystems", text, sizeof(text)) < 0)
        return false;
    snprintf(word, sizeof(word), "\t%s\n", name);
    strncat(text, "\n", sizeof(text) - strlen(text) - 1);
    return strstr(text, word) != NULL;
}

static bool find_program(const char *name, char *path, size_t size)
{
    static const char *const dirs[] = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin",
                                       "/usr/bin",        "/sbin",          "/bin"};

    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
        snprintf(path, size, "%s/%s", dirs[i], name);
        if (access(path, X_OK) == 0)
            return true;
    }
    return false;
}

static bool is_executable(const char *name)
{
    char path[256];

    return find_program(name, path, sizeof(path));
}

/* A file system that is a module is loaded by its first mount. */
static bool has_filesystem(const char *name)
{
    char path[192];
    struct utsname u;

    if (in_filesystems(name) || uname(&u) < 0)
        return true;
    snprintf(path, sizeof(path), "/lib/modules/%.64s/kernel/fs/%s", u.release,
             strcmp(name, "overlay") == 0 ? "overlayfs" : name);
    return access(path, F_OK) == 0;
}

static void check_overlay(struct doctor_result *r)
{
    if (has_filesystem("overlay"))
        doctor_say(r, DOCTOR_OK, "overlayfs is there");
    else
        doctor_say(r, DOCTOR_MISSING, "this kernel has no overlayfs (CONFIG_OVERLAY_FS)");
}

static void check_idmap(struct doctor_result *r)
{
    if (syscall(SYS_mount_setattr, -1, "", 0, NULL, 0) < 0 && errno == ENOSYS)
        doctor_say(r, DOCTOR_MISSING, "this kernel has no mount_setattr(2)");
    else
        doctor_say(r, DOCTOR_OK, "mount_setattr(2) is there");
}

static void check_btrfs(struct doctor_result *r)
{
    if (!has_filesystem("btrfs"))
        doctor_say(r, DOCTOR_LIMITED,
                   "this kernel has no btrfs: files of sandboxes are kept in memory");
    else if (!is_executable("mkfs.btrfs"))
        doctor_say(r, DOCTOR_LIMITED,
                   "mkfs.btrfs is missing: files of sandboxes are kept in memory");
    else if (access("/dev/loop-control", F_OK) < 0)
        doctor_say(r, DOCTOR_LIMITED,
                   "there is no /dev/loop-control: only a state directory that is on "
                   "btrfs already can be used");
    else
        doctor_say(r, DOCTOR_OK, "btrfs and loop devices are there");
    if (!is_executable("mkfs.btrfs"))
        snprintf(r->package, sizeof(r->package), "btrfs-progs");
}

static bool v2_has(const char *controllers, const char *name)
{
    char words[512], want[32];

    snprintf(words, sizeof(words), " %s ", controllers);
    snprintf(want, sizeof(want), " %s ", name);
    return strstr(words, want) != NULL;
}

static bool v1_has(const char *name)
{
    char path[128];

    snprintf(path, sizeof(path), "/sys/fs/cgroup/%s/tasks", name);
    return access(path, F_OK) == 0;
}

static void check_cgroup(struct doctor_result *r)
{
    static const char *const names[] = {"memory", "pids", "cpu"};
    char controllers[256] = "", missing[64] = "";
    bool v1 = false, v2 = false;

    if (io_read_text_at(AT_FDCWD, "/sys/fs/cgroup/cgroup.controllers", controllers,
                        sizeof(controllers)) < 0)
        controllers[0] = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (v2_has(controllers, names[i]))
            v2 = true;
        else if (v1_has(names[i]))
            v1 = true;
        else
            snprintf(missing + strlen(missing), sizeof(missing) - strlen(missing), " %s", names[i]);
    }
    if (missing[0])
        doctor_say(r, DOCTOR_MISSING, "these cgroup controllers are not there:%s", missing);
    else
        doctor_say(r, DOCTOR_OK, "memory, pids and cpu by cgroup %s",
                   v1 && v2 ? "v1 and v2"
                   : v1     ? "v1"
                            : "v2");
}

static void check_seccomp(struct doctor_result *r)
{
    if (access("/proc/sys/kernel/seccomp/actions_avail", F_OK) == 0)
        doctor_say(r, DOCTOR_OK, "seccomp filters are there");
    else
        doctor_say(r, DOCTOR_MISSING, "this kernel has no seccomp filters (CONFIG_SECCOMP_FILTER)");
}

/* Linux 6.9 to the version that gave it a queue of its own: docs/kernel-pools.md, "Filters". The
 * queue shows as a kernel thread (its rescuer). */
static bool frees_wait_for_each_other(void)
{
    struct utsname u;
    unsigned major = 0, minor = 0;
    char path[320], text[64];
    const struct dirent *entry;
    bool has_queue = false;

    if (uname(&u) < 0 || sscanf(u.release, "%u.%u", &major, &minor) != 2 || major < 6 ||
        (major == 6 && minor < 9))
        return false;
    DIR *dir = opendir("/proc");
    while (!has_queue && dir && (entry = readdir(dir))) {
        snprintf(path, sizeof(path), "/proc/%s/comm", entry->d_name);
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' &&
            io_read_text_at(AT_FDCWD, path, text, sizeof(text)) >= 0)
            has_queue = strncmp(text, "kworker/R-vmap_drain", 20) == 0;
    }
    if (dir)
        closedir(dir);
    return !has_queue;
}

static void check_filters(struct doctor_result *r)
{
    char text[32];
    uint64_t limit = io_read_text_at(AT_FDCWD, "/proc/sys/net/core/bpf_jit_limit", text,
                                     sizeof(text)) < 0
                         ? 0
                         : strtoull(text, NULL, 10);

    if (limit && limit < FILTERS_BYTES)
        doctor_say(
            r, DOCTOR_LIMITED,
            "net.core.bpf_jit_limit is %llu MiB: 1,000 sandboxes and filters of tenants' own "
            "may take %llu",
            (unsigned long long)limit >> 20, FILTERS_BYTES >> 20);
    else if (frees_wait_for_each_other())
        doctor_say(
            r, DOCTOR_LIMITED,
            "this kernel can stop for good when thousands of filters are freed at once; cay paces "
            "its own: let no other program make many (docs/kernel-pools.md)");
    else
        doctor_say(r, DOCTOR_OK,
                   "there is room for filters, and their frees do not wait for each other");
}

static void check_nftables(struct doctor_result *r)
{
    CLEANUP_CLOSE int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);

    if (fd >= 0)
        doctor_say(r, DOCTOR_OK, "netfilter's netlink socket is there");
    else
        doctor_say(r, DOCTOR_MISSING, "no netfilter netlink socket: %s (CONFIG_NF_TABLES)",
                   strerror(errno));
}

static void check_kvm(struct doctor_result *r)
{
    CLEANUP_CLOSE int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);

    if (fd >= 0)
        doctor_say(r, DOCTOR_LIMITED,
                   "/dev/kvm opens; whether a guest runs under it is known only after "
                   "one has booted");
    else
        doctor_say(r, DOCTOR_MISSING, "/dev/kvm: %s; sandboxes of level process do without",
                   strerror(errno));
}

/* -- programs ---------------------------------------------------------------------------------- */

struct program {
    const char *name, *package, *purpose;
};

static const struct program programs[] = {
    {"mmdebstrap", "mmdebstrap", "`cay template build base` needs it"},
    {"sudo", "sudo", "root inside sandboxes of the template host"},
    {"git", "git", "in sandboxes of the template host"},
    {"curl", "curl", "in sandboxes of the template host"},
    {"python3", "python3", "in sandboxes of the template host"},
    {"tput", "ncurses-bin", "terminals in sandboxes of the template host"},
    {"runsc", "", "gVisor: not used by this version"},
    {"qemu-system-x86_64", "", "virtual machines: not used by this version"},
};

static void check_program(const struct program *p, struct doctor_result *r)
{
    if (is_executable(p->name)) {
        doctor_say(r, DOCTOR_OK, "%s", p->purpose);
        return;
    }
    doctor_say(r, DOCTOR_MISSING, "%s", p->purpose);
    snprintf(r->package, sizeof(r->package), "%s", p->package);
}

static void check_criu(struct doctor_result *r)
{
    char path[256];

    doctor_criu(find_program("criu", path, sizeof(path)) ? path : NULL, r);
}

static const struct {
    const char *name;
    bool needed;
    void (*check)(struct doctor_result *r);
} checks[] = {
    {"root", true, doctor_root},
    {"kernel", true, check_kernel},
    {"namespaces", true, check_userns},
    {"overlayfs", true, check_overlay},
    {"idmapped mounts", true, check_idmap},
    {"seccomp", true, check_seccomp},
    {"filters", false, check_filters},
    {"nftables", true, check_nftables},
    {"cgroups", true, check_cgroup},
    {"state disk", false, check_btrfs},
    {"memory", false, doctor_memory},
    {"open files", false, doctor_open_files},
    {"processes of a user", false, doctor_processes},
    {"raising limits", false, doctor_sys_resource},
    {"pools of the host", false, doctor_pools},
    {"kvm", false, check_kvm},
    {"criu", false, check_criu},
};

/* And the space for the server's files. */
_Static_assert(ARRAY_SIZE(checks) + 1 + ARRAY_SIZE(programs) + DOCTOR_NAMES + DOCTOR_BUCKET +
                       DOCTOR_FILES <=
                   DOCTOR_MAX,
               "all results have room");

size_t doctor_run(const char *state_dir, struct doctor_result *out)
{
    size_t n = 0;

    memset(out, 0, DOCTOR_MAX * sizeof(*out));
    for (size_t i = 0; i < ARRAY_SIZE(checks); i++) {
        out[n].name = checks[i].name;
        out[n].needed = checks[i].needed;
        checks[i].check(&out[n++]);
    }
    out[n].name = "free space";
    doctor_space(state_dir, &out[n++]);
    for (size_t i = 0; i < ARRAY_SIZE(programs); i++) {
        out[n].name = programs[i].name;
        check_program(&programs[i], &out[n++]);
    }
    return n;
}

static const char *const level_names[] = {"ok", "limited", "missing", "skipped"};

static void print_results(const struct doctor_result *results, size_t n)
{
    static const char *const heads[] = {"CHECK", "IS", "WHAT"};
    struct table *t = table_new(heads, ARRAY_SIZE(heads));
    char packages[1024] = "";

    for (size_t i = 0; i < n; i++) {
        table_cell(t, "%s", results[i].name);
        table_cell(t, "%s", level_names[results[i].level]);
        table_cell(t, "%s", results[i].text);
        if (results[i].package[0])
            snprintf(packages + strlen(packages), sizeof(packages) - strlen(packages), " %s",
                     results[i].package);
    }
    table_print(t, stdout);
    table_free(t);
    if (packages[0])
        printf("\nDebian packages that bring what is missing:%s\n", packages);
}

static void print_json(const struct doctor_result *results, size_t n)
{
    json_t *all = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(all, json_pack("{s:s, s:s, s:b, s:s, s:s}", "check", results[i].name,
                                             "level", level_names[results[i].level], "needed",
                                             results[i].needed, "text", results[i].text, "package",
                                             results[i].package));
    cli_print_json(all);
}

int cmd_doctor(struct cli *c)
{
    struct doctor_result results[DOCTOR_MAX];
    size_t n = doctor_run(c->settings.state_dir, results), bad = 0;

    n += doctor_names(c, results + n);
    n += doctor_bucket(&c->settings, results + n);
    n += doctor_files(&c->settings, results + n);
    for (size_t i = 0; i < n; i++)
        bad += results[i].needed && results[i].level == DOCTOR_MISSING;
    if (c->json)
        print_json(results, n);
    else
        print_results(results, n);
    if (!c->json && bad)
        printf("\ncay cannot run here: %zu of what it needs is missing.\n", bad);
    else if (!c->json)
        puts("\ncay can run here.");
    return bad ? CLI_FAILED : CLI_OK;
}
