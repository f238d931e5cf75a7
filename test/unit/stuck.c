#include "stuck.h"

#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define REQUEST_SIZE (FUSE_MIN_READ_BUFFER * 4)

static void answer(int fuse, uint64_t unique, int error, const void *body, size_t n)
{
    struct fuse_out_header head = {
        .len = (uint32_t)(sizeof(head) + n), .error = error, .unique = unique};
    struct iovec parts[] = {{&head, sizeof(head)}, {(void *)(uintptr_t)body, n}};

    if (writev(fuse, parts, 2) < 0 && errno != ENOENT)
        _exit(1);
}

static void answer_init(int fuse, uint64_t unique)
{
    const struct fuse_init_out init = {
        .major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = 4096};

    answer(fuse, unique, 0, &init, sizeof(init));
}

static void answer_attributes(int fuse, uint64_t unique)
{
    const struct fuse_attr_out out = {.attr_valid = 60,
                                      .attr = {.ino = 1, .mode = S_IFDIR | 0755, .nlink = 2}};

    answer(fuse, unique, 0, &out, sizeof(out));
}

/* The first look-up waits until the test wants it answered. */
static void hold(int sock)
{
    char byte = 0;

    if (write(sock, &byte, 1) != 1 || read(sock, &byte, 1) != 1)
        _exit(1);
}

NORETURN static void serve(int fuse, int sock)
{
    static char request[REQUEST_SIZE];
    bool held = false;
    ssize_t n;

    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    while ((n = read(fuse, request, sizeof(request))) > 0 || errno == EINTR || errno == ENOENT) {
        const struct fuse_in_header *in = (const struct fuse_in_header *)request;

        if (n < (ssize_t)sizeof(*in) || in->opcode == FUSE_FORGET)
            continue;
        if (in->opcode == FUSE_LOOKUP && !held) {
            held = true;
            hold(sock);
        }
        if (in->opcode == FUSE_INIT)
            answer_init(fuse, in->unique);
        else if (in->opcode == FUSE_GETATTR)
            answer_attributes(fuse, in->unique);
        else
            answer(fuse, in->unique, -ENOENT, NULL, 0);
    }
    _exit(0);
}

static int mount_it(struct stuck *s, int fuse)
{
    char options[80];

    snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", fuse);
    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return -errno;
    return mount("none", s->dir, "fuse", MS_NOSUID | MS_NODEV, options) < 0 ? -errno : 0;
}

int stuck_begin(struct stuck *s)
{
    int pair[2], rc;
    CLEANUP_CLOSE int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);

    if (fuse < 0)
        return -errno;
    snprintf(s->dir, sizeof(s->dir), "/tmp/cay-stuck-XXXXXX");
    if (!mkdtemp(s->dir) || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    snprintf(s->path, sizeof(s->path), "%s/x", s->dir);
    rc = mount_it(s, fuse);
    s->sock = pair[0];
    s->server = rc < 0 ? -1 : fork();
    if (s->server == 0)
        serve(fuse, pair[1]);
    close(pair[1]);
    return rc;
}

void stuck_await(const struct stuck *s)
{
    char byte;

    if (read(s->sock, &byte, 1) != 1)
        abort();
}

void stuck_answer(const struct stuck *s)
{
    if (write(s->sock, "", 1) != 1)
        abort();
}

void stuck_end(struct stuck *s)
{
    if (s->server > 0) {
        kill(s->server, SIGKILL);
        waitpid(s->server, NULL, 0);
    }
    umount2(s->dir, MNT_DETACH);
    rmdir(s->dir);
    close(s->sock);
}
