#include "cli/tar.h"

#include "base/util.h"
#include "cli/session.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* An archive is not to be trusted: its unpacker must be unable to make device files or to give
 * files away, even as root. tar itself refuses names with "..", and writing through links of the
 * same archive. */
static void drop_privileges(void)
{
    for (unsigned long cap = 0; cap <= CAP_LAST_CAP; cap++)
        if (cap != CAP_DAC_OVERRIDE && cap != CAP_FOWNER)
            prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

static void run(const char *const *argv, int dir_fd, int theirs, int theirs_is, int errors)
{
    session_unblock_signals();
    if (dup2(theirs, theirs_is) < 0 || dup2(errors, STDERR_FILENO) < 0 ||
        (dir_fd >= 0 && fchdir(dir_fd) < 0))
        _exit(127);
    drop_privileges();
    execvp(argv[0], (char *const *)argv);
    _exit(127);
}

/* reads: tar reads the archive. Its messages never wait for room in their pipe. */
static int start(struct tar *t, const char *const *argv, int dir_fd, bool reads)
{
    int data[2], errors[2];

    *t = (struct tar){.pid = -1, .fd = -1, .errors_fd = -1};
    if (pipe2(data, O_CLOEXEC) < 0)
        return -errno;
    if (pipe2(errors, O_CLOEXEC | O_NONBLOCK) < 0) {
        util_close(&data[0]);
        util_close(&data[1]);
        return -EMFILE;
    }
    t->fd = reads ? data[1] : data[0];
    t->errors_fd = errors[0];
    t->pid = fork();
    if (t->pid == 0)
        run(argv, dir_fd, reads ? data[0] : data[1], reads ? STDIN_FILENO : STDOUT_FILENO,
            errors[1]);
    util_close(reads ? &data[0] : &data[1]);
    util_close(&errors[1]);
    if (t->pid > 0)
        return 0;
    util_close(&t->fd);
    util_close(&t->errors_fd);
    return -EAGAIN;
}

enum err_code tar_pack(struct tar *t, const char *path, struct err *e)
{
    const char *argv[] = {"tar", "-C", path, "-cf", "-", ".", NULL};
    int rc = start(t, argv, -1, false);

    return rc < 0 ? err_set_sys(e, ERR_EXHAUSTED, -rc, "cannot start tar") : ERR_OK;
}

enum err_code tar_pack_dir(struct tar *t, int dir_fd, struct err *e)
{
    const char *argv[] = {"tar", "-cf", "-", ".", NULL};
    int rc = start(t, argv, dir_fd, false);

    return rc < 0 ? err_set_sys(e, ERR_EXHAUSTED, -rc, "cannot start tar") : ERR_OK;
}

enum err_code tar_unpack(struct tar *t, int dir_fd, struct err *e)
{
    const char *argv[] = {"tar", "--no-same-owner", "--no-same-permissions", "-xf", "-", NULL};
    int rc = start(t, argv, dir_fd, true);

    return rc < 0 ? err_set_sys(e, ERR_EXHAUSTED, -rc, "cannot start tar") : ERR_OK;
}

enum err_code tar_end(struct tar *t, struct buf *messages, struct err *e)
{
    int status = -1;
    ssize_t n;
    bool ended;

    util_close(&t->fd);
    ended = waitpid(t->pid, &status, 0) == t->pid;
    if (buf_reserve(messages, messages->max - messages->len) == 0) {
        n = read(t->errors_fd, messages->data + messages->len, messages->max - messages->len);
        buf_commit(messages, n > 0 ? (size_t)n : 0);
    }
    util_close(&t->errors_fd);
    if (ended && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return ERR_OK;
    return err_set(e, ERR_INTERNAL, "tar failed on this machine");
}
