#pragma once
/* Whether the files that CRIU is about to restore from are all there. */

#include "checkpoint/checkpoint.h"

#include <stddef.h>

#define CRIU_IMAGE_PROCESSES_MAX 65536
#define CRIU_IMAGE_FILE_MAX      (8u * 1024u * 1024u)   /* of those that are read here, but for */
#define CRIU_IMAGE_FILES_MAX     (128u * 1024u * 1024u) /* the list of open files */
#define CRIU_IMAGE_MAGIC_FILES   0x56303138u

/* The tree of processes in dir_fd has a PID 1, and each process its memory and registers, each
 * thread its registers. CRIU itself takes a process without a file of its memory for one without
 * memory, and says that it restored it. 0; -EBADMSG with *why; -errno with *why. */
int criu_image_check(int dir_fd, struct checkpoint_why *why);

/* Calls each(arg, message, bytes) for the messages of a file of the image until it answers other
 * than 0, which is the answer then. 0; -EBADMSG: the file is not whole, of that kind, or is longer
 * than CRIU_IMAGE_FILES_MAX; -errno. */
int criu_image_each(int dir_fd, const char *name, uint32_t magic,
                    int (*each)(void *arg, const uint8_t *message, size_t n), void *arg);

/* A field of a message of protobuf's. */
struct criu_image_field {
    uint32_t number;
    uint64_t value;       /* of one that is a number */
    const uint8_t *bytes; /* of one that is bytes or a message; else NULL */
    size_t n;
};

/* Takes the first field of *at, which has *n bytes, and goes on behind it. 1; 0: there is none;
 * -EBADMSG. */
int criu_image_next_field(const uint8_t **at, size_t *n, struct criu_image_field *out);
