#pragma once
/* DNS inside a sandbox: every question is answered here, nothing is ever asked outside. Each name
 * gets an address of cay's own (names.h), whether or not it may be connected to: a name that is not
 * allowed is refused when it is dialled, with the reason, and no question can carry anything out.
 *
 * UDP and TCP. A message that is not a plain query of one name is answered FORMERR, NOTIMP or
 * REFUSED, or not at all. */

#include <stddef.h>

struct flow;
struct names;
struct sandbox;

#define DNS_ANSWER_MAX 1232u /* of UDP: fits any path; all answers are much smaller */
#define DNS_QUERY_MAX  4096u

/* Answers a message with one of at most size bytes. Its length, or 0 when it deserves no answer. */
size_t dns_answer(struct names *names, const void *query, size_t n, void *out, size_t size);

/* Asks the kernel for the address that each question was sent to: the answer has to come from
 * there. */
void dns_udp_options(int fd);

/* The sandbox's UDP socket can be read: answers what waits, up to a batch. */
void dns_udp_readable(struct sandbox *s);

/* Serves DNS over TCP on a flow from whose descriptor nothing was read yet. */
void dns_tcp_start(struct flow *f);
