#pragma once
/* The stream of events of newer clients: TOOLBOX_EVENTS_PATH. Its key comes in its first
 * message. */

#include <stdint.h>

struct toolbox;
struct toolbox_call;

void toolbox_events(struct toolbox_call *c);

void toolbox_events_sweep(struct toolbox *t, uint64_t now_ms);
void toolbox_events_end(struct toolbox *t);
