#pragma once
/* Heads and bodies by the gate and llhttp together: both read the same bytes and must agree on the
 * message's framing, else it is refused. No callback runs while a parser holds state, so a caller
 * may stop or free everything between two pieces. */

#include "http/gate.h"

#include <llhttp.h>

/* Follows one body to its end. */
struct parse_body {
    enum http_framing framing;
    uint64_t left;          /* of the length, or of the current chunk */
    int state;              /* in a chunked body */
    uint32_t line_bytes;    /* of the current chunk line or trailer */
    uint32_t trailer_bytes; /* all trailers together */
    bool done;
    llhttp_t parser; /* chunked only */
};

/* The result of a call: `used` bytes from the start of the input, of which [data, data + len) are
 * contents (len 0: only framing). The message ended with the last used byte when body->done.
 * Trailer lines in it are [trailers, trailers + trailers_len) of the used bytes. */
struct parse_piece {
    size_t used;
    const char *data;
    size_t len;
    size_t trailers, trailers_len;
};

/* A whole head of n bytes. 0, or the status to refuse it with and *why. */
int parse_request(const char *data, size_t n, char *storage, struct http_head *out,
                  struct parse_body *body, const char **why);
/* By gate_proxy_request. */
int parse_proxy_request(const char *data, size_t n, char *storage, struct http_head *out,
                        struct parse_body *body, const char **why);
int parse_response(const char *data, size_t n, const char *request_method, char *storage,
                   struct http_head *out, struct parse_body *body, const char **why);

/* How many bytes of contents come before anything that has to be looked at: 0 where that is not
 * known. The last one always has to be, so that the body ends where all bodies do. */
uint64_t parse_body_plain(const struct parse_body *body);

/* n of those bytes have gone by unseen. */
void parse_body_skip(struct parse_body *body, uint64_t n);

/* The next piece of at least one byte; n > 0 and not done yet. 0, or -EBADMSG. */
int parse_body_next(struct parse_body *body, const char *in, size_t n, struct parse_piece *out);
