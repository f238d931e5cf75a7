#pragma once
/* Detects the protocol of a connection's first bytes, and whether they name the host that was
 * dialled. */

struct flow;

/* SOCKS or CONNECT was answered, or nothing needed to be: f->up_fd is dialled, or the flow has to
 * be read first. Looks at what the client sends and hands the flow on. */
void protocol_detect_start(struct flow *f);

/* Looking is over: before the descriptor is handed on. */
void protocol_detect_done(struct flow *f);
