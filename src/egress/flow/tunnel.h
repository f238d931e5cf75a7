#pragma once
/* Bytes both ways between a flow's client and what was dialled, by splice(2): they never come into
 * this process. Pull-based: what one side does not take is not read from the other; a pipe is held
 * only while it has bytes in it, so that a quiet tunnel costs two descriptors.
 *
 * Ends when both directions have ended, one has failed, nothing has moved for the idle timeout, or
 * flow_end says so. Own edge-triggered epoll below the loop: no change of interest, ever. */

struct egress;
struct flow;
struct tunnels;

int tunnels_new(struct egress *eg, struct tunnels **out);

/* f->fd and f->up_fd are connected, non-blocking, and have no other watcher. 0: f may have ended
 * already. -errno: they are still the flow's. */
int tunnel_start(struct flow *f);
