#pragma once
/* Idle connections to agents, for the next request: few, for a short time, known by sandbox and
 * generation. There is one per connection loop; an idle sandbox holds none after IDLE_KEEP_MS. */

#include "base/ids.h"

#define IDLE_MAX      64
#define IDLE_MAX_EACH 8 /* of one sandbox */
#define IDLE_KEEP_MS  2000

struct idle_connection {
    char id[IDS_SANDBOX_SIZE];
    uint32_t gen;
    int fd; /* -1: free place */
    uint64_t until_mono_ms;
};

struct idle {
    struct idle_connection all[IDLE_MAX];
    size_t count;
};

void idle_init(struct idle *p);
void idle_close_all(struct idle *p);

/* The generation that there is a connection to, or 0. */
uint32_t idle_generation(const struct idle *p, const char *id);

/* A connection that the other side has neither closed nor written to; the caller's. -1: none. */
int idle_take(struct idle *p, const char *id, uint32_t gen);

/* Takes fd over: keeps or closes it. */
void idle_put(struct idle *p, const char *id, uint32_t gen, int fd, uint64_t now_mono_ms);

/* Closes what is past its time. */
void idle_sweep(struct idle *p, uint64_t now_mono_ms);
