/* LIST, a slice each turn of the loop: thousands of answers in one would make all other requests
 * wait. A sandbox that starts or ends meanwhile is told by its own answer or event, on the same
 * connection. */

#include "privd/list.h"

#include "privd/copy.h"
#include "privd/loop.h"
#include "privd/permit.h"
#include "privd/privd.h"
#include "privd/reply.h"
#include "privd/slots.h"
#include "privsep/server.h"

#include <errno.h>
#include <string.h>

#define SLICE_ITEMS 32   /* about 3 µs each */
#define SLICE_SLOTS 1024 /* looked at */
#define TURN_MS     1

static int send_item(struct privd *p, const struct slot *s, uint64_t peer)
{
    struct privsep_msg m = {.op = PRIVSEP_ITEM, .slot = s->number, .gen = s->gen};

    memcpy(m.u.item.id, s->id, sizeof(m.u.item.id));
    m.u.item.template_number = s->kind.template_number;
    m.u.item.level = s->kind.level;
    m.u.item.started_real_ms = s->started_real_ms;
    m.u.item.limits = s->kind.limits;
    m.u.item.frozen = s->state == SLOT_FROZEN || copy_ends_frozen(s);
    return privsep_server_send(p->server, peer, &m, NULL, 0);
}

void list_report(struct privd *p, const struct slot *s)
{
    (void)send_item(p, s, 0);
}

static void send_slice(void *arg)
{
    struct privd *p = arg;
    struct listing *l = &p->listing;
    uint32_t end = MIN(l->next + SLICE_SLOTS, p->options.slots_max);
    struct reply_to to;
    int items = 0;

    for (; l->next < end && items < SLICE_ITEMS && l->reply_to.seq != 0; l->next++)
        if (permit_lives(p->slots[l->next].state)) {
            if (send_item(p, &p->slots[l->next], l->reply_to.peer) < 0)
                return; /* the peer is gone: list_forget was called, or its successor asks anew */
            items++;
        }
    if (l->reply_to.seq == 0)
        return;
    if (l->next < p->options.slots_max) {
        loop_arm(&p->loop, &l->timer, TURN_MS, send_slice, p);
        return;
    }
    to = l->reply_to;
    l->reply_to = (struct reply_to){0};
    reply_status(p, &to, PRIVSEP_LIST, 0, PRIVSEP_STAGE_NONE);
}

void list_begin(struct privd *p, const struct reply_to *to)
{
    if (p->listing.reply_to.seq != 0) {
        reply_status(p, to, PRIVSEP_LIST, -EALREADY, PRIVSEP_STAGE_NONE);
        return;
    }
    p->listing.reply_to = *to;
    p->listing.next = 0;
    send_slice(p);
}

void list_forget(struct privd *p)
{
    loop_disarm(&p->loop, &p->listing.timer);
    p->listing.reply_to = (struct reply_to){0};
}
