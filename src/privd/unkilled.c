#include "privd/unkilled.h"

#include "base/log.h"
#include "privd/loop.h"
#include "privd/privd.h"
#include "sys/pid.h"

#include <errno.h>
#include <stdlib.h>

struct unkilled {
    struct privd *privd;
    uint32_t slot;
    int pidfd;
    struct loop_source source;
    struct unkilled *next;
};

static void drop(struct unkilled *u)
{
    struct unkilled **at = &u->privd->unkilled;

    while (*at != u)
        at = &(*at)->next;
    *at = u->next;
    loop_remove(&u->privd->loop, &u->source);
    util_close(&u->pidfd);
    free(u);
}

static void on_end(void *arg, uint32_t events)
{
    struct unkilled *u = arg;
    int code, status;

    if (pid_reap(u->pidfd, &code, &status) == -EAGAIN)
        return;
    log_info("slot %u: a task that was killed has ended", u->slot);
    drop(u);
}

void unkilled_add(struct privd *p, uint32_t slot, int pidfd)
{
    struct unkilled *u = pidfd < 0 ? NULL : calloc(1, sizeof(*u));

    if (!u) {
        util_close(&pidfd);
        return;
    }
    *u = (struct unkilled){
        .privd = p, .slot = slot, .pidfd = pidfd, .source = LOOP_SOURCE_NONE, .next = p->unkilled};
    p->unkilled = u;
    if (loop_add(&p->loop, &u->source, pidfd, on_end, u) < 0)
        drop(u);
}

bool unkilled_of(const struct privd *p, uint32_t slot)
{
    for (const struct unkilled *u = p->unkilled; u; u = u->next)
        if (u->slot == slot)
            return true;
    return false;
}

void unkilled_free(struct privd *p)
{
    while (p->unkilled)
        drop(p->unkilled);
}
