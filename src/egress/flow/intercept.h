#pragma once
/* Fills struct egress_hooks: TLS that is read (tls_intercept.c: a leaf of the tenant's authority towards the sandbox,
 * strict verification towards the server), and credentials. tlshand.c, tlspipe.c, h2.c, ca.c, credential.c
 * and inject.c do the work; here they meet flows.
 *
 * HTTP/1.1 and HTTP/2: a client that offers neither gets the alert no_application_protocol. */

#include "egress/flow/egress.h"

struct intercept;

struct intercept_config {
    const char *ca_file; /* PEM of authorities to trust besides the system's, or NULL */
    int key_fd;          /* 32 bytes that credentials are sealed with, or -1: STATE/seal.key */
};

/* Reads ca_file and the key; both may be gone after it. eg->config.state_dir is set. Sets eg->hooks and
 * eg->intercept. */
enum err_code intercept_new(struct egress *eg, const struct intercept_config *c, struct err *e);
