#pragma once
/* Credentials of kind oauth2, from the side of a request: is there an access token for it?
 *
 * cayd decides who renews a credential and when, so that every credential has one renewal under
 * way however many sandboxes and processes of cay-egress use it (core/renewal.h); renew.h is the
 * process that does it. Here cayd is asked (event_stream.h), and the outcome arrives with the
 * sandbox's policy: an access token, or why there is none. Until then the request waits, at most
 * OAUTH_WAIT_MS; a sweep looks at it each second (policy_sweep.h). It keeps its place among
 * connections and streams, so that nothing else has to bound how many wait.
 *
 * A token is renewed when a request needs it and it is about to end (it is used meanwhile), has
 * ended, or was refused with 401 by a server. */

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct flow;
struct sandbox;

#define OAUTH_WAIT_MS  20000u /* of one request */
#define OAUTH_AGAIN_MS 2000u  /* cayd is asked again for a credential of a sandbox after it */
#define OAUTH_EARLY_MS \
    60000 /* before its end a token is renewed, or in the last tenth of its life */

enum oauth_state {
    OAUTH_READY,   /* as far as it matters: also of every other kind, and of none */
    OAUTH_WAITING, /* put the request off, and have it looked at (policy_sweep_schedule) */
    OAUTH_REFUSED /* e says why; ERR_DENIED: it stays so until the owner sets the credential anew */
};

/* About credential `name` (or NULL) of s, for a request that has waited so long already. */
enum oauth_state oauth_inspect(struct sandbox *s, const char *name, uint64_t waited_ms,
                               struct err *e);

/* The next request that waits in f is looked at again, once in a look (its number, from 1): the
 * policy, and its credentials with it, have come, or it has waited for a second more. True: there
 * may be another, unless f has ended. */
bool oauth_go_on(struct flow *f, uint64_t sweep_number);
