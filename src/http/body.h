#pragma once
/* A request's body: its framing, and its reader. */

#include "http/exchange.h"

/* Hands input to the body's reader; how many bytes were used, or -EBADMSG. */
ssize_t body_feed(struct http_exchange *x, const char *data, size_t n);
/* Tells the end of a body that is complete, once. */
void body_report_end(struct http_exchange *x);
bool body_wants_input(const struct http_exchange *x);
/* How much of what is to be read the body's reader takes from the pipe; 0: none. */
uint64_t body_may_pass(const struct http_exchange *x);
/* Hands what is in the pipe to the body's reader, which takes all of it. */
void body_pass(struct http_exchange *x, struct pass *p);
bool body_done(const struct http_exchange *x);

/* For the relay: the body with its framing as sent; long contents come through the pipe if they
 * can and on_passed is not NULL. */
void body_stream_raw(struct http_exchange *x,
                     void (*on_data)(struct http_exchange *, const char *, size_t),
                     void (*on_passed)(struct http_exchange *, struct pass *),
                     void (*on_end)(struct http_exchange *));
