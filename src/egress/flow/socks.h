#pragma once
/* SOCKS5 (RFC 1928) on the listener: no authentication, CONNECT only, with name or address. */

#include "policy/policy.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct flow;

#define SOCKS_MESSAGE_MAX 262u

enum socks_reply {
    SOCKS_DONE = 0,
    SOCKS_FAILED = 1,
    SOCKS_NOT_ALLOWED = 2,
    SOCKS_UNREACHABLE = 4,
    SOCKS_REFUSED = 5,
    SOCKS_NO_COMMAND = 7,
    SOCKS_NO_ADDRESS = 8
};

/* The greeting at data[0..n): its length, 0 when more is needed, -EPROTO. *accepts: it offers to go
 * on without authentication. */
ssize_t socks_parse_greeting(const unsigned char *data, size_t n, bool *accepts);

/* The request: its length, 0 when more is needed, -EPROTO when it is none at all. *reply is
 * SOCKS_DONE when name (normalized, or "" with *address set) and port are filled in, else what to
 * answer. */
ssize_t socks_parse_request(const unsigned char *data, size_t n,
                            char name[static POLICY_NAME_MAX + 1], struct policy_address *address,
                            uint16_t *port, enum socks_reply *reply);

/* f has just begun with a 5. */
void socks_start(struct flow *f);

/* f->up_fd is dialled, or f is to be looked at first: says so to the client, goes on. */
void socks_connected(struct flow *f);

/* Refuses, and ends the flow. */
void socks_refuse(struct flow *f, enum socks_reply reply);
