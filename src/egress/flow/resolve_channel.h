#pragma once
/* Channels of c-ares on the loop: over UDP, one for each name, from a port of its own, and one for
 * those that have no place left; and one over TCP for each name whose answer was cut: there
 * answers come one behind the other in a connection, which stands still while one of them is not
 * whole. */

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

/* Bytes of an answer over UDP: without EDNS (RFC 1035 4.2.1), and as it is asked for, so that it
 * fits into one datagram everywhere. */
#define RESOLVE_CHANNEL_PLAIN_BYTES 512
#define RESOLVE_CHANNEL_EDNS_BYTES  1232

struct resolve_channel;

/* message is the answer, or NULL; status is c-ares'. */
typedef void (*resolve_channel_cb)(void *arg, int status, int timeouts, unsigned char *message,
                                   int len);

/* Over UDP; an answer that was cut is given as it is. servers NULL or "": those of the host. Logs
 * why it failed. */
int resolve_channel_new(uv_loop_t *loop, const char *servers, struct resolve_channel **out);

/* Over UDP from a port of its own, to the servers of `like`. */
int resolve_channel_new_port(const struct resolve_channel *like, struct resolve_channel **out);

/* Over TCP, in a connection of its own, to the servers of `like`. */
int resolve_channel_new_stream(const struct resolve_channel *like, struct resolve_channel **out);

/* family: of the addresses that are asked for. cb is called exactly once, perhaps from inside this
 * call. */
void resolve_channel_request(struct resolve_channel *c, const char *name, int family,
                             resolve_channel_cb cb, void *arg);

/* Asks late questions again or gives them up: to be called from time to time. */
void resolve_channel_tick(struct resolve_channel *c);

/* When nothing is asked, and not from inside a callback. NULL is none. */
void resolve_channel_free(struct resolve_channel *c);
