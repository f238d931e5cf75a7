#pragma once
/* To be dumped: what cay-init is before that, and how it serves again.
 *
 *   POST /cay/prepare   204: nothing is served but these two, and connections of privd's (go_on.h);
 *                       409 and the reason: its programs cannot be dumped; 503: not in this moment.
 *                       All is as before then
 *   POST /cay/go-on     204: it serves again
 *
 * A prepared cay-init still has all its files. They are given up when privd takes them, just before
 * the dump, and come back after one that was refused. Where it is
 * prepared and not taken, it serves again after PREPARE_MS, as cayd may have ended in between. */

#include "agent/common/agent.h"
#include "contract/agent_go_on.h"

#define PREPARE_MS 30000u

void prepare_post(struct http_exchange *x, struct agent *a);
void prepare_go_on(struct http_exchange *x, struct agent *a);

/* Whether a dump may begin: else *e says why not. ERR_CONFLICT; ERR_UNAVAILABLE: not now. */
enum err_code prepare_check(const struct agent *a, struct err *e);

/* Every file of the host's is closed, and its number held by /dev/null, so that no other file gets
 * it; this process may be looked into from now on. 0 or -errno. */
int prepare_give_up(struct agent *a);

/* Of a message of go_on.h. Those that are there take the numbers that they had; the caller closes
 * fds. Nothing inside may look into this process from now on. 0 or -errno. */
int prepare_take_back(struct agent *a, const struct agent_go_on *m, const int *fds);

/* Serves again. */
void prepare_end(struct agent *a);
