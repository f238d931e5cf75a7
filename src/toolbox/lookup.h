#pragma once
/* Questions to the control loop: which sandbox a call is about, and a socket to its agent. The
 * answers come through toolbox_answered (toolbox.h). */

#include <stddef.h>
#include <stdint.h>

struct gateway_answer;
struct toolbox;
struct toolbox_call;
struct toolbox_lookups;

int toolbox_lookups_new(size_t max, struct toolbox_lookups **out);
void toolbox_lookups_free(struct toolbox_lookups *a);

/* done exactly once, perhaps from inside; a is NULL when the control loop has no time. The
 * descriptor in a is done's, if it takes it. */
typedef void (*toolbox_lookup_cb)(void *arg, struct gateway_answer *a);
void toolbox_lookup(struct toolbox_call *c, toolbox_lookup_cb done, void *arg);
/* Asks for the states of all sandboxes of the tenant whose key c has, as a pipe of lines. c->x is
 * not NULL. */
void toolbox_follow(struct toolbox_call *c, toolbox_lookup_cb done, void *arg);
void toolbox_lookups_sweep(struct toolbox *t, uint64_t now_ms);
void toolbox_need_sweep(struct toolbox *t);
size_t toolbox_lookups_count(const struct toolbox_lookups *a);
