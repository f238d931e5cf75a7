/* A level that this build does not have: every function refuses, so that a caller that never asked
 * probe does nothing. Nothing of such a sandbox exists: there is nothing to kill, reap or
 * remove. */

#include "runtime/level.h"

#include <errno.h>

int absent_slot_begin(struct runtime *rt, uint32_t number, uint32_t gen, struct task *out)
{
    return -EOPNOTSUPP;
}

int absent_slot_finish(struct runtime *rt, struct task *t, struct runtime_slot *out,
                       uint32_t *stage)
{
    return -EOPNOTSUPP;
}

void absent_slot_close(struct runtime_slot *s)
{
}

int absent_start_begin(struct runtime *rt, const struct runtime_slot *slot,
                       const struct runtime_start *start, struct task *out, int *boot_fd)
{
    return -EOPNOTSUPP;
}

int absent_start_finish(struct runtime *rt, struct task *t, struct runtime_started *out,
                        uint32_t *stage)
{
    return -EOPNOTSUPP;
}

int absent_files_begin(struct runtime *rt, const struct runtime_sandbox *sb, pid_t pid,
                       const struct runtime_start *start, struct task *out)
{
    return -EOPNOTSUPP;
}

int absent_files_finish(struct runtime *rt, struct task *t, uint32_t *stage)
{
    return -EOPNOTSUPP;
}

int absent_claim(const struct runtime *rt, const struct runtime_sandbox *sb, int boot_fd,
                 const struct runtime_claim *claim)
{
    return -EOPNOTSUPP;
}

int absent_sockets(const struct runtime *rt, const struct runtime_sandbox *sb, int *fds, unsigned n)
{
    return -EOPNOTSUPP;
}

int absent_listeners(const struct runtime *rt, const struct runtime_sandbox *sb,
                     int fds[PRIVSEP_EGRESS_FDS])
{
    return -EOPNOTSUPP;
}

int absent_stat(const struct runtime *rt, const struct runtime_sandbox *sb,
                struct runtime_stat *out)
{
    return -EOPNOTSUPP;
}

int absent_resize_begin(struct runtime *rt, const struct runtime_sandbox *sb,
                        const struct privsep_limits *from, const struct privsep_limits *to,
                        bool back, struct task *out)
{
    return -EOPNOTSUPP;
}

int absent_resize_finish(struct runtime *rt, struct task *t, struct runtime_resized *out)
{
    return -EOPNOTSUPP;
}

int absent_freeze(const struct runtime *rt, const struct runtime_sandbox *sb)
{
    return -EOPNOTSUPP;
}

bool absent_is_frozen(const struct runtime *rt, const struct runtime_sandbox *sb)
{
    return false;
}

int absent_thaw(const struct runtime *rt, const struct runtime_sandbox *sb)
{
    return -EOPNOTSUPP;
}

int absent_living(const struct runtime *rt, const struct runtime_sandbox *sb)
{
    return -EOPNOTSUPP;
}

int absent_dump_begin(struct runtime *rt, const struct runtime_sandbox *sb,
                      const struct runtime_image *image, const int *join_fds, int n_join_fds,
                      struct task *out)
{
    return -EOPNOTSUPP;
}

int absent_dump_finish(struct runtime *rt, struct task *t, char why[static TASK_WHY_SIZE])
{
    return -EOPNOTSUPP;
}

void absent_notify_resumed(const struct runtime_sandbox *sb)
{
}

int absent_kill(const struct runtime *rt, const struct runtime_sandbox *sb)
{
    return -EOPNOTSUPP;
}

int absent_pin(const struct runtime_sandbox *sb)
{
    return -EOPNOTSUPP;
}

uint32_t absent_kill_cost(const struct privsep_limits *limits, uint32_t command_sandboxes)
{
    return 0;
}

int absent_reap(const struct runtime_sandbox *sb, struct runtime_exit *out)
{
    return -ECHILD;
}

bool absent_was_oom(const struct runtime *rt, const struct runtime_sandbox *sb)
{
    return false;
}

int absent_copy_begin(struct runtime *rt, const struct runtime_sandbox *sb, uint32_t number,
                      struct task *out)
{
    return -EOPNOTSUPP;
}

int absent_copy_settle_begin(struct runtime *rt, uint32_t number, uint32_t ahead, int records_fd,
                             struct task *out)
{
    return -EOPNOTSUPP;
}

int absent_copy_finish(struct task *t)
{
    return -EOPNOTSUPP;
}

int absent_end_begin(struct runtime *rt, const struct runtime_end *ends, unsigned n,
                     struct task *out)
{
    return -EOPNOTSUPP;
}

int absent_end_finish(struct runtime *rt, struct task *t, struct runtime_end *ends, unsigned n)
{
    return -EOPNOTSUPP;
}

int absent_command_sandbox_begin(struct runtime *rt, const struct runtime_sandbox *sb,
                                 uint32_t open_files, struct task *out, int *boot_fd)
{
    return -EOPNOTSUPP;
}

int absent_command_sandbox_finish(struct runtime *rt, struct task *t, struct runtime_started *out,
                                  uint32_t *stage)
{
    return -EOPNOTSUPP;
}

int absent_command_sandbox_kill(const struct runtime_sandbox *command_sandbox)
{
    return -EOPNOTSUPP;
}

uint32_t absent_command_sandboxes_kill(const struct runtime *rt, uint32_t slot)
{
    return 0;
}

void absent_command_sandboxes_kill_unfinished(const struct runtime *rt, uint32_t slot)
{
}

int absent_program_pids(const struct runtime *rt, uint32_t slot, pid_t *pids, int max)
{
    return -EOPNOTSUPP;
}

int absent_program_signal(const struct runtime *rt, uint32_t slot, pid_t pid, int signal)
{
    return -ESRCH;
}

void absent_notify_locks(const struct runtime *rt, uint32_t slot)
{
}

int absent_adopt(const struct runtime *rt, uint32_t slot, pid_t pid, int *pidfd)
{
    return -ESRCH;
}
