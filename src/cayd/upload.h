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
    /* Of an import: instead of good, as the answer is yet to come. NULL: it is an archive of a
     * build's, whose end the control loop is told. */
    void (*whole)(struct connloop *l, struct http_exchange *x, uint64_t number);
    const char *too_long; /* why it is refused; NULL: as an archive of a build is */
};

/* The body of x (NULL: its client is gone) into a file; the descriptor is taken over. part: 0, or
 * which part of an archive it is. token: as below, or a tenant's name. */
void upload_into(struct connloop *l, struct http_exchange *x, const struct core_build_upload *file,
                 unsigned part, const char *token, const struct upload_answers *answers);

/* The body of x (NULL: its client is gone) into the file that the control loop has opened for a, or
 * the reason why it has not. a stays the caller's. token: whose place it takes. */
void upload_receive(struct connloop *l, struct http_exchange *x, struct control_request *a,
                    const char *token, const struct upload_answers *answers);

/* Imports that were begun with that key (its id; NULL: any), and whose bodies are on their way, end
 * with their connections. */
void upload_key_revoked(struct connloop *l, const char *key_id);
