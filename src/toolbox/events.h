#pragma once
/* The stream of events of newer clients: /api/socket.io/. Its key comes in its first message. */

#include "toolbox/internal.h"

#define TOOLBOX_EVENTS_PATH "/api/socket.io/"

void toolbox_events(struct toolbox_call *c);
