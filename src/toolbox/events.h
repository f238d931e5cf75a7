#pragma once
/* The stream of events of newer clients: TOOLBOX_EVENTS_PATH. Its key comes in its first
 * message. */

#include "toolbox/internal.h"

void toolbox_events(struct toolbox_call *c);
