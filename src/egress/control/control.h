#pragma once
/* cayd's channel: HTTP/1.1 with JSON on a listening unix socket that cay-keep made; SO_PEERCRED
 * must be cayd's uid (or root's). Routes: see control.c's table. */

struct egress;

#define CONTROL_BODY_MAX (1024u * 1024u)

struct control;

/* Takes listen_fd over on success. 0 or -errno. */
int control_new(struct egress *eg, int listen_fd, struct control **out);
void control_free(struct control *c);
