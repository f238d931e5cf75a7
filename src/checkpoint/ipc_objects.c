/* Both are looked at from inside the namespace: the kernel shows a reader of /proc/sysvipc, and one
 * who mounts mqueue, the objects of its own. A child enters it, since CRIU leaves alone every
 * namespace that it is in itself, and since nothing leads back to the host's. */

#include "checkpoint/ipc_objects.h"

#include "base/io.h"
#include "sys/mnt.h"
#include "sys/ns.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHARED_MEMORY "/proc/sysvipc/shm"
#define STATUS_MAX    8192

/* The kernel tells the creator's number in the reader's pid namespace, which is the host's, where
 * it may be another's by now: /proc shows this process those of the sandbox alone. */
static void name_creator(int pid, char *out, size_t size)
{
    char path[32], status[STATUS_MAX];

    snprintf(path, sizeof(path), "/proc/%d/status", pid);
    const char *line = io_read_text_at(AT_FDCWD, path, status, sizeof(status)) < 0
                           ? NULL
                           : strstr(status, "\nNSpid:\t");
    if (!line) {
        snprintf(out, size, "a process that has ended");
        return;
    }
    int length = (int)strcspn(++line, "\n"), at = length;
    while (at > 0 && isdigit((unsigned char)line[at - 1]))
        at--;
    snprintf(out, size, "process %.*s", length - at, line + at);
}

/* "key shmid perms size cpid lpid nattch ..." */
int ipc_objects_of_line(const char *line, struct checkpoint_why *why)
{
    int key, id, pid;
    unsigned mode;
    unsigned long bytes;
    char creator[48];

    if (sscanf(line, "%d %d %o %lu %d", &key, &id, &mode, &bytes, &pid) != 5)
        return 0;
    name_creator(pid, creator, sizeof(creator));
    if (mode & SHM_DEST)
        return checkpoint_fail(why, -EOPNOTSUPP,
                               "System V shared memory cannot be kept: id %d, removed and still "
                               "attached, %lu bytes, made by %s",
                               id, bytes, creator);
    return checkpoint_fail(why, -EOPNOTSUPP,
                           "System V shared memory cannot be kept: id %d, key 0x%08x, %lu bytes, "
                           "made by %s; ipcrm -m %d removes it",
                           id, (unsigned)key, bytes, creator, id);
}

/* Without a first line there is none, and without the file none can be made. */
static int check_shared_memory(struct checkpoint_why *why)
{
    char line[512];
    int rc = 0;

    FILE *in = fopen(SHARED_MEMORY, "re");
    if (!in)
        return errno == ENOENT
                   ? 0
                   : checkpoint_fail(why, -errno, SHARED_MEMORY ": %s", strerror(errno));
    while (rc == 0 && fgets(line, sizeof(line), in))
        rc = ipc_objects_of_line(line, why);
    if (rc == 0 && ferror(in))
        rc = checkpoint_fail(why, -EIO, "reading " SHARED_MEMORY);
    fclose(in);
    return rc;
}

struct queues {
    int rc;
    struct checkpoint_why *why;
};

/* Its name is the tenant's. */
static bool refuse_queue(void *arg, const char *name)
{
    struct queues *q = arg;

    q->rc = checkpoint_fail(q->why, -EOPNOTSUPP,
                            "the POSIX message queue /%.80s cannot be kept; mq_unlink removes it",
                            name);
    for (char *c = q->why->text; *c; c++)
        if (!isprint((unsigned char)*c))
            *c = '?';
    return false;
}

static int check_queues(struct checkpoint_why *why)
{
    static const struct mnt_option none = {0};
    struct queues q = {.why = why};
    CLEANUP_CLOSE int fd = mnt_new("mqueue", &none,
                                   MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);

    if (fd == -ENODEV)
        return 0; /* a kernel without them */
    int rc = fd < 0 ? fd : io_each_name_at(fd, ".", refuse_queue, &q);
    if (rc < 0)
        return checkpoint_fail(why, rc, "looking for POSIX message queues: %s", strerror(-rc));
    return q.rc;
}

static int check_inside(pid_t pid, struct checkpoint_why *why)
{
    CLEANUP_CLOSE int ns = ns_open(pid, "ipc");
    int rc = ns < 0 ? ns : ns_enter(ns, CLONE_NEWIPC);

    if (rc < 0)
        return checkpoint_fail(why, rc, "entering the sandbox's IPC namespace: %s", strerror(-rc));
    rc = check_shared_memory(why);
    return rc == 0 ? check_queues(why) : rc;
}

struct result {
    int rc;
    struct checkpoint_why why;
};

_Static_assert(sizeof(struct result) <= 4096, "a pipe takes it whole, without a reader");

NORETURN static void run_child(int out_fd, pid_t pid)
{
    struct result r = {0};

    r.rc = check_inside(pid, &r.why);
    _exit(io_write_full(out_fd, &r, sizeof(r)) < 0);
}

int ipc_objects_check(pid_t pid, struct checkpoint_why *why)
{
    struct result r;
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return checkpoint_fail(why, -errno, "looking for IPC objects: %s", strerror(errno));
    pid_t child = fork();
    if (child == 0)
        run_child(ends[1], pid);
    int rc = child < 0 ? -errno : 0;
    util_close(&ends[1]);
    if (rc == 0)
        rc = io_read_full(ends[0], &r, sizeof(r));
    util_close(&ends[0]);
    if (child > 0 && waitpid(child, NULL, 0) != child)
        rc = -ECHILD;
    if (rc < 0)
        return checkpoint_fail(why, rc, "looking for IPC objects: %s", strerror(-rc));
    if (r.rc < 0)
        *why = r.why;
    return r.rc;
}
