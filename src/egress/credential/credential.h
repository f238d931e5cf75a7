#pragma once
/* Credentials: sealed records outside, and what is in them while a sandbox uses them.
 *
 * A record is AES-256-GCM of the value, with tenant, name and the whole of "bind" (as canonical
 * JSON) as what is authenticated beside it: no holder of the record, cayd included, can give it
 * another tenant, another name, other hosts or another kind. The key is this program's alone.
 *
 * "bind" says what the value may be used for:
 *
 *   {"kind": "bearer" | "basic" | "header" | "headers" | "query" | "aws-sigv4" | "oauth2" |
 *    "placeholder", "domains": ["api.example.com", "*.example.org"],
 *    "ports": [443], "methods": ["POST"], "paths": ["/v1*"],     as in a policy's rule; optional
 *    "header": "X-Api-Key", "prefix": "Token ",                  of kind header
 *    "parameter": "key",                                         of kind query
 *    "region": "eu-west-1", "service": "s3",                     of kind aws-sigv4; else the
 *    client's "token_host": "login.example.com",                          of kind oauth2: who
 *    renews it "headers": ["Authorization"], "target": true,               of kind placeholder:
 *    where it may stand "bodies": true, "require": true,                            (require: must
 *    stand) "any_domain": true,                     (instead of domains: those that a policy's
 *    inject names) "insecure": true}                                           also over plain HTTP
 *
 * and the value is a text; for basic "user:password"; for headers an object {name: value}; for
 * aws-sigv4 {"access_key_id", "secret_access_key", "session_token"}; for oauth2 {"token_url",
 * "client_id", "client_secret", "client_auth": "basic" | "body", "refresh_token", "scope"}, of
 * which token_url is https and its host (with the port where that is not 443) is bind's token_host.
 * The access token that such a value is exchanged for is sealed apart and never stored
 * (credential_seal_token).
 *
 * Values are in memory that is wiped before it is freed, and appear in no log and no error. */

#include "base/err.h"
#include "policy/stack.h"

#include <jansson.h>

#define CREDENTIAL_VALUE_MIN      8u /* a shorter one would be found in everything */
#define CREDENTIAL_VALUE_MAX      8192u
#define CREDENTIAL_HEADERS_MAX    20u
#define CREDENTIALS_MAX           64u /* one for each injection of a policy */
#define CREDENTIAL_KEY_BYTES      32u
#define CREDENTIAL_SEALED_MAX     32768u /* of the base64 text */
#define CREDENTIAL_PARAMETER_SIZE 65u
#define CREDENTIAL_PLACEMENTS_MAX 16u /* headers that a placeholder may stand in */

enum credential_kind {
    CREDENTIAL_BEARER,
    CREDENTIAL_BASIC,
    CREDENTIAL_HEADER,
    CREDENTIAL_HEADERS,
    CREDENTIAL_QUERY,
    CREDENTIAL_SIGV4,
    CREDENTIAL_OAUTH2,
    CREDENTIAL_PLACEHOLDER
};

struct sealer;

/* key_fd: 32 bytes to read, or -1: STATE/seal.key, made if there is none. */
enum err_code sealer_new(const char *state_dir, int key_fd, struct sealer **out, struct err *e);
void sealer_free(struct sealer *s);

/* A key for another purpose that lasts as long as the sealer's own. 0 or -ENOMEM. */
int sealer_derive(const struct sealer *s, const char *purpose,
                  unsigned char out[static CREDENTIAL_KEY_BYTES]);

/* {"tenant", "name", "value", "bind"}, checked whole -> base64, malloc'd. */
enum err_code credential_seal(const struct sealer *s, const json_t *request, char **out,
                              struct err *e);

/* base64, malloc'd: an access token of the credential `item` ({"name", "bind"}), {"access_token",
 * "previous"?, "serial", "at_ms", "end_ms", "after_401"}. Its additional data differ from those of
 * a value. */
enum err_code credential_seal_token(const struct sealer *s, const char *tenant, const json_t *item,
                                    const json_t *token, char **out, struct err *e);

/* The value of {"name", "sealed", "bind"}, checked, for who renews it: the caller's, and wiped when
 * freed. */
enum err_code credential_open_value(const struct sealer *s, const char *tenant, const json_t *item,
                                    json_t **out, struct err *e);

struct credential_header {
    char *name, *value;
};

/* Of kind oauth2: how it is renewed, and the access token of now, which is the credential's `value`
 * (NULL: none). */
struct credential_oauth {
    char *token_host; /* of bind */
    char *token_url, *client_id, *client_secret, *refresh_token, *scope;
    bool in_body;          /* the client is named in the body, not in Authorization */
    char *previous;        /* an access token that may still be valid: searched for */
    uint64_t serial;       /* of the access token; 0: there is none */
    int64_t at_ms, end_ms; /* by the real clock: when it was got, and when it ends */
    bool after_401;        /* it was got because the one before was refused */
    bool rejected;         /* a server has answered 401 to it */
    char *refused;         /* why there is no newer one; NULL: not known */
    bool final;            /* and will not be before the owner sets the credential anew */
    uint64_t retry_ms;     /* else from then on it may be asked for again; by the monotonic clock */
    uint64_t requested_ms; /* cayd was asked to have it renewed then; 0: not yet */
};

struct credential {
    char name[POLICY_CREDENTIAL_MAX + 1];
    enum credential_kind kind;
    bool insecure;
    bool any_header, in_target, in_bodies, require, any_domain; /* of kind placeholder */
    char *in_headers[CREDENTIAL_PLACEMENTS_MAX]; /* none: those that keys are usual in */
    size_t in_header_count;
    struct policy *bound;
    char *header, *prefix, *parameter, *region, *service; /* NULL where bind has none */
    char *value; /* of the kinds with one text; of basic "user:password" */
    struct credential_header headers[CREDENTIAL_HEADERS_MAX];
    size_t header_count;
    char *access_key_id, *secret_access_key, *session_token; /* of aws-sigv4 */
    struct credential_oauth oauth;
};

struct response_secrets_cache;

/* The credentials of a sandbox; shared by it and by connections that still use it. */
struct credentials {
    unsigned refs;
    struct response_secrets_cache *searched; /* response_secrets.c's */
    size_t count;
    struct credential list[];
};

/* [{"name", "sealed", "bind"}] of a tenant; whole or not at all. */
enum err_code credentials_new(const struct sealer *s, const char *tenant, const json_t *json,
                              struct credentials **out, struct err *e);
struct credentials *credentials_ref(struct credentials *c);
void credentials_unref(struct credentials *c);

#define CREDENTIALS_NAMES_MAX 900u /* of the audit log's texts, which are cut */

/* "A, B" of those whose bits are set; beyond CREDENTIALS_NAMES_MAX bytes the number of the others.
 * malloc'd; NULL: out of memory. */
char *credentials_names(const struct credentials *c, uint64_t which);

const struct credential *credentials_find(const struct credentials *c, const char *name, size_t n);

/* An access token on a request, until its answer is there. NULL: memory is out; freeing NULL is
 * nothing. */
struct credential_use;
struct credential_use *credential_use_new(struct credentials *all, const struct credential *c);
void credential_use_free(struct credential_use *use);

/* The server has answered 401: the token counts as spent. A token that was renewed because of such
 * an answer counts as good for a minute: a further 401 has other reasons then. */
void credential_use_rejected(const struct credential_use *use);

/* Does its own binding allow this request? host is normalized, NULL: dialled by address. */
enum policy_fit credential_fits(const struct credential *c, const char *host, uint16_t port,
                                struct policy_transport transport, const char *method,
                                const char *path);

/* Could any request to that host have it? */
bool credential_knows(const struct credential *c, const char *host, uint16_t port);

/* May a placeholder of it stand in that header? */
bool credential_goes_in(const struct credential *c, const char *header);

/* Is it a header that servers take a key from? Of those, a request has only what is put there. */
bool credential_is_key_header(const char *name);

bool credential_is_name(const char *name, size_t n);

/* Wipes and frees a text. */
void credential_wipe(char *text);
