#include "agent/process/proc_signal.h"

#include "agent/common/procfs.h"
#include "agent/process/proc.h"

#include <errno.h>
#include <signal.h>

/* Signals to a command. SIGTERM goes to its process group, as a terminal's ^C would. SIGKILL ends
 * all that the command started, wherever it went: daemons that forked twice, setsid(1), nohup(1),
 * jobs of a shell. They have neither a session nor a parent in common with the command any more,
 * but the number of the command that spawn.c gave it stands in the resource limits of each (spawn.h
 * says why there). */

/* Each round kills what the round before forked meanwhile. A command that forks faster than that is
 * stopped by the limit of processes; its rest ends with the sandbox. */
#define KILL_ROUNDS_MAX 10

struct command_kill {
    uint64_t command;
    size_t count;
};

static bool kill_if_of_command(const struct procfs_stat *s, void *arg)
{
    struct command_kill *k = arg;

    if (s->pid != 1 && s->state != 'Z' && procfs_file_locks_limit(s->pid) == k->command &&
        kill(s->pid, SIGKILL) == 0)
        k->count++;
    return true;
}

static void kill_command(uint64_t command)
{
    for (int round = 0; round < KILL_ROUNDS_MAX; round++) {
        struct command_kill k = {command, 0};

        if (procfs_each(kill_if_of_command, &k) < 0 || k.count == 0)
            return;
    }
}

int proc_signal(struct proc *p, int sig)
{
    p->stopping = true;
    /* A group lives as long as a member of it, and its number is not given to another while it
     * does: the command is one until it is reaped. A process that changed its group is reached by
     * its pid. */
    if (!p->reaped)
        kill(-p->group, sig);
    if (!p->reaped && kill(p->pid, sig) < 0 && errno != ESRCH)
        return -errno;
    if (sig == SIGKILL)
        kill_command(p->command);
    proc_check_end(p);
    return 0;
}
