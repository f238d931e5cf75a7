#pragma once
/* Accepts from inside a sandbox: the listener tells which sandbox connects, the original
 * destination where to. */

#include <stdint.h>

struct sandbox;

/* Watches both sockets of s (s->tcp_fd, s->udp_fd), and stops it. The sockets stay s's. 0 or
 * -errno. */
int accept_start(struct sandbox *s);
void accept_stop(struct sandbox *s);

/* The number of connections at a time that one more of s would exceed; 0: it would not. */
uint32_t accept_exceeded(const struct sandbox *s);

struct flow;

/* The policy is there, and f, which waited for it, goes on. */
void accept_go_on(struct flow *f);
