/* The files of an image are in memory while cay-checkpoint and cay-seal work on them, one after the
 * other; the sealed file alone stays. This code never reads either. */

#include "runtime/memory_image.h"

#include "base/exchange_key.h"
#include "base/ids.h"
#include "base/io.h"
#include "runtime/state.h"
#include "sys/ns.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#define KEY_NAME        "seal.key"
#define FORM            "cay memory 1" /* sealed with it: files that this version can restore */
#define FD_FIRST        3
#define HIGH_FD         100                       /* above every number that such a program gets */
#define IMAGE_OWN_BYTES (64ull * 1024 * 1024)     /* of an image beside the memory itself */
#define FILES_MAX       "65600"                   /* seal/pack.h, and the directory */
#define SEAL_EXTRA      (RUNTIME_UID_COUNT * 16u) /* tags, 16 of 65,536 bytes: of one TiB */
#define TEXT_SIZE       256
#define NUMBER_SIZE     24

uint64_t memory_image_file_max(uint64_t memory_bytes)
{
    return memory_bytes + RUNTIME_RESERVE_MEMORY_BYTES + IMAGE_OWN_BYTES;
}

int memory_image_mount(uint32_t uid, uint64_t memory_bytes)
{
    char size[NUMBER_SIZE];

    snprintf(size, sizeof(size), "%llu", (unsigned long long)memory_image_file_max(memory_bytes));
    const struct mnt_option options[] = {
        {"mode", "0700"}, {"size", size}, {"nr_inodes", FILES_MAX}, {NULL, NULL}};
    CLEANUP_CLOSE int fd = mnt_new_memory(options,
                                          MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);

    if (fd >= 0 && fchownat(fd, "", uid, uid, AT_EMPTY_PATH) < 0)
        return -errno;
    return TAKE_FD(fd);
}

int memory_image_dir(uint32_t uid, uint64_t memory_bytes)
{
    CLEANUP_CLOSE int fd = memory_image_mount(uid, memory_bytes);
    int dir = fd < 0 ? fd : openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return dir < 0 && fd >= 0 ? -errno : dir;
}

/* --- the key ---------------------------------------------------------------------------------- */

static int read_key(const struct runtime *rt, uint8_t key[static SEAL_KEY_BYTES])
{
    struct stat st;
    CLEANUP_CLOSE int fd = mnt_open_beneath(rt->state_fd, KEY_NAME, O_RDONLY, 0);

    if (fd < 0)
        return fd;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_uid != 0 || (st.st_mode & 077) ||
        st.st_size != SEAL_KEY_BYTES)
        return -EPERM;
    return io_read_full(fd, key, SEAL_KEY_BYTES);
}

/* Of several tasks that make one at a time one succeeds, and the others read it. */
static int take_key(const struct runtime *rt, uint8_t key[static SEAL_KEY_BYTES])
{
    uint8_t fresh[SEAL_KEY_BYTES];
    int rc = read_key(rt, key);

    if (rc != -ENOENT)
        return rc;
    if (getrandom(fresh, sizeof(fresh), 0) != (ssize_t)sizeof(fresh))
        return -EIO;
    rc = io_create_file_at(rt->state_fd, KEY_NAME, fresh, sizeof(fresh), 0600);
    explicit_bzero(fresh, sizeof(fresh));
    return rc == 0 || rc == -EEXIST ? read_key(rt, key) : rc;
}

int memory_image_secret(const struct runtime *rt, const struct runtime_image *image,
                        struct seal_secret *out)
{
    struct utsname host;

    memset(out, 0, sizeof(*out));
    if (uname(&host) < 0)
        return -errno;
    snprintf((char *)out->label, sizeof(out->label) - sizeof(image->owner), "%s %u %lld %.64s",
             FORM, image->template_number, (long long)image->template_made_ms, host.release);
    memcpy(out->label + sizeof(out->label) - sizeof(image->owner), image->owner,
           sizeof(image->owner));
    return take_key(rt, out->key);
}

/* --- programs --------------------------------------------------------------------------------- */

int memory_image_move(const int *join_fds, int n, pid_t pid)
{
    char text[NUMBER_SIZE];

    snprintf(text, sizeof(text), "%d", (int)pid);
    for (int i = 0; i < n; i++)
        if (write(join_fds[i], text, strlen(text)) < 0)
            return -errno;
    return 0;
}

int memory_image_join(const int *join_fds, int n)
{
    return memory_image_move(join_fds, n, 0);
}

NORETURN static void become(const char *path, const char *const *argv, const int *fds, unsigned n,
                            int out_fd)
{
    static const char *const envp[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC), high[8];

    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (null < 0 || n > ARRAY_SIZE(high))
        _exit(126);
    for (unsigned i = 0; i < n; i++)
        if ((high[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, HIGH_FD)) < 0)
            _exit(126);
    if ((out_fd = fcntl(out_fd, F_DUPFD_CLOEXEC, HIGH_FD)) < 0 || dup2(null, 0) < 0 ||
        dup2(out_fd, 1) < 0 || dup2(null, 2) < 0)
        _exit(126);
    for (unsigned i = 0; i < n; i++)
        if (dup2(high[i], FD_FIRST + (int)i) < 0)
            _exit(126);
    if (close_range(FD_FIRST + n, ~0U, CLOSE_RANGE_CLOEXEC) < 0 || chdir("/") < 0)
        _exit(126);
    execve(path, (char *const *)argv, (char *const *)envp);
    _exit(127);
}

int memory_image_start(const char *path, const char *const *argv, const int *fds, unsigned n,
                       struct image_program *out)
{
    int pipes[2];

    if (pipe2(pipes, O_CLOEXEC) < 0)
        return -errno;
    pid_t pid = ns_fork(0, SIGCHLD, NULL);
    if (pid == 0)
        become(path, argv, fds, n, pipes[1]);
    close(pipes[1]);
    if (pid < 0) {
        close(pipes[0]);
        return pid;
    }
    *out = (struct image_program){.pid = pid, .out_fd = pipes[0]};
    return 0;
}

int memory_image_reason(const char *line, char why[static TASK_WHY_SIZE])
{
    char *rest;
    unsigned long n = line[0] == 'E' && line[1] == ' ' ? strtoul(line + 2, &rest, 10) : 0;

    if (n == 0 || n >= 4096 || *rest != ' ')
        return -EIO;
    snprintf(why, TASK_WHY_SIZE, "%.*s", (int)strcspn(rest + 1, "\n"), rest + 1);
    for (char *c = why; *c; c++)
        if (!isprint((unsigned char)*c))
            *c = '?';
    return -(int)n;
}

int memory_image_end(struct image_program *p, char why[static TASK_WHY_SIZE])
{
    char text[TEXT_SIZE] = "", rest[TEXT_SIZE];
    size_t n = 0;
    ssize_t got;
    int status;

    while (n < sizeof(text) - 1 &&
           (got = io_read_some(p->out_fd, text + n, sizeof(text) - 1 - n)) > 0)
        n += (size_t)got;
    while (io_read_some(p->out_fd, rest, sizeof(rest)) > 0)
        ;
    util_close(&p->out_fd);
    if (waitpid(p->pid, &status, 0) != p->pid)
        return -ECHILD;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    snprintf(why, TASK_WHY_SIZE, "a program of cay's ended with status %#x", (unsigned)status);
    return WIFEXITED(status) ? memory_image_reason(text, why) : -ECHILD;
}

/* Overwrites the secret. */
static int send_secret(struct seal_secret *secret, int *read_fd)
{
    int pipes[2], rc;

    rc = pipe2(pipes, O_CLOEXEC) < 0 ? -errno : 0;
    if (rc == 0) { /* it fits a pipe */
        rc = io_write_full(pipes[1], secret, sizeof(*secret));
        close(pipes[1]);
        *read_fd = pipes[0];
    }
    explicit_bzero(secret, sizeof(*secret));
    return rc;
}

static int start_seal(const struct runtime *rt, const char *what, uint32_t uid, uint64_t file_max,
                      const int fds[3], struct image_program *out)
{
    char uid_text[NUMBER_SIZE], most[NUMBER_SIZE];
    const char *const argv[] = {"cay-seal", what, uid_text, most, NULL};

    snprintf(uid_text, sizeof(uid_text), "%u", uid);
    snprintf(most, sizeof(most), "%llu", (unsigned long long)file_max);
    return memory_image_start(rt->seal_path, argv, fds, 3, out);
}

/* Overwrites the secret. */
static int sign_with(const struct runtime *rt, struct seal_secret *secret, const char *what,
                     uint32_t uid, int dir_fd, int file_fd, uint64_t file_max,
                     char why[static TASK_WHY_SIZE])
{
    CLEANUP_CLOSE int secret_fd = -1;
    int rc = send_secret(secret, &secret_fd);
    const int fds[] = {secret_fd, dir_fd, file_fd};
    struct image_program program = {.pid = -1, .out_fd = -1};

    if (rc == 0)
        rc = start_seal(rt, what, uid, file_max, fds, &program);
    return rc < 0 ? rc : memory_image_end(&program, why);
}

int memory_image_sign(const struct runtime *rt, const char *what, const char *form, uint32_t uid,
                      int dir_fd, int file_fd, uint64_t file_max, char why[static TASK_WHY_SIZE])
{
    struct seal_secret secret = {.key = {0}};
    int rc = take_key(rt, secret.key);

    snprintf((char *)secret.label, sizeof(secret.label), "%s", form);
    if (rc < 0) {
        snprintf(why, TASK_WHY_SIZE, "the key of archives: %s", strerror(-rc));
        return rc;
    }
    return sign_with(rt, &secret, what, uid, dir_fd, file_fd, file_max, why);
}

/* --- the operator's key ----------------------------------------------------------------------- */

_Static_assert(EXCHANGE_KEY_BYTES == SEAL_KEY_BYTES, "the operator's key is one of these");

/* As other files of the operator's, the key is read at each use: one that is replaced is seen. */
int memory_image_sign_exchange(const struct runtime *rt, const char *what, const char *path,
                               uint32_t uid, int dir_fd, int file_fd, uint64_t file_max,
                               char why[static TASK_WHY_SIZE])
{
    struct seal_secret secret = {.key = {0}};
    const char *wrong = path ? exchange_key_read(path, secret.key) : NULL;
    int rc = path ? 0 : take_key(rt, secret.key);

    snprintf((char *)secret.label, sizeof(secret.label), "cay exchange 1");
    if (wrong)
        snprintf(why, TASK_WHY_SIZE, "the file of [snapshots] exchange_key: %s", wrong);
    else if (rc < 0)
        snprintf(why, TASK_WHY_SIZE, "the key of archives: %s", strerror(-rc));
    if (wrong || rc < 0) {
        explicit_bzero(&secret, sizeof(secret));
        return wrong ? -EACCES : rc;
    }
    return sign_with(rt, &secret, what, uid, dir_fd, file_fd, file_max, why);
}

int memory_image_seal_begin(const struct runtime *rt, const char *what, uint32_t uid, int dir_fd,
                            int file_fd, const struct runtime_image *image,
                            struct image_program *out, char why[static TASK_WHY_SIZE])
{
    struct seal_secret secret;
    CLEANUP_CLOSE int secret_fd = -1;
    int rc = memory_image_secret(rt, image, &secret);

    if (rc == 0)
        rc = send_secret(&secret, &secret_fd);
    if (rc < 0) {
        snprintf(why, TASK_WHY_SIZE, "the key of memory images: %s", strerror(-rc));
        return rc;
    }
    const int fds[] = {secret_fd, dir_fd, file_fd};
    return start_seal(rt, what, uid, 2 * memory_image_file_max(image->memory_bytes) + SEAL_EXTRA,
                      fds, out);
}

int memory_image_seal(const struct runtime *rt, const char *what, uint32_t uid, int dir_fd,
                      int file_fd, const struct runtime_image *image,
                      char why[static TASK_WHY_SIZE])
{
    struct image_program program = {.pid = -1, .out_fd = -1};
    int rc = memory_image_seal_begin(rt, what, uid, dir_fd, file_fd, image, &program, why);

    return rc < 0 ? rc : memory_image_end(&program, why);
}
