#pragma once
/* An HTTPS request that this program makes itself for a tenant: to the token server of a credential
 * (renew.c), to a webhook's address (delivery.c).
 *
 * The name is resolved here, and each address is held against POLICY_NEVER and the ceilings (the
 * operator's and the tenant's), under a policy that allows that name and port and nothing else. TLS
 * is not optional; chain and name are verified. A call is one request; a redirect is not followed.
 *
 * A call is part of its owner's struct, which calls https_call_clear when it goes, and not before
 * one of failed or answered was called. It cannot be ended from here: each of its steps has a
 * time. */

#include "egress/flow/sandbox.h"
#include "egress/flow/target.h"
#include "policy/https_url.h"

#include <jansson.h>

#define HTTPS_CALL_MS 30000u /* for the request, once TLS is there */

struct http_head;
struct http_header;

struct https_call_uses {
    const char *peer; /* "the token server": how errors begin */
    /* The request is to be made, by https_call_send; else the connection is closed, and the call is
     * over. The call lives until this returns. */
    void (*connected)(void *arg);
    /* why is ERR_UNAVAILABLE or ERR_EXHAUSTED. denied: a rule said no, and nothing was sent. */
    void (*failed)(void *arg, bool denied, const struct err *why);
    void (*answered)(void *arg, const struct http_head *head, const char *body, size_t len);
};

struct tls_endpoint;

struct https_call {
    struct egress *egress;
    struct https_call *prev, *next; /* on the egress's list, while it is dialled */
    uint64_t id;
    const struct https_call_uses *uses;
    void *arg;
    struct https_url url;
    struct sandbox as; /* whom the dialler asks about: the rules of this call alone */
    struct target target;
    struct tls_endpoint *end; /* within connected */
};

/* c is zero but for url. tenant and sandbox ("": none) are for the log and the rules. ceilings: a
 * list of policies. ERR_INVALID, ERR_EXHAUSTED: https_call_clear is needed all the same. */
enum err_code https_call_init(struct https_call *c, struct egress *eg, const char *tenant,
                              const char *sandbox, const json_t *ceilings, struct err *e);
void https_call_clear(struct https_call *c);

/* None of uses is called from inside, unless memory is out. */
void https_call_start(struct https_call *c, const struct https_call_uses *uses, void *arg);

/* From inside connected: a POST. Headers and body are copied. 0, or -errno: nothing was sent, and
 * the call is over. */
int https_call_send(struct https_call *c, const struct http_header *headers, size_t n,
                    const void *body, size_t len, size_t answer_max);
