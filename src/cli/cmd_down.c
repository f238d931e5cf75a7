/* down: stops the server and looks whether anything is left. Order: keep is told to stop and
 * waited for; then processes, mounts, control groups, loop devices and run files are looked
 * for; with --purge the state goes last, and only where nothing else is left. */
#include "base/clock.h"
#include "base/instance.h"
#include "base/io.h"
#include "cli/api.h"
#include "cli/commands.h"
#include "cli/server.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <mntent.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#define STOP_TIMEOUT_MS 90000
#define SETTLE_MS       3000
#define ASK_MS          2000 /* a server that hangs is stopped all the same */
#define MAX_LEFT        64
#define DISK_IMAGE      "disk.img"

/* -- what is left ------------------------------------------------------------------------------ */

struct left {
    const struct settings *s;
    json_t *list; /* of sentences */
    char cgroup[INSTANCE_CGROUP_SIZE], jobs_cgroup[INSTANCE_CGROUP_SIZE + 8];
    struct stat image; /* of the state disk; st_ino 0: there is none */
};

static void note_left(struct left *l, const char *fmt, ...) PRINTF(2, 3);

static void note_left(struct left *l, const char *fmt, ...)
{
    char text[1200];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (json_array_size(l->list) < MAX_LEFT)
        json_array_append_new(l->list, json_string(text));
}

/* A server in a container has its directories by the same names, and processes that are seen from
 * here too. Daemons stay in the pid namespace that they were started in. */
static bool is_of_a_container(const char *pid)
{
    struct stat own, theirs;
    char path[64];

    snprintf(path, sizeof(path), "/proc/%s/ns/pid", pid);
    return stat("/proc/self/ns/pid", &own) == 0 && stat(path, &theirs) == 0 &&
           own.st_ino != theirs.st_ino;
}

/* Whether one of them is dir or begins with it: /run/cay is not named by /run/cay-second. */
static bool is_named(const char *args, size_t n, const char *dir)
{
    size_t len = strlen(dir);
    const char *at = args, *end = args + n;

    while (len > 0 && (at = memmem(at, (size_t)(end - at), dir, len))) {
        bool begins = at == args || at[-1] == '\0' || at[-1] == '=';

        if (begins && (at[len] == '\0' || at[len] == '/'))
            return true;
        at += len;
    }
    return false;
}

/* A daemon belongs to this server when its arguments name its directories; a cay-init has none and
 * belongs to whichever server ran: another server of this machine, if there is one, has its own. */
static bool is_ours(const struct left *l, const char *pid)
{
    char path[64], args[8192];
    ssize_t n;
    CLEANUP_CLOSE int fd = -1;

    if (is_of_a_container(pid))
        return false;
    snprintf(path, sizeof(path), "/proc/%s/cmdline", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, args, sizeof(args) - 1);
    if (n <= 0)
        return false;
    args[n] = '\0';
    return is_named(args, (size_t)n, l->s->state_run) || is_named(args, (size_t)n, l->s->state_dir);
}

static bool check_process(void *arg, const char *pid)
{
    static const char *const names[] = {"cay-keep", "cay-privd", "cayd", "cay-egress", "cay-job"};
    char path[300], comm[32];

    snprintf(path, sizeof(path), "/proc/%s/comm", pid);
    if (pid[0] < '0' || pid[0] > '9' || io_read_text_at(AT_FDCWD, path, comm, sizeof(comm)) < 0)
        return true;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (strcmp(comm, names[i]) == 0 && is_ours(arg, pid))
            note_left(arg, "process %s (%s)", pid, comm);
    return true;
}

static bool is_below(const char *path, const char *dir)
{
    size_t len = strlen(dir);

    return strncmp(path, dir, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

static void check_mounts(struct left *l)
{
    FILE *f = fopen("/proc/self/mountinfo", "re");
    char line[4096], point[2048];

    while (f && fgets(line, sizeof(line), f)) {
        if (sscanf(line, "%*s %*s %*s %*s %2047s", point) == 1 &&
            (is_below(point, l->s->state_dir) || is_below(point, l->s->state_run)))
            note_left(l, "mount %s", point);
    }
    if (f)
        fclose(f);
}

/* By the file itself: privd sees it from a mount namespace of its own, so that the path that the
 * kernel shows (/sys/block/loopN/loop/backing_file) is another one. */
static bool check_loop_device(void *arg, const char *name)
{
    struct left *l = arg;
    struct loop_info64 info;
    char path[64];
    CLEANUP_CLOSE int fd = -1;

    if (!l->image.st_ino || strncmp(name, "loop", 4) != 0)
        return true;
    snprintf(path, sizeof(path), "/dev/%.40s", name);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0 && ioctl(fd, LOOP_GET_STATUS64, &info) == 0 && info.lo_device == l->image.st_dev &&
        info.lo_inode == l->image.st_ino)
        note_left(l, "loop device %s of %s/privd/" DISK_IMAGE, path, l->s->state_dir);
    return true;
}

/* privd makes its groups right below the mount of each hierarchy (sys/cgroup_find.c). A group of
 * the same name further below belongs to a server in a container. */
static void check_cgroups(struct left *l)
{
    const char *const names[] = {l->cgroup, l->jobs_cgroup};
    FILE *f = setmntent("/proc/self/mounts", "re");
    char text[4096], path[1200];
    struct mntent m;

    while (f && getmntent_r(f, &m, text, sizeof(text))) {
        if (strcmp(m.mnt_type, "cgroup") != 0 && strcmp(m.mnt_type, "cgroup2") != 0)
            continue;
        for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
            snprintf(path, sizeof(path), "%s/%s", m.mnt_dir, names[i]);
            if (access(path, F_OK) == 0)
                note_left(l, "cgroup %s", path);
        }
    }
    if (f)
        endmntent(f);
}

static bool check_run_file(void *arg, const char *name)
{
    struct left *l = arg;

    note_left(l, "file %s/%s", l->s->state_run, name);
    return true;
}

static json_t *find_left(const struct settings *s)
{
    struct left l = {.s = s, .list = json_array()};
    char privd_dir[1100], image[1200];

    snprintf(privd_dir, sizeof(privd_dir), "%s/privd", s->state_dir);
    instance_cgroup(privd_dir, l.cgroup);
    snprintf(l.jobs_cgroup, sizeof(l.jobs_cgroup), "%s-jobs", l.cgroup);
    snprintf(image, sizeof(image), "%s/" DISK_IMAGE, privd_dir);
    if (stat(image, &l.image) < 0)
        l.image.st_ino = 0;
    /* A directory that cannot be listed is not there: no run directory, no loop devices in this
     * kernel. */
    (void)io_each_name_at(AT_FDCWD, "/proc", check_process, &l);
    check_mounts(&l);
    (void)io_each_name_at(AT_FDCWD, "/sys/block", check_loop_device, &l);
    check_cgroups(&l);
    (void)io_each_name_at(AT_FDCWD, s->state_run, check_run_file, &l);
    return l.list;
}

/* -- what it ends ------------------------------------------------------------------------------ */

static long long paused_number(const json_t *status, const char *which)
{
    return (long long)json_integer_value(json_object_get(json_object_get(status, "paused"), which));
}

/* Before anything is stopped. A server that does not answer ends without these words. */
static void note_paused(struct cli *c, bool purges)
{
    struct err e = {.code = ERR_OK};
    json_t *status = NULL;
    long long frozen, kept;
    struct api a;

    if (api_open_local(&a, c, &e) != ERR_OK)
        return;
    a.answer_ms = ASK_MS;
    (void)api_call(&a, "GET", "/cay/v1/status", NULL, &status, &e);
    api_close(&a);
    frozen = paused_number(status, "frozen");
    kept = paused_number(status, "kept");
    json_decref(status);
    if (frozen > 0)
        cli_note(c,
                 "%lld frozen sandbox%s and its processes end with the server (`cay pause --files` "
                 "or --memory keeps one over it).",
                 frozen, frozen == 1 ? "" : "es");
    if (kept > 0 && !purges)
        cli_note(c,
                 "%lld sandbox%s paused with files or memory: kept, and there again with `cay up`.",
                 kept, kept == 1 ? "" : "es");
}

/* -- stopping ---------------------------------------------------------------------------------- */

static enum err_code stop_keep(pid_t pid, struct err *e)
{
    CLEANUP_CLOSE int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd p = {.fd = fd, .events = POLLIN};

    if (fd < 0)
        return errno == ESRCH ? ERR_OK
                              : err_set_sys(e, ERR_INTERNAL, errno, "cannot watch cay-keep");
    if (syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 0) < 0 && errno != ESRCH)
        return err_set_sys(e, err_code_from_errno(errno), errno, "cannot stop cay-keep (pid %d)",
                           (int)pid);
    if (poll(&p, 1, STOP_TIMEOUT_MS) > 0)
        return ERR_OK;
    return err_set(e, ERR_TIMEOUT, "cay-keep (pid %d) did not stop within %d s", (int)pid,
                   STOP_TIMEOUT_MS / 1000);
}

/* Files that keep may leave in the run directory, and what cay itself put there. */
static void clean_run_dir(const struct settings *s)
{
    static const char *const names[] = {"connect", "keep.pid", "privd.sock"};
    char path[1100];

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        snprintf(path, sizeof(path), "%s/%s", s->state_run, names[i]);
        unlink(path);
    }
    rmdir(s->state_run);
}

static bool only_files_in(const json_t *left)
{
    json_t *text;
    size_t i;

    json_array_foreach (left, i, text) {
        if (strncmp(json_string_value(text), "file ", 5) != 0)
            return false;
    }
    return true;
}

/* When cay-keep was killed its sandboxes live on. Starting is recovering: start it again, and what
 * it finds is ended in order. */
static enum err_code recover_and_stop(struct cli *c, struct err *e)
{
    pid_t pid;

    if (server_start(c, e) != ERR_OK)
        return e->code;
    pid = server_pid(&c->settings);
    return pid > 0 ? stop_keep(pid, e) : ERR_OK;
}

static json_t *find_left_until_settled(const struct settings *s)
{
    uint64_t until = clock_mono_ms() + SETTLE_MS;
    json_t *left = find_left(s);

    /* The kernel takes mounts, loops and cgroups of dead processes apart a moment later. */
    while (json_array_size(left) > 0 && clock_mono_ms() < until) {
        json_decref(left);
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
        left = find_left(s);
    }
    return left;
}

static enum err_code stop(struct cli *c, bool *was_running, struct err *e)
{
    pid_t pid = server_pid(&c->settings);
    enum err_code code = ERR_OK;
    json_t *left;

    *was_running = pid > 0;
    if (pid > 0)
        return stop_keep(pid, e);
    left = find_left(&c->settings);
    if (!only_files_in(left)) {
        cli_note(c,
                 "cay-keep is gone but left things behind; starting it once to end them in order.");
        code = recover_and_stop(c, e);
        *was_running = true;
    }
    json_decref(left);
    return code;
}

static enum err_code purge(const struct settings *s, struct err *e)
{
    const char *const argv[] = {"rm", "-rf", "--one-file-system", "--", s->state_dir, NULL};

    if (server_run_program(argv) == 0)
        return ERR_OK;
    return err_set(e, ERR_INTERNAL, "%s could not be removed", s->state_dir);
}

static int report(struct cli *c, bool was_running, const json_t *left, bool purged)
{
    json_t *text;
    size_t i;

    if (c->json) {
        cli_print_json(
            json_pack("{s:b, s:b, s:O}", "stopped", was_running, "purged", purged, "left", left));
        return json_array_size(left) > 0 ? CLI_FAILED : CLI_OK;
    }
    json_array_foreach (left, i, text)
        fprintf(stderr, "cay: left behind: %s\n", json_string_value(text));
    if (json_array_size(left) > 0 && cli_flag(c, "purge"))
        fprintf(stderr, "cay: %s is not removed as long as that is there\n", c->settings.state_dir);
    if (json_array_size(left) > 0)
        return CLI_FAILED;
    printf("%s: no process, mount, loop device, cgroup or file in %s is left.\n",
           was_running ? "cay is down" : "cay was not running", c->settings.state_run);
    if (purged)
        printf("%s is removed.\n", c->settings.state_dir);
    else if (access(c->settings.state_dir, F_OK) == 0)
        printf("Database, keys and templates stay in %s (--purge removes them).\n",
               c->settings.state_dir);
    return CLI_OK;
}

int cmd_down(struct cli *c)
{
    struct err e = {.code = ERR_OK};
    bool was_running = false, purged = false;
    json_t *left;
    int status;

    if (geteuid() != 0) {
        err_set(&e, ERR_DENIED, "stopping the server needs root");
        return cli_fail(c, &e);
    }
    if (server_pid(&c->settings) > 0)
        note_paused(c, cli_flag(c, "purge"));
    if (stop(c, &was_running, &e) != ERR_OK)
        return cli_fail(c, &e);
    clean_run_dir(&c->settings);
    left = find_left_until_settled(&c->settings);
    if (cli_flag(c, "purge") && json_array_size(left) == 0) {
        if (purge(&c->settings, &e) != ERR_OK) {
            json_decref(left);
            return cli_fail(c, &e);
        }
        purged = true;
    }
    status = report(c, was_running, left, purged);
    json_decref(left);
    return status;
}
