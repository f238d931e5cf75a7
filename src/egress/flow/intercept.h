#pragma once
/* TLS that is read (tls_intercept.c: a leaf of the tenant's CA towards the sandbox,
 * strict verification towards the server), and credentials. tlshand.c, h2.c, ca.c, credential.c and
 * inject.c do the work; here they meet flows.
 *
 * HTTP/1.1 and HTTP/2: a client that offers neither gets the alert no_application_protocol. */

#include "base/err.h"
#include "egress/http/inject.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct credentials;
struct egress;
struct flow;
struct http_exchange;
struct http_head;
struct http_relay_options;
struct intercept;
struct policy_verdict;
struct sandbox;
struct target;

struct intercept_config {
    const char *ca_file; /* PEM of CAs to trust besides the system's, or NULL */
    int key_fd;          /* 32 bytes that credentials are sealed with, or -1: STATE/seal.key */
};

/* Reads ca_file and the key; both may be gone after it. eg->config.state_dir is set. Sets
 * eg->names_key, and eg->intercept, without which none of what follows may be called. */
enum err_code intercept_new(struct egress *eg, const struct intercept_config *c, struct err *e);

/* The credentials that are put on a request, and searched for in its answer, by the policies of the
 * flow's sandbox.
 * t: where to, with the name that the request says; dialed: is that flow's server connected; tls:
 * it leaves encrypted; credential: of its verdict, or NULL. Borrows all of them. */
struct inject_request intercept_request(struct flow *f, const struct target *t, bool dialed,
                                        bool tls, const struct http_head *h,
                                        const char *credential);

/* Makes what v->credential says of the request: fills o->add and o->remove, from the exchange's
 * arena. v->credential becomes the names of what is put on it, or NULL. tls: the
 * request leaves encrypted. t: where to, dialled, with the name that the request says. An error
 * refuses the request. */
enum err_code intercept_prepare(struct flow *f, const struct target *t, struct http_exchange *x,
                                struct policy_verdict *v, bool tls, struct http_relay_options *o,
                                struct err *e);

/* Those whose values answers to s may not show: of a command with a policy of its own the whole
 * sandbox's, whatever of them the command may use. Its files are the sandbox's. NULL: none. */
const struct credentials *intercept_searched(const struct sandbox *s);

/* The "credentials" of a sandbox's PUT: checked whole. The caller's reference:
 * credentials_unref. */
enum err_code intercept_credentials_new(struct egress *eg, const char *tenant, const json_t *json,
                                        struct credentials **out, struct err *e);

/* GET /v1/ca/{tenant}, POST /v1/seal: answers the exchange; body is wiped. */
void intercept_answer_ca(struct egress *eg, struct http_exchange *x, const char *tenant);
void intercept_answer_seal(struct egress *eg, struct http_exchange *x, char *body, size_t len);
