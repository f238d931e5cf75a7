#pragma once
/* CREATE: waits for a slot, then starts cay-init in it. */

#include "privd/create_request.h"
#include "privd/slots.h"

struct privd;

void sandbox_create(struct privd *p, const struct reply_to *to, const struct privsep_msg *m);

/* Gives ready slots to waiting creates. Called when a slot became ready or a start has ended. */
void sandbox_pump(struct privd *p);

/* How many creates wait for a slot that is made ahead: none while as many as may are starting. */
uint32_t sandbox_need_slots(const struct privd *p);

/* There will be no slot for the oldest waiting create: it gets to know. */
void sandbox_no_slot(struct privd *p, int status, uint32_t stage);

/* The peer is gone: creates that wait for a slot are forgotten; a create under way ends when it is
 * ready, as there is no peer to be told. May be called from inside any reply. */
void sandbox_forget_waiting(struct privd *p);
