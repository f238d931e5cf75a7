#pragma once
/* Takes a few MiB of one kind of kernel memory and holds it, for measure.py to compare what the memory group of
 * the sandbox was charged with what the machine lost.
 *
 * Each taker ends at the first refusal, or when it believes to hold `want` bytes. It never takes more than
 * POOLS_MAX_BYTES or POOLS_MAX_COUNT things, whatever is asked for. */

#include <stddef.h>

#define POOLS_MAX_BYTES ((size_t)16 << 20)
#define POOLS_MAX_COUNT 4000

struct pool {
    const char *name;
    const char *about;
    /* Takes until `want` bytes are held, by its own reckoning. Returns what it reckons that it holds. */
    size_t (*take)(size_t want);
    /* The bound of one of it where the reckoning counts things: published beside the result. */
    const char *bound;
};

extern const struct pool pools_sockets[];
extern const struct pool pools_options[];
extern const struct pool pools_others[];

/* The bytes that the kernel says the queues of a socket hold, with the overhead of its buffers. */
size_t pools_queued(int fd);

/* A fixed number of things in place of bytes: as many as hold `want` bytes at `each`, POOLS_MAX_COUNT at most. */
size_t pools_count(size_t want, size_t each);
