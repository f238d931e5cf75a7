/* Every path of a client is opened here: fs_open refuses magic links, and cay-init's own files
 * in /proc by the descriptor that it got, and each other function builds on it. fs_as_user and
 * fs_as_self bracket what is done for a user. Called from the loop and from the file worker;
 * ids and capabilities are those of the calling thread alone. */

#include "agent/fs/fs_open.h"

#include "agent/common/path.h"
#include "agent/common/user.h"
#include "base/ids.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#define MAX_LINKS     255 /* as filepath.EvalSymlinks */
#define MAX_RACES     16  /* times that another process may change a path under us */
#define DIR_MODE      0755
#define FILE_MODE     0666
#define PROC_FD_SIZE  32
#define PROC_TID_SIZE 64

static int get_caps(struct __user_cap_data_struct data[static 2])
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};

    return (int)syscall(SYS_capget, &header, data);
}

/* Of this thread alone. */
static int set_caps(const struct __user_cap_data_struct data[static 2])
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};

    return (int)syscall(SYS_capset, &header, data);
}

/* The kernel takes the capabilities over files away when the file system uid goes from 0 to another
 * and gives them back the other way (capabilities(7)); cay-init is another uid, so it would end
 * without them after acting as root. Whatever they were is put back after each change. */
static void change_ids(uid_t uid, gid_t gid)
{
    struct __user_cap_data_struct caps[2];
    bool known = get_caps(caps) == 0;

    setfsgid(gid);
    setfsuid(uid);
    if (known)
        set_caps(caps);
}

/* The sandbox's filter refuses cay-init's own id to all, so it is not named: setreuid(2) that
 * changes nothing sets the file system id to the effective one. Of this thread alone. */
static void own_ids(void)
{
    struct __user_cap_data_struct caps[2];
    bool known = get_caps(caps) == 0;

    (void)!syscall(SYS_setregid, -1, -1);
    (void)!syscall(SYS_setreuid, -1, -1);
    if (known)
        set_caps(caps);
}

/* The capabilities that permit a thread more on files than its file system ids do. */
#define FILE_CAPS                                                                                 \
    (CAP_TO_MASK(CAP_DAC_OVERRIDE) | CAP_TO_MASK(CAP_DAC_READ_SEARCH) | CAP_TO_MASK(CAP_FOWNER) | \
     CAP_TO_MASK(CAP_FSETID) | CAP_TO_MASK(CAP_CHOWN))

/* For this thread alone: the system calls act on one, glibc's functions on all. Root has root's
 * rights. cay-init itself is in no group. */
static void limit(const struct user *u, struct fs_cred *saved)
{
    struct __user_cap_data_struct caps[2];

    _Static_assert(sizeof(saved->caps) == sizeof(caps), "fs_cred.caps holds what capset(2) takes");
    if (!u->own_rights || u->uid == 0 || get_caps(caps) < 0)
        return;
    memcpy(saved->caps, caps, sizeof(caps));
    (void)!syscall(SYS_setgroups, u->group_count, u->groups);
    caps[0].effective &= ~(uint32_t)FILE_CAPS;
    saved->limited = set_caps(caps) == 0;
}

static void unlimit(const struct fs_cred *saved)
{
    struct __user_cap_data_struct caps[2];

    memcpy(caps, saved->caps, sizeof(caps));
    set_caps(caps);
    (void)!syscall(SYS_setgroups, 0, NULL);
}

struct fs_cred fs_as_user(const struct user *u)
{
    /* An id that is never valid changes nothing and tells the one in force: setfsuid(2). */
    struct fs_cred saved = {.fsuid = (uid_t)setfsuid((uid_t)-1),
                            .fsgid = (gid_t)setfsgid((gid_t)-1)};

    if (saved.fsuid != u->uid || saved.fsgid != u->gid) {
        saved.changed = true;
        change_ids(u->uid, u->gid);
    }
    limit(u, &saved);
    return saved;
}

void fs_as_self(struct fs_cred *saved)
{
    if (saved->limited)
        unlimit(saved);
    if (saved->changed && saved->fsuid == geteuid() && saved->fsgid == getegid())
        own_ids();
    else if (saved->changed)
        change_ids(saved->fsuid, saved->fsgid);
    saved->changed = saved->limited = false;
}

/* Is fd a file of /proc/N where N is this process or one of its threads? Asked of the opened file,
 * not of the path, so no link can lead around it. A process inside cannot mount, so /proc is the
 * only instance. */
static bool is_own_proc_file(int fd)
{
    char link[PROC_FD_SIZE], path[AGENT_PATH_SIZE], task[PROC_TID_SIZE];
    struct statfs fs;
    ssize_t n;
    size_t digits;

    if (fstatfs(fd, &fs) < 0)
        return true;
    if (fs.f_type != PROC_SUPER_MAGIC)
        return false;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof(path) - 1);
    if (n < 0)
        return true;
    path[n] = '\0';
    if (strncmp(path, "/proc/", 6) != 0)
        return true;
    digits = strspn(path + 6, "0123456789");
    if (digits == 0 || digits > 10)
        return false;
    snprintf(task, sizeof(task), "/proc/self/task/%.*s", (int)digits, path + 6);
    return access(task, F_OK) == 0 || errno != ENOENT;
}

int fs_open(const char *path, int flags, mode_t mode)
{
    struct open_how how = {
        .flags = (uint64_t)(unsigned)flags | O_CLOEXEC,
        .mode = mode,
        .resolve = RESOLVE_NO_MAGICLINKS,
    };
    int fd;

    /* openat2 refuses flags beside O_PATH that have no meaning there. */
    if (!(flags & O_PATH))
        how.flags |= O_NONBLOCK | O_NOCTTY;
    fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));
    if (fd < 0)
        return -errno;
    if (!(flags & O_PATH) && is_own_proc_file(fd)) {
        close(fd);
        return -EACCES;
    }
    return fd;
}

static int check_regular(const struct stat *st)
{
    if (S_ISDIR(st->st_mode))
        return -EISDIR;
    return S_ISREG(st->st_mode) ? 0 : -EINVAL;
}

/* To open a device can already do something (rewind a tape), so the type is looked at before; and
 * after, since the path may have changed its meaning meanwhile. */
static int check_path_regular(const char *path)
{
    CLEANUP_CLOSE int fd = fs_open(path, O_PATH, 0);
    struct stat st;

    if (fd < 0)
        return fd;
    return fstat(fd, &st) < 0 ? -errno : check_regular(&st);
}

int fs_open_file(const char *path, struct stat *st)
{
    CLEANUP_CLOSE int fd = -1;
    int r = check_path_regular(path);

    if (r < 0)
        return r;
    fd = fs_open(path, O_RDONLY, 0);
    if (fd < 0)
        return fd;
    if (fstat(fd, st) < 0)
        return -errno;
    r = check_regular(st);
    return r < 0 ? r : TAKE_FD(fd);
}

/* O_CREAT on a file that exists in a sticky directory fails for every user but its owner
 * (protected_regular), so it is used only where nothing is. A dangling link's target is made, as
 * open(2) does with O_CREAT and without O_EXCL. */
static int open_or_create(const char *path)
{
    for (int i = 0; i < MAX_RACES; i++) {
        int fd, r = check_path_regular(path);

        if (r == 0)
            r = fd = fs_open(path, O_WRONLY, 0);
        else if (r == -ENOENT)
            r = fd = fs_open(path, O_WRONLY | O_CREAT, FILE_MODE);
        if (r != -ENOENT)
            return r;
    }
    return -EBUSY;
}

int fs_open_for_write(const char *path, const struct user *u, struct stat *st)
{
    CLEANUP_CLOSE int fd = open_or_create(path);
    int r;

    if (fd < 0)
        return fd;
    if (fstat(fd, st) < 0)
        return -errno;
    r = check_regular(st);
    if (r < 0)
        return r;
    /* Also when it already is the user's: chown clears set-uid and set-gid bits, and what they
     * stood for is about to be overwritten. */
    if (fchown(fd, u->uid, u->gid) < 0 && (st->st_uid != u->uid || st->st_gid != u->gid))
        return -errno;
    return TAKE_FD(fd);
}

int fs_open_parent(const char *path)
{
    char dir[AGENT_PATH_SIZE];

    path_dir(path, dir);
    return fs_open(dir, O_PATH | O_DIRECTORY, 0);
}

/* A new file, as fs_open_for_write makes one, with that mode. */
static int make_new(int parent_fd, const char *name, const struct user *u, mode_t mode,
                    struct stat *st)
{
    CLEANUP_CLOSE int fd = openat(parent_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                                  FILE_MODE);

    if (fd < 0)
        return -errno;
    if (fstat(fd, st) < 0 ||
        ((st->st_uid != u->uid || st->st_gid != u->gid) && fchown(fd, u->uid, u->gid) < 0) ||
        fchmod(fd, mode) < 0) {
        int r = -errno;

        (void)unlinkat(parent_fd, name, 0);
        return r;
    }
    return TAKE_FD(fd);
}

/* The name goes from the one to the other in one step: where no new one can be made (the disk is
 * full), it stays the program's. */
int fs_open_for_replacement(const char *path, const struct user *u, struct stat *st)
{
    char real[AGENT_PATH_SIZE], name[32];
    CLEANUP_CLOSE int parent_fd = -1, fd = -1;
    uint64_t number;
    struct stat old;
    int r = fs_eval_links(path, real);

    if (r < 0)
        return r;
    parent_fd = fs_open_parent(real);
    if (parent_fd < 0)
        return parent_fd;
    if (fstatat(parent_fd, path_base(real), &old, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    ids_random_bytes(&number, sizeof(number));
    (void)snprintf(name, sizeof(name), ".cay-%016llx", (unsigned long long)number);
    fd = make_new(parent_fd, name, u, old.st_mode & 0777, st);
    if (fd < 0)
        return fd;
    if (renameat(parent_fd, name, parent_fd, path_base(real)) < 0) {
        r = -errno;
        (void)unlinkat(parent_fd, name, 0);
        return r;
    }
    return TAKE_FD(fd);
}

/* Makes a directory below parent_fd and opens it. Another process may make it at the same moment,
 * or put a link there, which is followed as in any path: to no magic link (/proc/self/root). */
static int make_and_enter(int parent_fd, const char *name, const struct user *u)
{
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                           .resolve = RESOLVE_NO_MAGICLINKS};
    CLEANUP_CLOSE int fd = -1;
    struct stat st;
    bool made = mkdirat(parent_fd, name, DIR_MODE) == 0;

    if (!made && errno != EEXIST)
        return -errno;
    if (made)
        how.flags |= O_NOFOLLOW;
    fd = (int)syscall(SYS_openat2, parent_fd, name, &how, sizeof(how));
    if (fd < 0)
        return -errno;
    /* A set-gid directory above passes its own group on. */
    if (made && (fstat(fd, &st) < 0 || st.st_uid != u->uid || st.st_gid != u->gid))
        if (fchownat(fd, "", u->uid, u->gid, AT_EMPTY_PATH) < 0)
            return -errno;
    return TAKE_FD(fd);
}

/* Opens the longest part of path that exists; *end is where it ends in path. */
static int open_existing(const char *path, size_t *end)
{
    char part[AGENT_PATH_SIZE];
    size_t len = strlen(path);

    memcpy(part, path, len + 1);
    for (;;) {
        int fd = fs_open(len ? part : "/", O_PATH | O_DIRECTORY, 0);

        *end = len;
        if (fd != -ENOENT || len == 0)
            return fd;
        while (len > 0 && part[--len] != '/')
            ;
        part[len] = '\0';
    }
}

int fs_make_dirs(const char *path, const struct user *u)
{
    char name[NAME_MAX + 1];
    size_t at;
    CLEANUP_CLOSE int fd = open_existing(path, &at);

    if (fd < 0)
        return fd;
    while (path[at]) {
        size_t n;
        int next;

        at += path[at] == '/';
        n = strcspn(path + at, "/");
        if (n > NAME_MAX)
            return -ENAMETOOLONG;
        if (n == 0)
            continue;
        memcpy(name, path + at, n);
        name[n] = '\0';
        next = make_and_enter(fd, name, u);
        if (next < 0)
            return next;
        util_close(&fd);
        fd = next;
        at += n;
    }
    return 0;
}

int fs_make_parents(const char *path, const struct user *u)
{
    char dir[AGENT_PATH_SIZE];

    path_dir(path, dir);
    return fs_make_dirs(dir, u);
}

/* Takes the first element off *rest (no slashes left before it) and appends it to out. */
static int push_element(char *out, size_t *len, const char **rest)
{
    size_t n = strcspn(*rest, "/");

    if (n > NAME_MAX || *len + 1 + n >= AGENT_PATH_SIZE)
        return -ENAMETOOLONG;
    out[(*len)++] = '/';
    memcpy(out + *len, *rest, n);
    *len += n;
    out[*len] = '\0';
    *rest += n;
    return 0;
}

static void pop_element(char *out, size_t *len)
{
    while (*len > 0 && out[--*len] != '/')
        ;
    out[*len] = '\0';
}

/* todo := the target of the link at out, then what was left of todo (empty or from a slash on); out
 * loses the link's name. */
static int splice_link(char *out, size_t *len, char *todo, const char *rest)
{
    char target[AGENT_PATH_SIZE], joined[2 * AGENT_PATH_SIZE];
    ssize_t n = readlink(out, target, sizeof(target) - 1);

    if (n < 0)
        return -errno;
    target[n] = '\0';
    /* rest is empty or begins with a slash; one more would ask for a directory at the end. */
    if (snprintf(joined, sizeof(joined), "%s%s", target, rest) >= AGENT_PATH_SIZE)
        return -ENAMETOOLONG;
    memcpy(todo, joined, strlen(joined) + 1);
    if (target[0] == '/')
        *len = 0;
    else
        pop_element(out, len);
    return 0;
}

int fs_eval_links(const char *path, char out[static AGENT_PATH_SIZE])
{
    char todo[AGENT_PATH_SIZE], done[AGENT_PATH_SIZE] = "";
    const char *rest = todo;
    size_t len = 0, links = 0;

    if (snprintf(todo, sizeof(todo), "%s", path) >= (int)sizeof(todo))
        return -ENAMETOOLONG;
    while (*(rest += strspn(rest, "/"))) {
        size_t n = strcspn(rest, "/");
        struct stat st;
        int r;

        if ((n == 1 && rest[0] == '.') || (n == 2 && rest[0] == '.' && rest[1] == '.')) {
            if (n == 2)
                pop_element(done, &len);
            rest += n;
            continue;
        }
        r = push_element(done, &len, &rest);
        if (r < 0)
            return r;
        if (lstat(done, &st) < 0)
            return -errno;
        if (!S_ISLNK(st.st_mode)) {
            if (!S_ISDIR(st.st_mode) && *rest)
                return -ENOTDIR;
            continue;
        }
        if (++links > MAX_LINKS)
            return -ELOOP;
        r = splice_link(done, &len, todo, rest);
        if (r < 0)
            return r;
        rest = todo;
    }
    memcpy(out, len ? done : "/", (len ? len : 1) + 1);
    return 0;
}

int fs_eval_dir(const char *path, char out[static AGENT_PATH_SIZE])
{
    struct stat st;
    int r = fs_eval_links(path, out);

    if (r < 0)
        return r;
    if (stat(out, &st) < 0)
        return -errno;
    return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}
