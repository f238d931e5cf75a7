#pragma once
/* The right to pass: access tokens, signed URLs, traffic tokens. Checked here, in cayd, because the
 * agent must not hold what its tenant may not see. Pure but for the clock that callers pass in.
 *
 * A struct access holds what a request brought, as plain data that may cross threads. */

#include "base/ids.h"
#include "core/file_url.h"
#include "core/ingress.h"
#include "http/message.h"

#include <stdbool.h>

#define ACCESS_TOKEN_HEADER   "X-Access-Token"
#define ACCESS_TRAFFIC_HEADER "E2b-Traffic-Access-Token"
#define ACCESS_PREVIEW_HEADER "X-Daytona-Preview-Token"  /* the same, of Daytona's clients */
#define ACCESS_PREVIEW_QUERY  "DAYTONA_SANDBOX_AUTH_KEY" /* the same, of browsers */
#define ACCESS_SIGNATURE_SIZE 48 /* "v1_", 43 characters of base64, NUL; a longer one is wrong */
#define ACCESS_MESSAGE_SIZE   384

struct access {
    bool exempt;                 /* GET /health: without a token */
    bool may_sign;               /* GET or POST /files */
    bool has_token;              /* the header was there and not empty */
    bool has_signature;          /* the query parameter was there */
    bool has_expiry, bad_expiry; /* of a signed URL of a file, has_expiry: it ends at all */
    int64_t expiry_s;
    char token[CORE_TOKEN_SIZE + 2];   /* cut: one that is too long matches nothing */
    char traffic[CORE_TOKEN_SIZE + 2]; /* "" when absent */
    char signature[ACCESS_SIGNATURE_SIZE];
    char signed_until[INGRESS_SIGNED_LEN + 1]; /* of the host name (route.h); "" when absent */
    /* malloc'd: what a signature is over, but for the token: "path:read:username"; of a signed URL
     * of a file "v1:files:METHOD:PATH:EXPIRES" */
    char *subject;
    char *key; /* malloc'd: the API key of a ROUTE_KEYED query; NULL else */
};

/* The API key of a request, for cayd's own calls and for the toolbox alike: X-API-Key, or else the
 * bearer token of Authorization; "" for none. */
const char *access_api_key(const struct http_head *h);

/* Reads the request's head. 0, or -ENOMEM. */
int access_read(const struct http_head *h, struct access *out);

/* The same where it is for a volume's contents: the bearer token of Authorization is the token. */
void access_read_bearer(const struct http_head *h, struct access *out);

/* The signature, the time and the subject of a signed URL of one file (core/file_url.h), as
 * Daytona's clients make them: ?path&expires&signature. 0; -ENOENT: there is no signature; -ENOMEM.
 * A malformed signature is read as a value that no key makes. */
int access_read_file_url(const struct http_head *h, struct access *out);
void access_free(struct access *a);

/* May this request reach the agent of a secure sandbox whose token is given? True, or false with
 * the sentence for the 401. Constant time in the token's and the signature's bytes. */
bool access_check_agent(const struct access *a, const char *token, int64_t now_s,
                        char message[static ACCESS_MESSAGE_SIZE]);

/* Is the signature this token's, whatever its expiry? */
bool access_signature_matches(const struct access *a, const char *token);

/* The same for another port of a sandbox without public traffic (403). token is the agent's. */
bool access_check_traffic(const struct access *a, const char *token,
                          char message[static ACCESS_MESSAGE_SIZE]);

/* The same for a signed address of a port. */
bool access_check_signed(const struct access *a, const char *token, uint16_t port, int64_t now_s,
                         char message[static ACCESS_MESSAGE_SIZE]);

/* May a signed URL of a file be followed, where key is its sandbox's? Constant time in the
 * signature's bytes. */
bool access_check_file_url(const struct access *a, const char *key, int64_t now_s,
                           char message[static ACCESS_MESSAGE_SIZE]);

/* The signature over subject with token; expiry only when has_expiry. For tests and the check. */
int access_sign(const char *subject, const char *token, bool has_expiry, int64_t expiry_s,
                char out[static ACCESS_SIGNATURE_SIZE]);
