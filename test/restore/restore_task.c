/* restore_task UID TEMPLATE LAYER VIEW IMAGE AGENT CHECKPOINT HOST: a slot of UID's and on it the
 * sandbox of that image, as a task of privd will make it: cay-privd has no request for it yet. As
 * root, in privd's mount namespace. VIEW may be "-". When PID 1 is there it writes "P <pid>", and
 * ends it at the end of standard input. On failure it writes where. */

#include "base/io.h"
#include "contract/agent_boot.h"
#include "contract/checkpoint_boot.h"
#include "contract/proto.h"
#include "runtime/memory_image.h"
#include "runtime/process_go_on.h"
#include "runtime/restore.h"
#include "runtime/slot.h"
#include "runtime/stage.h"
#include "runtime/state.h"
#include "sys/fdpass.h"
#include "sys/mnt.h"
#include "sys/ns.h"
#include "sys/pid.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECONDS "60"

static long must(const char *what, long value)
{
    if (value >= 0)
        return value;
    printf("F %s: %s\n", what, strerror(value == -1 ? errno : (int)-value));
    exit(1);
}
#define MUST(call) must(#call, (long)(call))
#define FD(call)   ((int)MUST(call))

/* The two namespaces of a slot, as slot.c makes them. */
static void make_slot(uint32_t uid, int *userns_fd, int *netns_fd)
{
    int pair[2];
    char byte = 'g';

    MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
    pid_t pid = process_fork_owned(uid, CLONE_NEWNET, SIGCHLD, NULL);
    if (pid == 0) {
        bool made = read(pair[1], &byte, 1) == 1 && process_set_up_network(NFT_RATE_SANDBOX) == 0;
        _exit(!made || write(pair[1], &byte, 1) != 1);
    }
    MUST(pid);
    MUST(ns_write_maps(pid, uid, RUNTIME_UID_COUNT));
    *userns_fd = FD(ns_open(pid, "user"));
    *netns_fd = FD(ns_open(pid, "net"));
    MUST(write(pair[0], &byte, 1));
    close(pair[1]);
    MUST(read(pair[0], &byte, 1) == 1 ? 0 : -EIO);
    MUST(waitpid(pid, NULL, 0));
}

static void open_trees(struct inside *in, uint32_t uid, char **paths, int userns_fd)
{
    int dir = FD(open(paths[0], O_PATH | O_DIRECTORY | O_CLOEXEC));

    in->lower_fd = FD(mnt_clone_idmapped(dir, "rootfs", RUNTIME_LOWER_ATTR, userns_fd));
    in->mask_fd = mnt_clone_idmapped(dir, "usrmask", RUNTIME_LOWER_ATTR, userns_fd);
    if (in->mask_fd >= 0)
        in->usr_fd = FD(mnt_clone_idmapped(AT_FDCWD, "/usr", RUNTIME_LOWER_ATTR, userns_fd));
    in->upper_fd = FD(mnt_clone_idmapped(
        AT_FDCWD, paths[1], MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME, userns_fd));
    if (strcmp(paths[2], "-") != 0)
        in->view_fd = FD(mnt_clone_idmapped(AT_FDCWD, paths[2], RUNTIME_LOWER_ATTR, userns_fd));
    in->stage_fd = FD(stage_make(uid, in->start->limits.memory_bytes));
}

/* As that of a sandbox is: a memory file. */
static int open_agent(const char *path, uint32_t uid)
{
    int from = FD(open(path, O_RDONLY | O_CLOEXEC));
    int fd = FD(memfd_create("cay-init", MFD_CLOEXEC));

    while (MUST(sendfile(fd, from, NULL, 1u << 20)) > 0)
        ;
    MUST(fchown(fd, uid, uid));
    MUST(fchmod(fd, 0111));
    close(from);
    return fd;
}

/* For a control: a process of those that were made is not there any more, when CRIU goes on. */
static void kill_child_of(int pidfd)
{
    char path[64], text[512] = "";
    int pid = -1;

    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
    MUST(io_read_text_at(AT_FDCWD, path, text, sizeof(text)));
    MUST(sscanf(strstr(text, "\nPid:"), "\nPid: %d", &pid) == 1 ? 0 : -ESRCH);
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pid, pid);
    MUST(io_read_text_at(AT_FDCWD, path, text, sizeof(text)));
    pid = atoi(text);
    MUST(pid > 1 ? kill(pid, SIGKILL) : -ESRCH);
}

/* Answers what cay-checkpoint asks, but the last: all stand still then. PID 1, or -1: it has ended
 * before, or is not wanted. */
static int await_pid_1(int listener_sock, int ask_sock, const int image_fds[static 2],
                       int *listener_fd)
{
    char text[8] = "";
    int pidfd = -1;
    size_t n = 0;

    while (fdpass_recv(ask_sock, text, sizeof(text) - 1, pidfd < 0 ? &pidfd : NULL, pidfd < 0, &n,
                       0) > 0) {
        if (strcmp(text, CHECKPOINT_DONE) == 0 && getenv("CAY_TEST_UNWANTED"))
            return shutdown(ask_sock, SHUT_RDWR) - 1;
        if (strcmp(text, CHECKPOINT_DONE) == 0)
            return pidfd;
        if (strcmp(text, CHECKPOINT_MADE) == 0) {
            MUST(fdpass_recv(listener_sock, text, sizeof(text), listener_fd, 1, &n, MSG_DONTWAIT));
            MUST(n == 1 ? 0 : -EBADMSG);
            if (getenv("CAY_TEST_KILL_CHILD"))
                kill_child_of(pidfd);
        }
        bool of_image = strcmp(text, CHECKPOINT_IMAGE) == 0;
        MUST(fdpass_send(ask_sock, (const char[]){CHECKPOINT_GO}, 1, image_fds, of_image ? 2 : 0,
                         0));
        memset(text, 0, sizeof(text));
    }
    if (pidfd >= 0)
        MUST(pid_kill(pidfd, SIGKILL)); /* what CRIU has left */
    return -1;
}

/* The processes stand still until their claim is there. */
static void go_on(const struct restore_context *context, const struct filter *filter, int ask_sock,
                  int boot_fd, int listener_fd)
{
    const struct agent_boot boot = {
        .version = AGENT_BOOT_VERSION,
        .open_files = 1024,
        .netlink_pass = {filter->netlink_pass[0], filter->netlink_pass[1]}};
    const struct agent_claim claim = {.id = "irestored"};
    const struct go_on_files files = {.listener_fd = listener_fd, .oom_fd = -1};
    char said = 0;

    MUST(process_go_on_new(context->netns_fd, context->boot_fd, &files));
    close(context->boot_fd);
    MUST(write(boot_fd, &boot, sizeof(boot)));
    MUST(write(boot_fd, &claim, sizeof(claim)));
    MUST(write(ask_sock, (const char[]){CHECKPOINT_GO}, 1));
    MUST(read(boot_fd, &said, 1));
    MUST(said == AGENT_READY ? 0 : -EBADMSG);
}

static void hold(int pidfd)
{
    char byte, path[48], text[512];

    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
    FILE *in = fopen(path, "re");
    while (in && fgets(text, sizeof(text), in))
        if (strncmp(text, "Pid:", 4) == 0)
            printf("P %s", text + 5);
    if (in)
        fclose(in);
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    MUST(pid_kill(pidfd, SIGKILL));
    MUST(pid_await_end(pidfd, 10000) ? 0 : -ETIMEDOUT);
}

int main(int argc, char **argv)
{
    static struct filter filter;
    const struct runtime_start start = {
        .kept = 1, .limits = {.memory_bytes = 512u << 20, .disk_bytes = 1u << 30}};
    struct inside in = inside_new(&start);
    struct restore_context context = {.seconds = SECONDS};
    int listener[2], ask[2], boot[2], listener_fd;

    if (argc != 9)
        return 2;
    uint32_t uid = (uint32_t)strtoul(argv[1], NULL, 10);
    in.filter = &filter;
    MUST(filter_build(AGENT_UID, false, &filter));
    make_slot(uid, &context.userns_fd, &context.netns_fd);
    open_trees(&in, uid, argv + 2, context.userns_fd);
    MUST(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, listener));
    MUST(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ask));
    MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, boot));
    context.boot_fd = boot[1];
    context.listener_fd = listener[1];
    context.request_fd = ask[1];
    const int image_fds[] = {FD(open(argv[5], O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
                             open_agent(argv[6], uid)};
    context.work_fd = FD(memory_image_dir(uid, 0));
    context.program_fd = FD(open(argv[7], O_PATH | O_CLOEXEC));
    context.host_name = argv[8];
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        must("restore_exec", restore_exec(&in, &context));
        _exit(1);
    }
    close(listener[1]);
    close(ask[1]);
    int status, pidfd = await_pid_1(listener[0], ask[0], image_fds, &listener_fd);
    if (pidfd >= 0)
        go_on(&context, &filter, ask[0], boot[0], listener_fd);
    MUST(waitpid(pid, &status, 0));
    if (pidfd >= 0)
        hold(pidfd);
    return pidfd < 0 || status != 0;
}
