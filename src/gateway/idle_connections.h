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

struct idle_connections {
    struct idle_connection all[IDLE_MAX];
    size_t count;
};

void idle_connections_init(struct idle_connections *p);
void idle_connections_close_all(struct idle_connections *p);

/* The generation that there is a connection to, or 0. */
uint32_t idle_connections_generation(const struct idle_connections *p, const char *id);

/* A connection that the other side has neither closed nor written to; the caller's. -1: none. */
int idle_connections_take(struct idle_connections *p, const char *id, uint32_t gen);

/* Takes fd over: keeps or closes it. */
void idle_connections_put(struct idle_connections *p, const char *id, uint32_t gen, int fd,
                          uint64_t now_mono_ms);

/* Closes what is past its time. */
void idle_connections_sweep(struct idle_connections *p, uint64_t now_mono_ms);
