#pragma once
/* Answers that no client takes: how many bytes of them there may be. */

#include "http/conn.h"

/* After the memory of c->out has become more or less. */
void held_count(struct conn *c);

/* The same after bytes were queued. Where all connections together hold more than they may, the one
 * that has taken nothing for longest is reset, and the next, until it fits; c itself last. No
 * callback: those connections end in their next pump. */
void held_free_memory(struct conn *c);
