#pragma once
/* Programs of the sandbox's own that are run before it is paused and after it was resumed: the
 * files in /etc/cay/pause.d and /etc/cay/resume.d (docs/hooks.md). cayd asks for them with
 *
 *   POST /cay/hooks {"hook": "pause", "tier": "frozen", "reason": "api", "limits": {..}}
 *
 * ("limits" as in /init: the agent of a frozen sandbox that was resized learns them with its
 * resume's hooks),
 * and is answered when the last has ended, at the latest after AGENT_HOOKS_MS:
 *   {"ran": 2, "failed": [{"name": "10-flush", "error": "exit status 1: no such table"}]}
 *
 * They run one after another in the order of their names, as root of the sandbox. Only what root
 * alone could have put there is run, so that no user of the sandbox gains a right by it:
 * directories and files belong to root, and neither group nor others may write them. A file that
 * is not run is told as failed. At the end of the time the one that runs is killed with all
 * that it started, and the rest is not run. A request that comes meanwhile ends an earlier one in
 * the same way. */

#include "agent/common/agent.h"

#define HOOKS_DIR     "/etc/cay"
#define HOOKS_MAX     16
#define HOOKS_ENTRIES 64 /* of a directory, whatever they are */
#define HOOKS_NAME    64 /* bytes of a name */

struct hook {
    char name[HOOKS_NAME + 1];
    const char *why_not; /* a literal; NULL: it can be run */
};

struct hooks_list {
    struct hook hooks[HOOKS_MAX];
    size_t n, entries;
    const char *why_not; /* of the directory; n is 0 then */
};

/* Those of HOOKS_DIR/dir, in order. */
void hooks_find(const char *dir, struct hooks_list *out);

void hooks_post(struct http_exchange *x, struct agent *a);
