#pragma once
/* Small things that every file uses: sizes, cleanup attributes, ownership transfer.
 *
 * Ownership is readable from one function: a variable marked with a cleanup attribute owns what it
 * holds until TAKE_PTR or TAKE_FD hands it on. Nothing here blocks but close(). */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/param.h> /* MIN, MAX: libuv includes it too, and would define them again */
#include <unistd.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#define UNUSED       __attribute__((unused))
#define PRINTF(f, a) __attribute__((format(printf, f, a)))
#define NORETURN     __attribute__((noreturn))
#define WARN_UNUSED  __attribute__((warn_unused_result))
#define CLEANUP(fn)  __attribute__((cleanup(fn)))

#define CONTAINER_OF(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

static inline void util_free_p(void *p)
{
    free(*(void **)p);
}

static inline void util_close_p(const int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

/* The holder frees or closes at the end of its scope. A descriptor that is not open is -1. */
#define CLEANUP_FREE  CLEANUP(util_free_p)
#define CLEANUP_CLOSE CLEANUP(util_close_p)

/* Hands the value on and leaves the empty value behind, so that cleanup does nothing. */
#define TAKE_PTR(p)                \
    ({                             \
        typeof(p) take_tmp_ = (p); \
        (p) = NULL;                \
        take_tmp_;                 \
    })
#define TAKE_FD(fd)          \
    ({                       \
        int take_fd_ = (fd); \
        (fd) = -1;           \
        take_fd_;            \
    })

/* Closes *fd unless it is -1 and sets it to -1. */
static inline void util_close(int *fd)
{
    util_close_p(fd);
    *fd = -1;
}
