#pragma once
/* LIST: every sandbox that lives, a slice each turn of the loop. */

#include "privd/loop.h"
#include "privd/reply.h"

struct privd;
struct slot;

/* A LIST under way. */
struct listing {
    struct reply_to reply_to; /* seq 0: none */
    uint32_t next;            /* slot to look at */
    struct loop_timer timer;
};

void list_begin(struct privd *p, const struct reply_to *to);

/* ITEM of that one to the peer that is there, if any. */
void list_report(struct privd *p, const struct slot *s);

/* The requester is gone. May be called from inside any reply. */
void list_forget(struct privd *p);
