#pragma once
/* The toolbox of one connection loop: its calls, its connections that are told of events, and what
 * its calls share. toolbox.c owns it. */

#include "gateway/idle_connections.h"
#include "toolbox/toolbox.h"

struct events;          /* events.c */
struct share_pool;      /* base/share.h */
struct toolbox_call;    /* call.h */
struct toolbox_lookups; /* lookup.c */

struct toolbox {
    uv_loop_t *loop;
    struct toolbox_config config;
    struct toolbox_lookups *lookups;
    struct toolbox_call *calls;
    struct events *events; /* events.c: connections that are open */
    struct idle_connections idle;
    struct share_pool *bodies, *outputs;
    uv_timer_t sweep;
    uv_timer_cb on_sweep; /* toolbox.c */
    bool stopping;
};
