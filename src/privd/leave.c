#include "privd/leave.h"

#include "privd/create_request.h"
#include "privd/loop.h"
#include "privd/pace.h"
#include "privd/privd.h"
#include "privd/sandbox.h"
#include "privd/slots.h"

static void leave_slot(struct privd *p, struct slot *s)
{
    pace_cancel(&p->pace, &s->kill);
    loop_disarm(&p->loop, &s->timer);
    loop_disarm(&p->loop, &s->resize.timer);
    loop_remove(&p->loop, &s->task_source);
    loop_remove(&p->loop, &s->pid_source);
    loop_remove(&p->loop, &s->boot_source);
    loop_remove(&p->loop, &s->resize.source);
    if (s->create)
        loop_disarm(&p->loop, &s->create->timer);
}

/* Their tasks are killed with privd, and done again by the next one, as after any of its ends. */
static void leave_workers(struct privd *p)
{
    loop_remove(&p->loop, &p->cleaner.source);
    loop_remove(&p->loop, &p->dropper.source);
    loop_remove(&p->loop, &p->copier.source);
    loop_remove(&p->loop, &p->archiver.source);
    loop_remove(&p->loop, &p->exchanger.source);
    loop_remove(&p->loop, &p->volume_worker.source);
    for (size_t i = 0; i < DUMPS_MAX; i++) {
        loop_remove(&p->loop, &p->dumpers[i].source);
        loop_disarm(&p->loop, &p->dumpers[i].timer);
    }
}

static void leave_timers(struct privd *p)
{
    loop_disarm(&p->loop, &p->cleaner.timer);
    loop_disarm(&p->loop, &p->copier.timer);
    loop_disarm(&p->loop, &p->refill_timer);
    loop_disarm(&p->loop, &p->refill_delay_timer);
    loop_disarm(&p->loop, &p->memory_timer);
    loop_disarm(&p->loop, &p->listing.timer);
    loop_disarm(&p->loop, &p->image_groups_timer);
    loop_disarm(&p->loop, &p->pace.timer);
    loop_disarm(&p->loop, &p->stop_timer);
    bucket_leave(p);
}

void leave_loop(struct privd *p)
{
    sandbox_forget_waiting(p);
    for (uint32_t i = 0; p->slots && i < p->options.slots_max; i++)
        leave_slot(p, &p->slots[i]);
    leave_workers(p);
    leave_timers(p);
    loop_remove(&p->loop, &p->signal_source);
}
