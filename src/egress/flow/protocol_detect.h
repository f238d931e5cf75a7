#pragma once
/* What the first bytes of a connection are, and whether they name what was dialled. */

struct flow;

/* SOCKS or CONNECT was answered, or nothing needed to be: f->up_fd is dialled, or the flow has to
 * be read first. Looks at what the client sends and hands the flow on. */
void protocol_detect_start(struct flow *f);

/* Looking is over: before the descriptor is handed on. */
void protocol_detect_done(struct flow *f);
