#pragma once
/* From what the starter made to a PID 1 that can serve: credentials, limits, the boot block. */

#include "agent/common/agent.h"
#include "base/err.h"

/* Descriptors 0 to 2 are open after it, whatever was handed in. */
void boot_standard_descriptors(void);

/* Reads the boot block from the boot socket, at a start AGENT_BOOT_FD, into the agent. */
enum err_code boot_read(struct agent *a, int boot_fd, struct err *e);

/* All of a start that does not depend on the claim: the generation (a random value, so that none is
 * another's), and names that are looked up once. Not after a restore. */
void boot_get_ready(const struct agent *a);

/* Waits until the starter says whose sandbox this is, takes id and key, writes the sandbox's names.
 * Blocks, perhaps for long: nothing has to be served before. */
enum err_code boot_claim(struct agent *a, int boot_fd, struct err *e);

/* Becomes AGENT_UID with all its capabilities, cuts the bounding set to what children may have, and
 * makes itself unreadable for the sandbox's own root. */
enum err_code boot_confine(const struct agent *a, struct err *e);

/* The steps of both modes: blocked signals, name, limits. */
void boot_prepare(void);

/* Listens on an IPv4 address; the descriptor, or -errno. */
int boot_listen(uint32_t address, uint16_t port);

/* Tells the starter, and closes the descriptor: ready when why is NULL. */
void boot_report(int boot_fd, const struct err *why);
