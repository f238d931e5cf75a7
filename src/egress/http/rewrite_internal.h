#pragma once
/* Shared by rewrite.c (requests) and rewrite_answer.c (their answers). */

#include "egress/http/frames.h"
#include "egress/http/rewrite.h"
#include "egress/http/unzip.h"
#include "egress/tls/tls_endpoint.h"
#include "http/parse.h"

#define METHOD_SIZE 32

enum request_state {
    REQUEST_HEAD,    /* of the next one */
    REQUEST_COLLECT, /* its body is held */
    REQUEST_PASS
};

enum response_state {
    RESPONSE_NONE, /* nothing was asked */
    RESPONSE_HEAD,
    RESPONSE_BODY,
    RESPONSE_TUNNEL,
    RESPONSE_REFUSED
};

struct rewrite {
    struct rewrite_job *job;
    struct redact *redact;
    struct credential_use *use; /* spent by a 401 */
    struct held_body held;      /* of a body that its server may not have read yet */
    enum request_state request;
    enum response_state response;
    char method[METHOD_SIZE];
    struct buf head; /* of the request; then the body that is collected stands in body */
    struct buf body;
    struct buf chunked;     /* the same as it came, where it comes in chunks */
    struct parse_body sent; /* follows them */
    size_t scanned;
    struct buf answer; /* its head in the making */
    size_t answer_scanned;
    struct parse_body parse;
    struct unzip *unzip;  /* the answer's body is compressed */
    bool cut;             /* the connection has ended in it */
    unsigned pause_ms;    /* after which what is kept back passes; 0: only at the message's end */
    struct frames frames; /* of what comes after an upgrade */
};

/* Frees it, and leaves nothing of it in memory: what a server sends may have a secret in it
 * as well as what it is sent. */
void rewrite_wipe(struct buf *b);
