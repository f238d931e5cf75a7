#pragma once
/* HTTP that is read: every request is checked against the policy, given its credential, and relayed
 * to what was dialled for it. Transparent connections (one origin), requests to the proxy in
 * absolute form, decrypted requests (tls), and cay.internal (local_info_page.h). */

#include <stdbool.h>

struct egress;
struct flow;
struct forward;
struct policy_verdict;
struct tls_endpoint;

int forward_new(struct egress *eg, struct forward **out);

/* Serves HTTP to f's client: from f->fd, which becomes -1, or with TLS from that end, whose
 * handshake is done: what arrives was encrypted to f->target.name, and goes on encrypted.
 * server: with TLS, connected to f->target for its first request (fd -1: none). All are taken
 * over on success, f->up_fd too, and the flow ends with them. 0 or -errno. */
int forward_adopt(struct egress *eg, struct flow *f, const struct tls_endpoint *client,
                  const struct tls_endpoint *server);

/* The policy changed: may the request that f carries just now (or no request) go on? *v is set when
 * it may not. */
bool forward_recheck(struct flow *f, struct policy_verdict *v);

/* Its request that waits for a credential is looked at again, if one does. */
void forward_again(struct flow *f);
