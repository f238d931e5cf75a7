#pragma once
/* A sandbox that is stopped (its files alone are kept) is ended when it was not started for as long
 * as its owner has set. Where several things have a time, the first one counts: one that is to be
 * deleted before it is archived is never archived, and one that is archived is deleted all the
 * same. */

#include "core/core.h"

struct sandbox_obj;

/* (Re-)arms the end of one that is stopped, from when it stopped; of any other nothing is armed. */
void auto_delete_arm(struct sandbox_obj *o);

/* At the start of the core: a row has been read. */
void auto_delete_adopt(struct sandbox_obj *o);

/* LIFE_TIMER_REST. Ends o, where it has such a time. */
void auto_delete_on_timer(struct sandbox_obj *o);
