/* The word of a task to the cay-init of a sandbox that was restored and stands still: with a socket
 * like its own. With real sandboxes: test_dump_agent.py in test/scenario. */
#include "base/clock.h"
#include "contract/agent_go_on.h"
#include "runtime/process_go_on.h"
#include "skip.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

static const struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "\0" AGENT_GO_ON_NAME};
static const socklen_t name_size = offsetof(struct sockaddr_un, sun_path) +
                                   sizeof(AGENT_GO_ON_NAME);

static void room_and_then_none(void)
{
    const struct go_on_files files = {.listener_fd = -1, .oom_fd = -1};
    int net = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), pair[2];
    int door = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    uint64_t begun_ms = clock_mono_ms();

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_int_equal(process_go_on_new(net, pair[0], &files), -ECONNREFUSED);
    assert_int_equal(bind(door, (const struct sockaddr *)&name, name_size), 0);
    assert_int_equal(listen(door, 1), 0);
    assert_int_equal(process_go_on_new(net, pair[0], &files), 0); /* it waits there */
    assert_int_equal(process_go_on_new(net, pair[0], &files), 0);
    assert_int_equal(process_go_on_new(net, pair[0], &files), -EIO);
    assert_true(clock_mono_ms() - begun_ms < 5000);
}

static void a_full_queue_is_told_at_once(void **state)
{
    int status;

    NEEDS_ROOT;
    pid_t pid = fork();
    if (pid == 0) {
        if (unshare(CLONE_NEWNET) < 0)
            _exit(1);
        room_and_then_none();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_queue_is_told_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
