/* The closer. A restore leaves much that takes long to give back: the opened image, and the blocks
 * and pages of the sealed file that is removed. privd waits for the end of the task, which would
 * do that first. The closer shares the task's descriptors, so that the task's end closes nothing,
 * and is killed with the task; by then the sandbox goes on. Whatever comes between, it is in the
 * image's control group, which privd kills.
 *
 * The mover. To move another process the kernel takes a lock for which it waits a grace period of
 * RCU, 6 to 15 ms, unless it was taken in the last one. A restore does so three times, with most of
 * its work in between. The mover takes it again and again meanwhile, by moving the closer to where
 * it is: 0.02 ms each. It waits the first time in the task's stead, but with a lock that the task
 * needs even to move itself: so it begins when the task has done that. */

#include "runtime/restore_beside.h"

#include "base/util.h"
#include "sys/nice.h"
#include "sys/ns.h"
#include "sys/pid.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define AGAIN_NS  4000000L /* less than a grace period */
#define MOVES_MAX 20000u   /* more than a restore has time for (MEMORY_IMAGE_SECONDS) */

/* The kernel drops a process's descriptors before it tells its children of its end. The name shows
 * in a list of the machine's processes. */
static void end_with(pid_t task, const char *name)
{
    prctl(PR_SET_NAME, name, 0, 0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != task)
        _exit(0);
}

NORETURN static void run_closer(pid_t task)
{
    end_with(task, "cay-closer");
    (void)nice_give_up(); /* processes that go on have the processor first */
    for (;;)
        pause();
}

NORETURN static void run_mover(pid_t task, pid_t closer, int go_fd, int group_fd)
{
    const struct timespec again = {.tv_nsec = AGAIN_NS};
    char text[24];

    end_with(task, "cay-mover");
    snprintf(text, sizeof(text), "%d", (int)closer);
    if (read(go_fd, &(char){0}, 1) != 1)
        _exit(0);
    for (unsigned i = 0; i < MOVES_MAX && write(group_fd, text, strlen(text)) > 0; i++)
        nanosleep(&again, NULL);
    _exit(0);
}

void restore_beside_begin(struct restore_beside *b, int group_fd)
{
    pid_t task = getpid();
    int pipes[2];

    *b = RESTORE_BESIDE_NONE;
    b->closer = ns_fork(CLONE_FILES, SIGCHLD, NULL);
    if (b->closer == 0)
        run_closer(task);
    if (b->closer < 0 || pipe2(pipes, O_CLOEXEC) < 0)
        return;
    b->mover = ns_fork(0, SIGCHLD, &b->mover_fd);
    if (b->mover == 0)
        run_mover(task, b->closer, pipes[0], group_fd);
    close(pipes[0]);
    b->go_fd = pipes[1];
}

void restore_beside_moves(struct restore_beside *b)
{
    if (b->go_fd >= 0)
        (void)!write(b->go_fd, "", 1);
    util_close(&b->go_fd);
}

void restore_beside_moved(struct restore_beside *b)
{
    int status;

    util_close(&b->go_fd);
    if (b->mover <= 0)
        return;
    (void)pid_kill(b->mover_fd, SIGKILL);
    (void)waitpid(b->mover, &status, 0);
    util_close(&b->mover_fd);
    b->mover = -1;
}
