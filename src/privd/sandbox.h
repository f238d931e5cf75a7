#pragma once
/* CREATE: waits for a slot, then starts cay-init in it. */

#include "privd/slots.h"

struct privd;

struct create_request {
    struct privd *privd;
    struct reply_to reply_to;
    struct loop_timer timer; /* while it waits for a slot */
    struct slot_kind kind;
    struct runtime_claim claim;
    uint32_t kept; /* files that it takes (kept.h), or a copy of them; 0: none */
    bool copy;
    bool memory;     /* the programs that ran in it are restored */
    bool may_claim;  /* a member of the pool (pool.h) */
    bool has_waited; /* there was no slot for it when it came */
    struct privsep_mount volumes[PRIVSEP_CREATE_VOLUMES];
    struct create_request *next;
};

void sandbox_create(struct privd *p, const struct reply_to *to, const struct privsep_msg *m);

/* Gives ready slots to waiting creates. Called when a slot became ready or a start has ended. */
void sandbox_pump(struct privd *p);

/* There will be no slot for the oldest waiting create: it gets to know. */
void sandbox_no_slot(struct privd *p, int status, uint32_t stage);

/* The peer is gone: creates that wait for a slot are forgotten; a create under way ends when it is
 * ready, as there is no peer to be told. May be called from inside any reply. */
void sandbox_forget_waiting(struct privd *p);
