#pragma once
/* Requests to a token server, and its answers: RFC 6749 sections 2.3, 5 and 6. Pure. */

#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>

#define RENEW_TOKEN_MAX      8192u /* bytes of a token */
#define RENEW_LIFE_DEFAULT_S 3600  /* of an access token whose life the server does not say */
#define RENEW_LIFE_MAX_S     31536000

/* value: of a credential of kind oauth2, checked. body is the form; *authorization the header's
 * value, malloc'd, or NULL where the body names the client. 0 or -errno; the caller wipes both. */
int renew_request(const json_t *value, struct buf *body, char **authorization);

struct renew_answer {
    char *access_token;
    char *refresh_token; /* NULL: the old one stays */
    int64_t life_s;
};

/* ERR_DENIED: it says no, and will say so again; ERR_UNAVAILABLE: another time perhaps. Of what the
 * server says only the status and the error's name go into e. */
enum err_code renew_answer(int status, const char *body, size_t len, struct renew_answer *out,
                           struct err *e);
void renew_answer_free(struct renew_answer *a);
