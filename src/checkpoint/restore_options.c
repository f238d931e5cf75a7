#include "checkpoint/restore_options.h"

#include "checkpoint/criu.h"

#include <string.h>

static const char *const fixed[] = {
    CHECKPOINT_CRIU,
    "restore",
    CRIU_OPTIONS_OF_BOTH,
    "--log-file",
    CRIU_RESTORE_LOG,
    "--work-dir",
    CHECKPOINT_SELF_WORK,
    "--root",
    CHECKPOINT_PLAIN_ROOT,
    "--restore-detached",
    /* PID 1 is a child of the process that starts CRIU, so that its number stays its own. */
    "--restore-sibling",
};

/* Of cay's changes: the filters are installed once, by PID 1, before there is another process. */
static int add_descriptors(struct words *w, const char *program)
{
    int rc = words_add(w, "--inherit-fd");

    if (rc == 0)
        rc = words_add(w, "fd[%d]:%s", CHECKPOINT_PROGRAM_FD, program);
    if (rc == 0)
        rc = words_add(w, "--inherit-fd");
    if (rc == 0)
        rc = words_add(w, "fd[%d]:seccomp", CHECKPOINT_FILTERS_FD);
    if (rc == 0)
        rc = words_add(w, "--inherit-fd");
    if (rc == 0)
        rc = words_add(w, "fd[%d]:seccomp-listener", CHECKPOINT_LISTENER_FD);
    if (rc == 0)
        rc = words_add(w, "--inherit-fd");
    return rc == 0 ? words_add(w, "fd[%d]:steps", CRIU_STEPS_FD) : rc;
}

int restore_options_make(struct words *w, const char *program, struct checkpoint_why *why)
{
    w->n = 0;
    int rc = words_add_all(w, fixed, ARRAY_SIZE(fixed));
    if (rc == 0)
        rc = add_descriptors(w, program);
    if (rc == 0)
        rc = words_add_mounts(w, "/proc/self/mountinfo", CHECKPOINT_ROOT);
    return rc < 0 ? checkpoint_fail(why, rc, "options of the restore: %s", strerror(-rc)) : 0;
}
