#pragma once
/* Serves what privd says to cay-init itself, of a dump and a restore (contract/agent_go_on.h). */

#include "agent/common/agent.h"

/* Binds the socket; nothing for a command sandbox. Must come before any program of a tenant's is
 * started. 0 or -errno. */
int go_on_listen(struct agent *a);
