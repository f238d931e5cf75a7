#pragma once
/* HTTP that is read: every request is checked against the policy, given its credential, and relayed
 * to what was dialled for it. Transparent connections (one origin), requests to the proxy in
 * absolute form, what was decrypted (tls), and cay.internal (page.h). */

#include <stdbool.h>

struct egress;
struct flow;
struct forward;
struct policy_verdict;

int forward_new(struct egress *eg, struct forward **out);

/* Serves HTTP from fd, which is f's own (f->fd becomes -1) or an interceptor's plain end; it is
 * taken over on success. The flow ends with it. tls: what arrives was encrypted to f->target.name,
 * and goes on encrypted. 0 or -errno. */
int forward_adopt(struct egress *eg, struct flow *f, int fd, bool tls);

/* The policy changed: may the request that f carries just now (or no request) go on? *v is set when
 * it may not. */
bool forward_recheck(struct flow *f, struct policy_verdict *v);

/* Its request that waits for a credential is looked at again, if one does. */
void forward_again(struct flow *f);
