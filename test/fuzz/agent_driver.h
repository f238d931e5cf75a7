#pragma once
/* A cay-init within a fuzz target: its routes behind its own HTTP server, clients on socket pairs
 * that send the input in pieces. The agent lives as long as the program, as it does in a sandbox.
 * Single-threaded; nothing blocks. */
#include "agent/common/agent.h"

#include <stdint.h>

/* Between two parts of an input: the second comes over a connection of its own, beside the
 * others. */
#define AGENT_DRIVER_NEXT "\xff|\xff"

struct agent_driver {
    bool (*allowed)(const char *method, const char *path); /* which requests reach the routes */
    void (*turn)(uint32_t chance); /* beside every turn of the loop; chance is the input's own */
};

/* Makes the agent, once. d is kept. */
struct agent *agent_driver_new(const struct agent_driver *d);

/* Sends data from its second byte on; the first one seeds the pieces and what happens between them. At
 * the end the clients go; aborts when a connection stays open, which is a hang. */
void agent_driver_run(struct agent *a, const uint8_t *data, size_t size);

/* The answers of the last run, NUL-terminated, cut at its size. */
const char *agent_driver_answers(void);
