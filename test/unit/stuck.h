#pragma once
/* A file system that does not answer (FUSE), in a mount namespace that the test's process enters: a process that looks up
 * stuck->path there cannot be killed until it is answered. As root. */

#include <sys/types.h>

struct stuck {
    pid_t server;
    int sock; /* to the server */
    char dir[32], path[48];
};

/* 0, or -errno: -ENOENT or -ENODEV where the kernel has no FUSE. */
int stuck_begin(struct stuck *s);

/* Until a process looks up s->path, and so cannot be killed. */
void stuck_await(const struct stuck *s);

/* Answers that there is no such file, and all that come later. */
void stuck_answer(const struct stuck *s);

void stuck_end(struct stuck *s);
