#pragma once
/* Shared by the tasks that write and read a memory image: where its files lie meanwhile, the
 * programs that work on them, and the key. Private to the runtime. */

#include "contract/seal_boot.h"
#include "runtime/runtime.h"

#define MEMORY_IMAGE_SECONDS "60" /* of cay-checkpoint */

/* Where an image's files are while it is written or read: a new, detached tmpfs of uid's alone, so
 * that no byte of it reaches the disk unsealed, and nothing is left of it when who has it ends.
 * mount: the descriptor of the mount, as mnt_new's; dir: one of its directory, with which it stays.
 * A descriptor or -errno. */
int memory_image_mount(uint32_t uid, uint64_t memory_bytes) WARN_UNUSED;
int memory_image_dir(uint32_t uid, uint64_t memory_bytes) WARN_UNUSED;

/* The most that CRIU may write into one file, and cay-seal into its own. */
uint64_t memory_image_file_max(uint64_t memory_bytes);

/* The key that is made at the first use, and whose memory of which files it is. The caller
 * overwrites it. 0 or -errno. */
int memory_image_secret(const struct runtime *rt, const struct runtime_image *image,
                        struct seal_secret *out) WARN_UNUSED;

/* In a task: moves it into a control group of its starter's, and with it all that it starts. 0 or
 * -errno. */
int memory_image_join(const int *join_fds, int n) WARN_UNUSED;

/* Another process, which has one thread and cannot end meanwhile, likewise. */
int memory_image_move(const int *join_fds, int n, pid_t pid) WARN_UNUSED;

/* A program of cay's that works on an image. */
struct image_program {
    pid_t pid;
    int out_fd; /* its output */
};

/* Starts it with fds[0..n) at the descriptors 3, 4, ... and no other; it ends with the calling
 * task. 0 or -errno. */
int memory_image_start(const char *path, const char *const *argv, const int *fds, unsigned n,
                       struct image_program *out) WARN_UNUSED;

/* Waits for its end: 0; what it says went wrong, "E <errno> <text>", as printable ASCII; -ECHILD:
 * it was killed. */
int memory_image_end(struct image_program *p, char why[static TASK_WHY_SIZE]);

/* Of such a line; any other is -EIO. */
int memory_image_reason(const char *line, char why[static TASK_WHY_SIZE]);

/* cay-seal on a file that is no memory image, to "sign" or "check" it (`what`); form, at most 32
 * bytes, is in the label instead of memory's, kernel and template. 0 or -errno and why. */
int memory_image_sign(const struct runtime *rt, const char *what, const char *form, uint32_t uid,
                      int dir_fd, int file_fd, uint64_t file_max, char why[static TASK_WHY_SIZE]);

/* The same with the operator's key, in the file of that path, for root alone to read: 32 bytes, or
 * as many in hex. path NULL: with the own one. -EACCES: it is no such file. */
int memory_image_sign_exchange(const struct runtime *rt, const char *what, const char *path,
                               uint32_t uid, int dir_fd, int file_fd, uint64_t file_max,
                               char why[static TASK_WHY_SIZE]);

/* Starts cay-seal, with which memory_image_end comes to its end, to "seal" or "open" (`what`). 0
 * or -errno and why. */
int memory_image_seal_begin(const struct runtime *rt, const char *what, uint32_t uid, int dir_fd,
                            int file_fd, const struct runtime_image *image,
                            struct image_program *out, char why[static TASK_WHY_SIZE]) WARN_UNUSED;

/* Both. 0 or -errno and why. */
int memory_image_seal(const struct runtime *rt, const char *what, uint32_t uid, int dir_fd,
                      int file_fd, const struct runtime_image *image,
                      char why[static TASK_WHY_SIZE]);
