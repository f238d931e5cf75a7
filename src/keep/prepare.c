/* Runs once, before keep starts anything, in this order: users are looked up, directories made
 * and checked, the locks taken (a second keep ends here, having changed nothing), listeners and
 * control sockets made. The first failure ends keep with its sentence. prepare_remove takes
 * away at the end what the next start would make anew. */

#include "keep/prepare.h"

#include "base/io.h"
#include "contract/keep.h"
#include "sys/kernel.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define BACKLOG        1024
#define LISTEN_TRIES   20
#define LISTEN_WAIT_MS 50

/* -- directories ------------------------------------------------------------------------------- */

/* A user that can rename a directory above ours can put another in its place. Links above are
 * followed: they are as good as the directories that they stand in. */
static int check_parents(const char *path, char *why)
{
    char parent[256];
    struct stat st;

    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(parent, sizeof(parent), "%.*s", (int)(slash - path), path);
        if (stat(parent, &st) < 0) {
            snprintf(why, PREPARE_WHY_SIZE, "%s: %s", parent, strerror(errno));
            return KEEP_EXIT_FAILED;
        }
        if (st.st_uid == 0 && ((st.st_mode & 022) == 0 || st.st_mode & S_ISVTX))
            continue;
        snprintf(
            why, PREPARE_WHY_SIZE,
            "%s can be changed by others than root, who could put anything in the place of %s; "
            "take another directory, or chown and chmod that one",
            parent, path);
        return KEEP_EXIT_FAILED;
    }
    return 0;
}

/* The directory is whose it should be, or nothing is started: its files are trusted. */
static int make_dir(const char *path, uid_t uid, gid_t gid, mode_t mode, char *why)
{
    struct stat st;

    if (mkdir(path, mode) < 0 && errno != EEXIST) {
        snprintf(why, PREPARE_WHY_SIZE, "cannot make %s: %s", path, strerror(errno));
        return KEEP_EXIT_FAILED;
    }
    if (lstat(path, &st) < 0 || !S_ISDIR(st.st_mode) || (st.st_uid != 0 && st.st_uid != uid)) {
        snprintf(why, PREPARE_WHY_SIZE,
                 "%s is not a directory of root's (a link, a file, or another user's), and what "
                 "is in it "
                 "would be trusted; move it away, or chown it",
                 path);
        return KEEP_EXIT_FAILED;
    }
    if (lchown(path, uid, gid) < 0 || chmod(path, mode) < 0) {
        snprintf(why, PREPARE_WHY_SIZE, "cannot set owner and mode of %s: %s", path,
                 strerror(errno));
        return KEEP_EXIT_FAILED;
    }
    return 0;
}

static int make_dirs(const struct options *o, const struct prepared *p, char *why)
{
    char cayd_dir[256], privd_dir[256], egress_dir[256], images_dir[256];
    int r = check_parents(o->run_dir, why);

    if (r == 0)
        r = check_parents(o->state_dir, why);
    if (r == 0)
        r = make_dir(o->run_dir, 0, 0, 0755, why);
    if (r == 0)
        r = make_dir(o->state_dir, 0, 0, 0711, why);
    snprintf(privd_dir, sizeof(privd_dir), "%s/privd", o->state_dir);
    snprintf(cayd_dir, sizeof(cayd_dir), "%s/cayd", o->state_dir);
    if (r == 0)
        r = make_dir(privd_dir, 0, 0, 0700, why);
    if (r == 0)
        r = make_dir(cayd_dir, p->uid, p->gid, 0700, why);
    snprintf(images_dir, sizeof(images_dir), "%s/images", o->state_dir);
    if (r == 0) /* cayd leaves images there for cay-job, which sees it alone of what is cayd's */
        r = make_dir(images_dir, p->uid, p->gid, 0700, why);
    snprintf(egress_dir, sizeof(egress_dir), "%s/egress", o->state_dir);
    if (r == 0 && o->egress_processes > 0)
        r = make_dir(egress_dir, p->egress_uid, p->egress_gid, 0700, why);
    return r;
}

/* -- the lock ---------------------------------------------------------------------------------- */

static int refuse_second(int fd, char *why)
{
    char text[32] = "";
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);

    text[n > 0 ? strcspn(text, "\n") : 0] = '\0';
    snprintf(why, PREPARE_WHY_SIZE, "it runs already, as process %s", text[0] ? text : "?");
    return KEEP_EXIT_RUNNING;
}

/* The file that was locked may have been removed by a keep that was just ending: then again. */
static bool is_still_there(int fd, const char *path)
{
    struct stat by_fd, by_path;

    return fstat(fd, &by_fd) == 0 && stat(path, &by_path) == 0 && by_fd.st_ino == by_path.st_ino &&
           by_fd.st_dev == by_path.st_dev;
}

static int take_lock(const struct options *o, struct prepared *p, char *why)
{
    snprintf(p->pid_path, sizeof(p->pid_path), "%s/keep.pid", o->run_dir);
    for (int i = 0; i < 10; i++) {
        CLEANUP_CLOSE int fd = open(p->pid_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);

        if (fd < 0) {
            snprintf(why, PREPARE_WHY_SIZE, "cannot open %s: %s", p->pid_path, strerror(errno));
            return KEEP_EXIT_FAILED;
        }
        if (flock(fd, LOCK_EX | LOCK_NB) < 0)
            return refuse_second(fd, why);
        if (is_still_there(fd, p->pid_path)) {
            p->pid_fd = TAKE_FD(fd);
            return 0;
        }
    }
    snprintf(why, PREPARE_WHY_SIZE, "%s does not stay where it is", p->pid_path);
    return KEEP_EXIT_FAILED;
}

int prepare_write_pid(const struct prepared *p)
{
    char text[32];
    int n = snprintf(text, sizeof(text), "%d\n", (int)getpid());

    if (ftruncate(p->pid_fd, 0) < 0 || fchmod(p->pid_fd, 0644) < 0 ||
        pwrite(p->pid_fd, text, (size_t)n, 0) != n)
        return -errno;
    return 0;
}

/* -- host ids ---------------------------------------------------------------------------------- */

/* Sandboxes of two servers with the same host ids share what the kernel counts by user, and files
 * of one belong to ids of the other. So each range is a byte of one file for the whole machine,
 * locked for as long as this process lives: whatever ends it frees them. Of root's alone; nothing
 * is read or written. */
#define UIDS_FILE  "/run/cay-uids"
#define UIDS_RANGE 65536

static int take_uids(const struct options *o, struct prepared *p, char *why)
{
    struct flock lock = {.l_type = F_WRLCK,
                         .l_whence = SEEK_SET,
                         .l_start = o->uid_first / UIDS_RANGE,
                         .l_len = o->uid_ranges};
    CLEANUP_CLOSE int fd = -1;

    if (o->uid_ranges == 0)
        return 0;
    fd = open(UIDS_FILE, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0 && fcntl(fd, F_OFD_SETLK, &lock) == 0) {
        p->uids_fd = TAKE_FD(fd);
        return 0;
    }
    if (fd < 0 || (errno != EAGAIN && errno != EACCES))
        snprintf(why, PREPARE_WHY_SIZE, "cannot lock %s: %s", UIDS_FILE, strerror(errno));
    else
        snprintf(
            why, PREPARE_WHY_SIZE,
            "another cay server on this machine gives its sandboxes host ids of the range %lld to "
            "%lld; set [sandbox] first_uid to one beyond that server's, or slots_max to fewer",
            (long long)o->uid_first, (long long)(o->uid_first + o->uid_ranges * UIDS_RANGE - 1));
    return KEEP_EXIT_FAILED;
}

/* -- the listener ------------------------------------------------------------------------------ */

static int listen_at(const struct addrinfo *a)
{
    CLEANUP_CLOSE int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
                                  a->ai_protocol);
    int one = 1;

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
        bind(fd, a->ai_addr, a->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0)
        return -errno;
    return TAKE_FD(fd);
}

static void report_listen_error(const char *address, const char *port, int number, char *why)
{
    const char *what = "";

    if (number == EADDRINUSE)
        what =
            "; another program listens there (`ss -ltnp` names it): end it, or take another port "
            "with [listen] port";
    else if (number == EADDRNOTAVAIL)
        what =
            "; no interface of this machine has that address: name one that it has with [listen] "
            "address";
    else if (number == EACCES)
        what = "; ports below net.ipv4.ip_unprivileged_port_start need CAP_NET_BIND_SERVICE";
    snprintf(why, PREPARE_WHY_SIZE, "cannot listen on %s port %s: %s%s", address, port,
             strerror(number), what);
}

/* *out is the listener, or -errno with KEEP_EXIT_FAILED. */
static int make_listener(const char *address, int64_t number, int *out, char *why)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
                             .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char port[16];

    snprintf(port, sizeof(port), "%lld", (long long)number);
    if (getaddrinfo(address, port, &hints, &found) != 0) {
        snprintf(why, PREPARE_WHY_SIZE,
                 "--listen-address=%s: a numeric address or localhost is needed", address);
        return KEEP_EXIT_OPTIONS;
    }
    /* A cayd whose keep was killed goes with it, but not in no time. */
    for (int i = 0; i < LISTEN_TRIES; i++) {
        *out = listen_at(found);
        if (*out != -EADDRINUSE)
            break;
        usleep(LISTEN_WAIT_MS * 1000);
    }
    freeaddrinfo(found);
    if (*out >= 0)
        return 0;
    report_listen_error(address, port, -*out, why);
    return KEEP_EXIT_FAILED;
}

/* For localhost both loopback addresses: resolvers give ::1 first for names below it, and a program
 * of another user that listened there alone would get what is meant for this server. So an address
 * that is in use fails the start; only a machine without IPv6 has one listener. */
static int make_listeners(const struct options *o, struct prepared *p, char *why)
{
    int r;

    if (strcmp(o->listen_address, KEEP_LISTEN_LOCALHOST) != 0)
        return make_listener(o->listen_address, o->listen_port, &p->listen_fd, why);
    r = make_listener("127.0.0.1", o->listen_port, &p->listen_fd, why);
    if (r == 0)
        r = make_listener("::1", o->listen_port, &p->listen_second_fd, why);
    if (r == KEEP_EXIT_FAILED &&
        (p->listen_second_fd == -EADDRNOTAVAIL || p->listen_second_fd == -EAFNOSUPPORT)) {
        p->listen_second_fd = -1;
        return 0;
    }
    return r;
}

/* -- the rest ---------------------------------------------------------------------------------- */

static int find_user(const char *name, const char *whose, uid_t *uid, gid_t *gid, char *why)
{
    const struct passwd *pw = getpwnam(name);

    if (!pw || pw->pw_uid == 0) {
        snprintf(why, PREPARE_WHY_SIZE,
                 pw ? "user %s is root: %s must not be"
                    : "there is no user %s, whom %s runs as (make one: useradd --system "
                      "--no-create-home --shell /usr/sbin/nologin %s)",
                 name, whose, name);
        return KEEP_EXIT_FAILED;
    }
    *uid = pw->pw_uid;
    *gid = pw->pw_gid;
    return 0;
}

static int find_users(const struct options *o, struct prepared *p, char *why)
{
    int r = find_user(o->user, "cayd", &p->uid, &p->gid, why);

    if (r == 0 && o->egress_processes > 0)
        r = find_user(o->egress_user, "cay-egress", &p->egress_uid, &p->egress_gid, why);
    /* With one user each could read the other's memory: the sealed credentials are only
     * egress's. */
    if (r == 0 && o->egress_processes > 0 && p->uid == p->egress_uid) {
        snprintf(why, PREPARE_WHY_SIZE, "cayd and cay-egress must not run as the same user, %s",
                 o->user);
        return KEEP_EXIT_OPTIONS;
    }
    return r;
}

static void control_path(const struct options *o, int64_t i, struct sockaddr_un *out)
{
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(out->sun_path, sizeof(out->sun_path), KEEP_EGRESS_CONTROL, o->run_dir, (int)i);
}

/* Only cayd's user may connect: mode 0600 from its making on, in a directory of root's. */
static int listen_for_control(const struct options *o, const struct prepared *p, int64_t i)
{
    CLEANUP_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_un at;
    mode_t before;
    int r;

    control_path(o, i, &at);
    (void)unlink(at.sun_path); /* of a keep that was killed: the lock is ours */
    before = umask(0177);
    r = fd < 0 || bind(fd, (const struct sockaddr *)&at, sizeof(at)) < 0 ? -errno : 0;
    umask(before);
    if (r == 0 && (lchown(at.sun_path, p->uid, p->gid) < 0 || listen(fd, BACKLOG) < 0))
        r = -errno;
    return r < 0 ? r : TAKE_FD(fd);
}

static int make_controls(const struct options *o, struct prepared *p, char *why)
{
    for (int64_t i = 0; i < o->egress_processes; i++) {
        p->egress_fds[i] = listen_for_control(o, p, i);
        if (p->egress_fds[i] >= 0)
            continue;
        snprintf(why, PREPARE_WHY_SIZE, "cannot make the socket of cay-egress in %s: %s",
                 o->run_dir, strerror(-p->egress_fds[i]));
        return KEEP_EXIT_FAILED;
    }
    return 0;
}

void prepare_remove(const struct options *o, const struct prepared *p)
{
    struct sockaddr_un at;

    for (int64_t i = 0; i < o->egress_processes; i++) {
        control_path(o, i, &at);
        (void)unlink(at.sun_path);
    }
    (void)unlink(p->pid_path);
}

int prepare_log(const struct options *o)
{
    CLEANUP_CLOSE int fd = -1;

    if (!o->log_file)
        return 0;
    fd = open(o->log_file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0640);
    if (fd < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0)
        return -errno;
    return 0;
}

int prepare_all(const struct options *o, struct prepared *out, char why[static PREPARE_WHY_SIZE])
{
    struct prepared p = {.pid_fd = -1, .uids_fd = -1, .listen_fd = -1, .listen_second_fd = -1};
    int r = KEEP_EXIT_FAILED;

    if (geteuid() != 0)
        snprintf(why, PREPARE_WHY_SIZE, "it must be started as root");
    else if (kernel_check(why, PREPARE_WHY_SIZE) == 0)
        r = find_users(o, &p, why);
    if (r == 0)
        r = make_dirs(o, &p, why);
    if (r == 0)
        r = take_lock(o, &p, why);
    if (r == 0)
        r = take_uids(o, &p, why);
    if (r == 0)
        r = make_listeners(o, &p, why);
    if (r == 0)
        r = make_controls(o, &p, why);
    if (r == 0)
        *out = p;
    else if (p.pid_fd >= 0)
        prepare_remove(o, &p); /* ours: it is locked until this process ends */
    return r;
}
