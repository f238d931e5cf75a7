#pragma once
/* Answers to the peer, and what it is told of templates. */

#include "contract/proto.h"

#include <stddef.h>
#include <stdint.h>

struct privd;

/* The receiver of an answer: number of the connection, sequence number of the request. */
struct reply_to {
    uint64_t peer, seq; /* seq 0: none */
};

/* Answers a request: m's op and contents are the caller's, seq and peer the requester's. 0, or
 * -errno when the requester is gone, or is now because it did not take it. */
int reply_send(struct privd *p, const struct reply_to *to, struct privsep_msg *m, const int *fds,
               size_t n_fds);
void reply_status(struct privd *p, const struct reply_to *to, uint16_t op, int status,
                  uint32_t stage);
/* The same with a reason ("": there is none); nothing where no request waits (seq 0). */
void reply_reason(struct privd *p, const struct reply_to *to, uint16_t op, int status,
                  const char *why);

/* Tells it all templates that there are now. peer 0: whichever is there. */
void reply_templates(struct privd *p, uint64_t peer);
