#pragma once
/* Terminals: each a shell of the sandbox on a terminal, known to the agent by a tag; its shape at
 * the start stands in the arguments of the process. Any number of clients see and type into one. */

struct toolbox_call;

void pty_create(struct toolbox_call *c);
void pty_list(struct toolbox_call *c);
void pty_get(struct toolbox_call *c);
void pty_delete(struct toolbox_call *c);
void pty_resize(struct toolbox_call *c);
void pty_connect(struct toolbox_call *c);        /* WebSocket */
void pty_create_connect(struct toolbox_call *c); /* the same, made first */

/* Answers either of the two for a sandbox that does not run: clients show no body of a handshake
 * that was refused, so that it is accepted, and why is told as a terminal's own errors are. */
void pty_refuse(struct toolbox_call *c, const char *why);
