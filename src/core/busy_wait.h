#pragma once
/* A call of cay-privd that is repeated while its sandbox is busy (EBUSY): its processes stand still
 * for the moment of a snapshot, which no client is to see. Until it is repeated the wait is a call
 * on its core's list, so that an end of core ends it. */

#include "core/call_internal.h"
#include "core/timers.h"

#include <stdbool.h>
#include <stdint.h>

#define BUSY_AGAIN_MS 5u
#define BUSY_WAIT_MS  2000u

struct sandbox_obj;

struct busy_wait {
    struct call call; /* on its core's list, while `again` is armed */
    struct timer again;
    uint64_t until_ms;
    /* Calls once more, for the sandbox. Without one (NULL): the wait is over, with status
     * -ECANCELED (core ends) or -EBUSY (the sandbox is not reachable any more). */
    void (*go_on)(struct busy_wait *w, struct sandbox_obj *o, int status);
};

/* Before the first call: the time begins from which BUSY_WAIT_MS count. */
void busy_wait_begin(struct busy_wait *w,
                     void (*go_on)(struct busy_wait *w, struct sandbox_obj *o, int status));

/* After a call that failed with that status. True: go_on will be called, later; false: it is not
 * waited for. */
bool busy_wait_again(struct busy_wait *w, struct core *c, const char *id, int status);
