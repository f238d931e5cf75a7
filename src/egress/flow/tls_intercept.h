#pragma once
/* TLS of a connection that is read, on both of its sides, from the ClientHello to where requests
 * come.
 *
 * A client that offers HTTP/2 is answered when its server has been: that is dialled first and asked
 * for what the client offers (h2, http/1.1), and the client gets what the server chose, so that
 * both speak the same and nothing is translated. HTTP/2 goes on in h2_flow.c, HTTP/1.1 in
 * forward.c. A server that was not reached is told of in HTTP/2, to each request. A client that
 * offers no HTTP/2 is answered at once, and its server is dialled for each request. */

#include "base/err.h"
#include "egress/tls/tls_endpoint.h"

#include <openssl/ssl.h>
#include <stdint.h>

struct egress;
struct flow;

/* Where POLICY_INSPECT meets TLS, and where a refusal does: then the client is told so once
 * its handshake is through, and nothing is dialled. The ClientHello is still unread in f->fd,
 * f->sni is its name (or NULL), f->target where to. 0: the interceptor owns f->fd (it sets it
 * to -1), ends with flow_end(f), hands the end whose handshake is done to forward_adopt.
 * -errno: refused, reason in *e. */
int tls_intercept_start(struct egress *eg, struct flow *f, struct err *e);

/* For a flow that was intercepted: makes TLS of a connection that was just dialled to f's target
 * and verifies it strictly. cb gets the end (it takes it over, copied), or NULL and why, never from
 * inside this call. fd is taken over in every case. 0, or -errno: too many handshakes, or memory is
 * out; cb does not come then. */
int tls_intercept_upstream(struct egress *eg, uint64_t flow_id, int fd, const char *name,
                           void (*cb)(void *arg, const struct tls_endpoint *end,
                                      const struct err *why),
                           void *arg);

/* The same for a connection of this program's own. */
int tls_intercept_client(struct egress *eg, int fd, const char *name, const char *tenant,
                         void (*cb)(void *arg, const struct tls_endpoint *end,
                                    const struct err *why),
                         void *arg);

/* Lets ctx, which is for clients, choose what was found out. */
void tls_intercept_choose(SSL_CTX *ctx);
