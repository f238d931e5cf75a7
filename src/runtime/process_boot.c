#include "runtime/process_boot.h"

#include "base/io.h"
#include "base/test_bypass.h"
#include "contract/agent_boot.h"
#include "runtime/inside.h"
#include "runtime/slot.h"
#include "runtime/state.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

int process_write_boot(const struct process_boot *b, const struct inside *in, uint32_t open_files,
                       uint32_t filters)
{
    struct agent_boot boot = {
        .version = AGENT_BOOT_VERSION,
        .cgroup_fds = (uint32_t)in->n_cgroup_fds,
        .open_files = open_files,
        .child_caps = runtime_child_caps(),
        .command_sandbox = in->command_sandbox,
        .netlink_pass = {in->filter->netlink_pass[0], in->filter->netlink_pass[1]},
        .filters = filters,
        .oom_fd = in->oom_fd >= 0,
    };
#ifdef CAY_TEST_SWITCHES
    boot.flags = test_bypass_bits;
#endif
    return io_write_full(b->own_fd, &boot, sizeof(boot)); /* fits the socket's buffer */
}

/* End of file: exec has closed it. */
int process_await_exec(int status_fd, struct task_result *out)
{
    struct inside_failure failure;
    int rc = io_read_full(status_fd, &failure, sizeof(failure));
    return rc == 0 ? process_fail(out, (enum privsep_stage)failure.stage, failure.status) : 0;
}

int process_ends_open(struct process_ends *e)
{
    int pair[2];

    if (pipe2(pair, O_CLOEXEC) < 0)
        return -errno;
    e->status_fd = pair[0];
    e->status_end = pair[1];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    e->sock = pair[0];
    e->sock_end = pair[1];
    return 0;
}

void process_ends_close(struct process_ends *e)
{
    util_close(&e->status_fd);
    util_close(&e->status_end);
    util_close(&e->sock);
    util_close(&e->sock_end);
}

int process_begin(int (*run)(void *args, struct task_result *out), void *args,
                  struct process_boot *boot, struct task *out, int *boot_fd)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    *boot = (struct process_boot){.agent_fd = pair[1], .own_fd = pair[0]};
    int rc = task_spawn(run, args, out);
    close(pair[1]);
    /* After the fork, but the flag belongs to the shared open file: what the task writes is 32
     * bytes into an empty buffer, which blocks neither way. */
    if (rc == 0)
        rc = io_set_nonblock(pair[0], true);
    if (rc < 0) {
        close(pair[0]);
        return rc;
    }
    *boot_fd = pair[0];
    return 0;
}
