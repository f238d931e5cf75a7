#pragma once
/* Reads an answer of DNS, for resolve.c; and the names that DNS is not asked for. */

#include "egress/flow/resolve.h"

#include <stdbool.h>
#include <stddef.h>

/* Addresses of one family, for the shortest of their times. */
struct resolve_answer {
    size_t n;
    int ttl_s;
    struct policy_address addresses[RESOLVE_ADDRESSES_MAX];
};

/* 0 with a->n > 0, -ENOENT, -EPROTO or -EAGAIN. */
int resolve_answer_read(const unsigned char *message, int len, int family,
                        struct resolve_answer *a);

/* Was this message, which came over UDP, cut by the server or by c-ares? */
bool resolve_answer_is_cut(const unsigned char *message, int len);

/* As a status of resolve_cb. */
int resolve_answer_status(int ares_status);

/* RFC 6761 6.3, RFC 7686: below localhost is the machine itself, below onion nothing that DNS
 * knows. False: DNS is to be asked. */
bool resolve_answer_here(const char *name, int *status, struct resolve_answer *a);
