/* How CRIU is run for a dump, and what is done while the sandbox stands still.
 *
 *     cay-checkpoint        CRIU                         cay-checkpoint, as CRIU's action script
 *     checks, enters,
 *     starts CRIU    ---->  stops all, dumps   ------->  checks again, now that nothing changes,
 *                                                        archives /run and /dev/shm, tells "done",
 *                                                        waits for the answer
 *     waits, with    <----  ends them all, or lets
 *     a deadline            them go on         <-------
 *
 * So what started it can seal the image and put it into its place before any process is given up: a
 * disk that is full costs the sandbox nothing but a moment. */

#include "checkpoint/dump.h"

#include "base/io.h"
#include "checkpoint/criu.h"
#include "checkpoint/dump_options.h"
#include "checkpoint/enter.h"
#include "checkpoint/hook.h"
#include "checkpoint/notes.h"
#include "checkpoint/refusal.h"
#include "checkpoint/terminals.h"
#include "sys/ns.h"
#include "sys/pid.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

/* -- while all stand still --------------------------------------------------------------------- */

NORETURN static void run_tar(const char *pid_text)
{
    char root[48];

    snprintf(root, sizeof(root), "/proc/%.16s/root", pid_text);
    int fd = openat(CHECKPOINT_DIR_FD, CHECKPOINT_TMPFS_TAR,
                    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || chdir(root) < 0 || dup2(fd, STDOUT_FILENO) < 0)
        _exit(126);
    execle("/usr/bin/tar", "tar", "-cf", "-", "--numeric-owner", "--sparse", "--one-file-system",
           CHECKPOINT_NO_VOLUMES, "run", "dev/shm", (char *)NULL, criu_environment);
    _exit(127);
}

/* They are directories of a tmpfs, of which CRIU keeps nothing, as its mount is external. */
static int archive_tmpfs(const char *pid_text)
{
    int status;
    pid_t pid = fork();

    if (pid == 0)
        run_tar(pid_text);
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0 ? 0 : -EIO;
}

/* Clocks as they are while all stand still: they go on from there. */
static int write_notes(pid_t pid, struct checkpoint_why *why)
{
    struct notes notes;
    int rc = dump_options_program(pid, notes.program);

    if (rc == 0)
        rc = notes_read_clocks(&notes);
    if (rc == 0)
        rc = notes_write(CHECKPOINT_DIR_FD, &notes);
    return rc < 0 ? checkpoint_fail(why, rc, "notes on the image: %s", strerror(-rc)) : 0;
}

static int report(const char *text)
{
    return io_write_full(CHECKPOINT_REQUEST_FD, text, strlen(text));
}

/* Without an answer, or at the end of its caller, the processes go on. */
static bool may_end(void)
{
    char answer = 0;

    return io_read_some(CHECKPOINT_ANSWER_FD, &answer, 1) == 1 && answer == CHECKPOINT_END;
}

int dump_hook(const char *self, const char *pid_text)
{
    static const int wanted[] = {CHECKPOINT_DIR_FD, CHECKPOINT_REQUEST_FD, CHECKPOINT_ANSWER_FD};
    struct checkpoint_why why = {""};
    char line[sizeof(why.text) + 32];
    int pid = pid_text ? atoi(pid_text) : 0;

    if (hook_take_descriptors(self, wanted, ARRAY_SIZE(wanted)) < 0)
        return 1;
    int rc = pid > 0 ? refusal_check(pid, &why)
                     : checkpoint_fail(&why, -EINVAL, "CRIU does not say what it dumped");
    if (rc == 0 && archive_tmpfs(pid_text) < 0)
        rc = checkpoint_fail(&why, -EIO, "/run and /dev/shm could not be archived");
    if (rc == 0)
        rc = write_notes(pid, &why);
    if (rc < 0) {
        snprintf(line, sizeof(line), "E %d %s\n", -rc, why.text);
        (void)report(line);
        return 1;
    }
    return report(CHECKPOINT_DONE) == 0 && may_end() ? 0 : 1;
}

/* -- before and after -------------------------------------------------------------------------- */

static int enter(pid_t *pid, struct checkpoint_why *why)
{
    pid_t starter = getppid();
    int rc;

    *pid = pid_number(CHECKPOINT_PID_FD);
    if (*pid < 0)
        return checkpoint_fail(why, *pid, "the sandbox's PID 1: %s", strerror(-*pid));
    rc = enter_sandbox(CHECKPOINT_PID_FD);
    /* For the action script, which takes descriptors of this process: it has the same rights. */
    if (rc == 0 && prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
        rc = -errno;
    /* Again: the kernel forgets it when ids change. */
    if (rc == 0 && (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != starter))
        rc = -ECHILD;
    return rc < 0 ? checkpoint_fail(why, rc, "entering the sandbox: %s", strerror(-rc)) : 0;
}

int dump_run(const struct criu_limits *limits, struct checkpoint_why *why)
{
    static struct words words; /* large */
    char self[48];
    pid_t pid;
    int rc;

    snprintf(self, sizeof(self), HOOK_PROGRAM, (int)getpid());
    rc = enter(&pid, why);
    if (rc == 0)
        rc = refusal_check(pid, why);
    if (rc < 0)
        return rc;
    rc = terminals_remove(CHECKPOINT_PID_FD);
    if (rc < 0)
        return checkpoint_fail(why, rc, "terminals of commands: %s", strerror(-rc));
    rc = dump_options_make(&words, pid, self, why);
    if (rc == 0)
        rc = criu_run(words.argv, limits, why);
    if (rc == -EIO && strncmp(why->text, CRIU_SAYS, strlen(CRIU_SAYS)) == 0)
        rc = refusal_of_criu(why->text);
    criu_remove_beside();
    if (rc < 0 && rc != -ETIMEDOUT && rc != -ECHILD && terminals_make(CHECKPOINT_PID_FD) < 0)
        rc = checkpoint_fail(why, -ECHILD, "terminals of commands could not be made anew");
    return rc;
}
