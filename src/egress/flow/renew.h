#pragma once
/* Renews a credential of kind oauth2 (RFC 6749 section 6): POST /v1/renewals of cayd,
 *
 *   {"tenant", "sandbox", "credential": {"name", "bind", "sealed"}, "ceilings": [...], "serial",
 *    "after_401", "previous": a sealed token or nothing}
 *
 * answered when its token server has answered:
 *
 *   {"token": sealed, "serial", "end_ms"}            what /v1/sandboxes/... takes with the
 *   credential {..., "sealed": record}                          the refresh token was replaced:
 *   this record takes its place {"refused": why, "final": bool}                  final: not before
 *   the owner sets the credential anew
 *
 * How the token server is reached is https_call.h's. It is the host that bind names, which is
 * authenticated with the value. Secrets are in memory that is wiped; an answer to cayd has them
 * sealed only.
 *
 * A refresh token that was replaced is of use no more. So what came of such a renewal is kept
 * RENEW_KEPT_MS, and told again to a cayd that asks with the old record: one that was killed before
 * it had written the new one loses nothing. For the same reason a renewal goes on after cayd has
 * gone, or was told that it takes too long. */

#include <stddef.h>

#define RENEW_MAX        32u    /* under way in a process, shared out by tenant and credential */
#define RENEW_WAIT_MS    15000u /* then cayd is told that it takes too long */
#define RENEW_ANSWER_MAX 65536u /* bytes of a token server's answer */
#define RENEW_KEPT_MS    600000u
#define RENEW_KEPT_MAX   256u /* outcomes of renewals; the oldest go */

struct egress;
struct http_exchange;
struct renewals;

/* eg->intercept is set. 0 or -errno. */
int renewals_new(struct egress *eg, struct renewals **out);

/* Answers x, now or later. body is wiped by the caller. */
void renewals_start(struct renewals *r, struct http_exchange *x, const char *body, size_t len);
