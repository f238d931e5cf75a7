/* Fetching by skopeo. Its own configuration holds where no option says otherwise: credentials,
 * policy.json, registries.conf. The folder is of skopeo's form "dir", which keeps the manifest as
 * the registry has it, and so its digest. The registry is not trusted: skopeo is ended when its
 * time is over or the disk gets full, the last line that it wrote becomes the error, and the image
 * is read as any other. */

#include "cli/image_fetch.h"

#include "base/clock.h"
#include "base/config.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define REGISTRY           "docker://"
#define PROGRAM            "/usr/bin/skopeo"
#define FETCH_TIMEOUT_MS   (30 * 60 * 1000u)
#define LOOK_MS            200
#define FETCH_SAID_MAX     4096u /* bytes of its messages that are kept, the last ones */
#define FETCH_FREE_PERCENT 5u    /* of the disk that stay free */
#define ARGUMENTS_MAX      24

struct run {
    pid_t pid;
    int out_fd; /* its messages */
    char said[FETCH_SAID_MAX + 1];
    size_t said_len;
    uint64_t end_ms;
    const char *dir;
};

bool image_fetch_is_source(const char *source)
{
    return strncmp(source, REGISTRY, strlen(REGISTRY)) == 0;
}

/* -- the folder -------------------------------------------------------------------------------- */

int image_fetch_open_import(const struct cli *c, struct err *e)
{
    CLEANUP_CLOSE int state = -1;
    char path[PATH_MAX];
    int fd;

    snprintf(path, sizeof(path), "%s/privd", c->settings.state_dir);
    state = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (state < 0) {
        err_set_sys(e, err_code_from_errno(errno), errno, "opening %s", path);
        err_hint(e,
                 "images are imported by root on the server's machine; --state-dir=DIR says where "
                 "its state is");
        return -1;
    }
    if (mkdirat(state, "import", 0700) < 0 && errno != EEXIST)
        fd = -1;
    else
        fd = openat(state, "import", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        err_set_sys(e, err_code_from_errno(errno), errno, "making %s/import", path);
    return fd;
}

/* Locked: the server's sweep leaves it alone, until this command is gone. */
static enum err_code make_dir(const struct cli *c, struct image_fetch *f, struct err *e)
{
    CLEANUP_CLOSE int import = image_fetch_open_import(c, e);

    if (import < 0)
        return e->code;
    snprintf(f->dir, sizeof(f->dir), "%s/privd/import/fetch-XXXXXX", c->settings.state_dir);
    if (!mkdtemp(f->dir)) {
        f->dir[0] = '\0';
        return err_set_sys(e, ERR_INTERNAL, errno, "making a folder for the image");
    }
    f->lock_fd = open(f->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (f->lock_fd < 0 || flock(f->lock_fd, LOCK_EX | LOCK_NB) < 0)
        return err_set_sys(e, ERR_INTERNAL, errno, "locking %s", f->dir);
    return ERR_OK;
}

/* -- the program ------------------------------------------------------------------------------- */

static size_t add_option(const struct cli *c, const char *ours, const char *its,
                         const char *argv[static ARGUMENTS_MAX], size_t n)
{
    const char *value = cli_value(c, ours);

    if (!value)
        return n;
    argv[n++] = its;
    argv[n++] = value;
    return n;
}

static void set_arguments(const struct cli *c, const char *source, const char *to,
                          const char *argv[static ARGUMENTS_MAX])
{
    size_t n = 0;

    argv[n++] = "skopeo";
    n = add_option(c, "signature-policy", "--policy", argv, n);
    argv[n++] = "--override-os=linux";
    argv[n++] = "--override-arch=amd64";
    argv[n++] = "copy";
    argv[n++] = "--quiet";
    argv[n++] = "--remove-signatures"; /* checked, but not kept */
    n = add_option(c, "authfile", "--src-authfile", argv, n);
    n = add_option(c, "cert-dir", "--src-cert-dir", argv, n);
    if (cli_flag(c, "plain-http"))
        argv[n++] = "--src-tls-verify=false";
    argv[n++] = "--";
    argv[n++] = source;
    argv[n++] = to;
    argv[n] = NULL;
}

NORETURN static void become(const char *const *argv, const char *dir, int out_fd, pid_t parent)
{
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);

    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != parent || null_fd < 0 || dup2(null_fd, 0) < 0 || dup2(null_fd, 1) < 0 ||
        dup2(out_fd, 2) < 0 || setenv("TMPDIR", dir, 1) < 0)
        _exit(126);
    execv(PROGRAM, (char *const *)argv);
    _exit(127);
}

static enum err_code start(struct run *r, const char *const *argv, struct err *e)
{
    pid_t parent = getpid();
    int fds[2];

    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
        return err_set_sys(e, ERR_INTERNAL, errno, "making a pipe");
    r->pid = fork();
    if (r->pid == 0)
        become(argv, r->dir, fds[1], parent);
    close(fds[1]);
    r->out_fd = fds[0];
    return r->pid < 0 ? err_set_sys(e, ERR_INTERNAL, errno, "starting skopeo") : ERR_OK;
}

/* False: it has closed its end. The last bytes are kept: that is where the reason stands. */
static bool read_said(struct run *r)
{
    struct pollfd p = {.fd = r->out_fd, .events = POLLIN};
    char piece[1024];
    ssize_t n;

    if (poll(&p, 1, LOOK_MS) <= 0)
        return true;
    n = read(r->out_fd, piece, sizeof(piece));
    if (n <= 0)
        return n < 0 && (errno == EINTR || errno == EAGAIN);
    if (r->said_len + (size_t)n > FETCH_SAID_MAX) {
        size_t drop = r->said_len + (size_t)n - FETCH_SAID_MAX;

        memmove(r->said, r->said + drop, r->said_len - drop);
        r->said_len -= drop;
    }
    memcpy(r->said + r->said_len, piece, (size_t)n);
    r->said_len += (size_t)n;
    return true;
}

static enum err_code check_bounds(const struct run *r, struct err *e)
{
    struct statvfs fs;

    if (clock_mono_ms() > r->end_ms) {
        err_set(e, ERR_TIMEOUT, "the registry did not send the whole image in time");
        err_hint(e, "--timeout=TIME gives it more");
    } else if (statvfs(r->dir, &fs) == 0 && fs.f_bavail < fs.f_blocks / 100 * FETCH_FREE_PERCENT) {
        err_set(e, ERR_NO_SPACE, "the disk of %.100s would be left with less than %u %% free",
                r->dir, FETCH_FREE_PERCENT);
    }
    return e->code;
}

/* Until it has ended; it is ended where it goes beyond its bounds. Its wait status. */
static int wait_for(struct run *r, struct err *e)
{
    int status = 0;

    while (read_said(r))
        if (e->code == ERR_OK && check_bounds(r, e) != ERR_OK)
            kill(r->pid, SIGKILL);
    while (waitpid(r->pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}

/* -- what it says ------------------------------------------------------------------------------ */

/* time="..." level=fatal msg="REASON": the last one's reason, else the last line, in place. */
static const char *reason_of(struct run *r)
{
    char *text = r->said, *at, *found = NULL;

    while (r->said_len > 0 && strchr("\n ", text[r->said_len - 1]))
        r->said_len--;
    text[r->said_len] = '\0';
    for (at = text; (at = strstr(at, " msg=\"")) != NULL;)
        found = at += strlen(" msg=\"");
    if (!found) {
        found = strrchr(text, '\n');
        return found ? found + 1 : text;
    }
    if (found[0] && text[r->said_len - 1] == '"')
        text[r->said_len - 1] = '\0';
    for (char *from = at = found;; from++) { /* \" becomes " */
        from += from[0] == '\\' && from[1];
        *at++ = *from;
        if (!*from)
            return found;
    }
}

static bool has_any(const char *text, const char *const words[], size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strstr(text, words[i]))
            return true;
    return false;
}

static enum err_code code_of(const char *why)
{
    static const char *const unknown[] = {"manifest unknown", "name unknown", "no image found in"};
    static const char *const refused[] = {"unauthorized", "authentication required", "denied",
                                          "invalid username/password"};

    if (has_any(why, refused, ARRAY_SIZE(refused)))
        return ERR_DENIED;
    return has_any(why, unknown, ARRAY_SIZE(unknown)) ? ERR_NOT_FOUND : ERR_UNAVAILABLE;
}

static enum err_code fail(struct run *r, struct err *e)
{
    const char *why = reason_of(r);

    err_set(e, code_of(why), "skopeo could not fetch it: %.340s",
            why[0] ? why : "it gives no reason");
    if (e->code == ERR_DENIED)
        err_hint(e, "`skopeo login` keeps credentials; --authfile=FILE names a file of them");
    return e->code;
}

/* -- the whole --------------------------------------------------------------------------------- */

static enum err_code read_timeout(const struct cli *c, uint64_t *ms, struct err *e)
{
    const char *given = cli_value(c, "timeout");

    *ms = FETCH_TIMEOUT_MS;
    if (given && (config_parse_time_ms(given, ms) < 0 || *ms == 0))
        return err_set(e, ERR_INVALID, "--timeout: \"%.40s\" is not a time, as 10m", given);
    return ERR_OK;
}

static enum err_code run(struct run *r, const char *const *argv, struct err *e)
{
    int status;

    if (start(r, argv, e) != ERR_OK)
        return e->code;
    status = wait_for(r, e);
    util_close(&r->out_fd);
    return e->code == ERR_OK && status != 0 ? fail(r, e) : e->code;
}

enum err_code image_fetch(const struct cli *c, const char *source, struct image_fetch *f,
                          struct image *out, struct err *e)
{
    struct run r = {.out_fd = -1};
    const char *argv[ARGUMENTS_MAX];
    char to[PATH_MAX + 8];
    uint64_t ms;

    if (access(PROGRAM, X_OK) < 0) {
        err_set(e, ERR_UNAVAILABLE,
                "images of registries are fetched by skopeo, which is not there");
        err_hint(e, "install the package skopeo, or import an OCI layout or a docker archive");
        return e->code;
    }
    if (read_timeout(c, &ms, e) != ERR_OK || make_dir(c, f, e) != ERR_OK)
        return e->code;
    r.dir = f->dir;
    r.end_ms = clock_mono_ms() + ms;
    snprintf(to, sizeof(to), "dir:%s", f->dir);
    set_arguments(c, source, to, argv);
    cli_note(c, "cay: skopeo fetches %s", source);
    return run(&r, argv, e) == ERR_OK ? image_open(to, out, e) : e->code;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path) < 0 ? -1 : 0;
}

void image_fetch_free(struct image_fetch *f)
{
    if (f->dir[0])
        (void)nftw(f->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    util_close(&f->lock_fd);
}
