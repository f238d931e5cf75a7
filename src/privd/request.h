#pragma once
/* Requests of the peer: checked by the table (permit.h), then given to the file that does them; and
 * their answers. */

#include "contract/proto.h"

#include <stddef.h>
#include <stdint.h>

struct privd;

/* The receiver of an answer: number of the connection, sequence number of the request. */
struct reply_to {
    uint64_t peer, seq; /* seq 0: none */
};

void request_handle(void *privd, const struct privsep_msg *m);
void request_peer(void *privd, bool there);

/* Tells the peer what templates there are now, unasked. */
void request_send_templates(struct privd *p);

/* Answers a request: m's op and contents are the caller's, seq and peer the requester's. 0, or
 * -errno when the requester is gone, or is now because it did not take it. */
int request_reply(struct privd *p, const struct reply_to *to, struct privsep_msg *m, const int *fds,
                  size_t n_fds);
void request_reply_status(struct privd *p, const struct reply_to *to, uint16_t op, int status,
                          uint32_t stage);
