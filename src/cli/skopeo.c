/* skopeo's own configuration holds where no option says otherwise: credentials, policy.json,
 * registries.conf. The registry is not trusted: skopeo is ended when its time is over or the disk
 * gets full, and the last line that it wrote becomes the error. */

#include "cli/skopeo.h"

#include "base/clock.h"
#include "base/config.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM             "/usr/bin/skopeo"
#define CHECK_MS            200
#define SKOPEO_SAID_MAX     4096u /* bytes of its messages that are kept, the last ones */
#define SKOPEO_FREE_PERCENT 5u    /* of the disk that stay free */

struct run {
    const struct skopeo *skopeo;
    pid_t pid;
    int out_fd; /* its messages */
    char said[SKOPEO_SAID_MAX + 1];
    size_t said_len;
    uint64_t end_ms;
};

/* -- its arguments ----------------------------------------------------------------------------- */

enum err_code skopeo_check(const char *what, struct err *e)
{
    if (access(PROGRAM, X_OK) == 0)
        return ERR_OK;
    err_set(e, ERR_UNAVAILABLE, "images of registries are %s by skopeo, which is not there", what);
    err_hint(e, "install the package skopeo, or use an OCI layout or an archive");
    return e->code;
}

enum err_code skopeo_read_timeout(struct skopeo *s, const struct cli *c, struct err *e)
{
    const char *given = cli_value(c, "timeout");

    s->timeout_ms = SKOPEO_TIMEOUT_MS;
    if (given && (config_parse_time_ms(given, &s->timeout_ms) < 0 || s->timeout_ms == 0))
        return cli_wrong_option(e, "--timeout: \"%.40s\" is not a time, as 10m", given);
    return ERR_OK;
}

void skopeo_add(struct skopeo *s, const char *argument)
{
    if (s->n < SKOPEO_ARGUMENTS_MAX)
        s->argv[s->n] = argument;
    s->n++;
}

void skopeo_add_option(struct skopeo *s, const struct cli *c, const char *ours, const char *its)
{
    const char *value = cli_value(c, ours);

    if (!value)
        return;
    skopeo_add(s, its);
    skopeo_add(s, value);
}

/* -- the program ------------------------------------------------------------------------------- */

/* The descriptors that skopeo is to have are put beyond those that it gets first. */
static bool set_descriptors(const struct skopeo *s, int out_fd)
{
    static const int first_free = 16;
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    int file = s->file_fd < 0 ? null_fd : s->file_fd;
    int digest = s->digest_fd < 0 ? null_fd : s->digest_fd;

    file = fcntl(file, F_DUPFD_CLOEXEC, first_free);
    digest = fcntl(digest, F_DUPFD_CLOEXEC, first_free);
    out_fd = fcntl(out_fd, F_DUPFD_CLOEXEC, first_free);
    return null_fd >= 0 && file >= 0 && digest >= 0 && out_fd >= 0 && dup2(null_fd, 0) >= 0 &&
           dup2(null_fd, 1) >= 0 && dup2(out_fd, 2) >= 0 && dup2(file, SKOPEO_FILE_FD) >= 0 &&
           dup2(digest, SKOPEO_DIGEST_FD) >= 0;
}

NORETURN static void become(const struct skopeo *s, int out_fd, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != parent || !set_descriptors(s, out_fd) || setenv("TMPDIR", s->dir, 1) < 0)
        _exit(126);
    execv(PROGRAM, (char *const *)(uintptr_t)s->argv);
    _exit(127);
}

static enum err_code start(struct run *r, struct err *e)
{
    pid_t parent = getpid();
    int fds[2];

    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
        return err_set_sys(e, ERR_INTERNAL, errno, "making a pipe");
    r->pid = fork();
    if (r->pid == 0)
        become(r->skopeo, fds[1], parent);
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

    if (poll(&p, 1, CHECK_MS) <= 0)
        return true;
    n = read(r->out_fd, piece, sizeof(piece));
    if (n <= 0)
        return n < 0 && (errno == EINTR || errno == EAGAIN);
    if (r->said_len + (size_t)n > SKOPEO_SAID_MAX) {
        size_t drop = r->said_len + (size_t)n - SKOPEO_SAID_MAX;

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
        err_set(e, ERR_TIMEOUT, "the registry did not %s in time", r->skopeo->late);
        err_hint(e, "--timeout=TIME gives it more");
    } else if (statvfs(r->skopeo->dir, &fs) == 0 &&
               fs.f_bavail < fs.f_blocks / 100 * SKOPEO_FREE_PERCENT) {
        err_set(e, ERR_NO_SPACE, "the disk of %.100s would be left with less than %u %% free",
                r->skopeo->dir, SKOPEO_FREE_PERCENT);
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

    err_set(e, code_of(why), "skopeo could not %s it: %.340s", r->skopeo->verb,
            why[0] ? why : "it gives no reason");
    if (e->code == ERR_DENIED)
        err_hint(e, "`skopeo login` keeps credentials; --authfile=FILE names a file of them");
    if (strstr(why, "server gave HTTP response to HTTPS client"))
        err_hint(e, "--plain-http is for a registry without TLS");
    return e->code;
}

/* -- the whole --------------------------------------------------------------------------------- */

enum err_code skopeo_run(const struct skopeo *s, struct err *e)
{
    struct run r = {.skopeo = s, .out_fd = -1, .end_ms = clock_mono_ms() + s->timeout_ms};
    int status;

    if (s->n > SKOPEO_ARGUMENTS_MAX)
        return err_set(e, ERR_TOO_LARGE, "skopeo would get %zu arguments", s->n);
    if (start(&r, e) != ERR_OK)
        return e->code;
    status = wait_for(&r, e);
    util_close(&r.out_fd);
    return e->code == ERR_OK && status != 0 ? fail(&r, e) : e->code;
}
