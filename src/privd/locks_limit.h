#pragma once
/* The limit on one sandbox's locks (locks.h): counts them, and kills what holds too many, through
 * the row of its level. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct locks_limit;
struct privd;

/* A process that was seen to call, and how often. */
struct locks_caller {
    uint32_t slot, calls;
    pid_t pid;
};

/* 0 or -ENOMEM. */
int locks_limit_new(struct privd *p, struct locks_limit **out);
void locks_limit_free(struct locks_limit *l); /* or NULL */

/* Whether it killed. grown: by how much the kernel's cache of locks grew since the last check. A
 * slot that was never used has no sandbox: false. May take END_MS for each process that it
 * kills. */
bool locks_limit_check(struct locks_limit *l, uint32_t slot, uint64_t grown,
                       const struct locks_caller *callers, size_t n_callers);
