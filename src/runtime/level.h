#pragma once
/* The functions of the levels, for the table in level.c. A level that is not there has those of
 * absent.c, which refuse everything, and a probe of its own. Private to the runtime. */

#include "runtime/runtime.h"
#include "runtime/task.h"

/* A level's functions, as struct runtime_driver says what each does. */
#define RUNTIME_DECLARE_LEVEL(p)                                                                   \
    int p##_slot_begin(struct runtime *rt, uint32_t number, uint32_t gen, struct task *out);       \
    int p##_slot_finish(struct runtime *rt, struct task *t, struct runtime_slot *out,              \
                        uint32_t *stage);                                                          \
    void p##_slot_close(struct runtime_slot *s);                                                   \
    int p##_start_begin(struct runtime *rt, const struct runtime_slot *slot,                       \
                        const struct runtime_start *start, struct task *out, int *boot_fd);        \
    int p##_start_finish(struct runtime *rt, struct task *t, struct runtime_started *out,          \
                         uint32_t *stage);                                                         \
    int p##_files_begin(struct runtime *rt, const struct runtime_sandbox *sb, pid_t pid,           \
                        const struct runtime_start *start, struct task *out);                      \
    int p##_files_finish(struct runtime *rt, struct task *t, uint32_t *stage);                     \
    int p##_claim(const struct runtime *rt, const struct runtime_sandbox *sb, int boot_fd,         \
                  const struct runtime_claim *claim);                                              \
    int p##_sockets(const struct runtime *rt, const struct runtime_sandbox *sb, int *fds,          \
                    unsigned n);                                                                   \
    int p##_listeners(const struct runtime *rt, const struct runtime_sandbox *sb,                  \
                      int fds[PRIVSEP_EGRESS_FDS]);                                                \
    int p##_stat(const struct runtime *rt, const struct runtime_sandbox *sb,                       \
                 struct runtime_stat *out);                                                        \
    int p##_resize_begin(struct runtime *rt, const struct runtime_sandbox *sb,                     \
                         const struct privsep_limits *from, const struct privsep_limits *to,       \
                         bool back, struct task *out);                                             \
    int p##_resize_finish(struct runtime *rt, struct task *t, struct runtime_resized *out);        \
    int p##_freeze(const struct runtime *rt, const struct runtime_sandbox *sb);                    \
    bool p##_is_frozen(const struct runtime *rt, const struct runtime_sandbox *sb);                \
    int p##_thaw(const struct runtime *rt, const struct runtime_sandbox *sb);                      \
    int p##_living(const struct runtime *rt, const struct runtime_sandbox *sb);                    \
    int p##_dump_begin(struct runtime *rt, const struct runtime_sandbox *sb,                       \
                       const struct runtime_image *image, const int *join_fds, int n_join_fds,     \
                       struct task *out);                                                          \
    int p##_dump_finish(struct runtime *rt, struct task *t, char why[static TASK_WHY_SIZE]);       \
    void p##_notify_resumed(const struct runtime_sandbox *sb);                                     \
    int p##_kill(const struct runtime *rt, const struct runtime_sandbox *sb);                      \
    int p##_pin(const struct runtime_sandbox *sb);                                                 \
    uint32_t p##_kill_cost(const struct privsep_limits *limits, uint32_t command_sandboxes);       \
    int p##_reap(const struct runtime_sandbox *sb, struct runtime_exit *out);                      \
    bool p##_was_oom(const struct runtime *rt, const struct runtime_sandbox *sb);                  \
    int p##_copy_begin(struct runtime *rt, const struct runtime_sandbox *sb, uint32_t number,      \
                       struct task *out);                                                          \
    int p##_copy_settle_begin(struct runtime *rt, uint32_t number, uint32_t ahead, int records_fd, \
                              struct task *out);                                                   \
    int p##_copy_finish(struct task *t);                                                           \
    int p##_end_begin(struct runtime *rt, const struct runtime_end *ends, unsigned n,              \
                      struct task *out);                                                           \
    int p##_end_finish(struct runtime *rt, struct task *t, struct runtime_end *ends, unsigned n);  \
    int p##_command_sandbox_begin(struct runtime *rt, const struct runtime_sandbox *sb,            \
                                  uint32_t open_files, struct task *out, int *boot_fd);            \
    int p##_command_sandbox_finish(struct runtime *rt, struct task *t,                             \
                                   struct runtime_started *out, uint32_t *stage);                  \
    int p##_command_sandbox_kill(const struct runtime_sandbox *command_sandbox);                   \
    uint32_t p##_command_sandboxes_kill(const struct runtime *rt, uint32_t slot);                  \
    void p##_command_sandboxes_kill_unfinished(const struct runtime *rt, uint32_t slot);           \
    int p##_program_pids(const struct runtime *rt, uint32_t slot, pid_t *pids, int max);           \
    int p##_program_signal(const struct runtime *rt, uint32_t slot, pid_t pid, int signal);        \
    void p##_notify_locks(const struct runtime *rt, uint32_t slot);                                \
    int p##_adopt(const struct runtime *rt, uint32_t slot, pid_t pid, int *pidfd)

/* slot.c, process.c, process_live.c, process_copy.c, process_resize.c, observe.c,
 * command_sandbox.c */
RUNTIME_DECLARE_LEVEL(process);
int process_probe(struct runtime *rt, char *why, size_t why_size);

/* absent.c */
RUNTIME_DECLARE_LEVEL(absent);
