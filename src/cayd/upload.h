#pragma once
/* Archives that clients send for builds of templates (core/build_files.h): the body goes from the
 * connection into a file that the control loop has opened for it, so that it is held nowhere. The
 * address alone, which the client was given, says that it may. */

#include "cayd/connloop_internal.h"

/* false: it is no such request. */
bool upload_handle(struct connloop *l, struct http_exchange *x);

/* How the client of a body is answered: by the form of what it speaks. */
struct upload_answers {
    void (*good)(struct http_exchange *x);
    void (*bad)(struct http_exchange *x, int status, const char *why);
};

/* The body of x (NULL: its client is gone) into the file that the control loop has opened for a, or
 * the reason why it has not. a stays the caller's. token: whose place it takes. */
void upload_receive(struct connloop *l, struct http_exchange *x, struct control_request *a,
                    const char *token, const struct upload_answers *answers);
