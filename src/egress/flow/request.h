#pragma once
/* The checks of every request that is read, of any version of HTTP (forward.c, h2_flow.c): the
 * policy, the rate, its place in the audit log and among the denials. */

#include "base/util.h"
#include "http/message.h"
#include "policy/policy.h"

#include <stdbool.h>
#include <stdint.h>

struct flow;
struct sandbox;
struct target;

/* Sandbox and ceilings. resolved: t->address is what was dialled, and is asked about too. A request
 * with a second path in its headers (override.h) is evaluated for that path, too, by its method and
 * for GET; the narrower verdict counts. */
struct policy_verdict request_decide(const struct sandbox *s, const struct target *t, bool resolved,
                                     const struct http_head *h);

/* Which of s->credentials does `inject` name for that request, which is allowed? Bit i: the i-th.
 * Of a request with a second path only those that are named for it too. */
uint64_t request_injects(const struct sandbox *s, const struct target *t, bool resolved,
                         const struct http_head *h);

/* Is it decided by method or path what may go there? Then no header may say another: override.h. */
bool request_is_ruled(const struct sandbox *s, const struct target *t);

/* Takes a request from the sandbox's rate; false: none is left. */
bool request_in_rate(struct sandbox *s);

/* The requests that are left in the rate at this moment. */
uint32_t request_rate_left(const struct sandbox *s);

/* It is not let through: noted with what it asked for. f->rule and f->reason are what is to be
 * said. v may be NULL where it was no policy's word; rule is then what refused. */
void request_refuse(struct flow *f, const struct policy_verdict *v, const char *rule,
                    const struct http_head *h, const char *fmt, ...) PRINTF(5, 6);
void request_refuse_by_policy(struct flow *f, const struct target *t,
                              const struct policy_verdict *v, const struct http_head *h);

/* It is let through: f->rule is v's, the flow counts as dialled. */
void request_allow(struct flow *f, const struct target *t, const struct policy_verdict *v,
                   const struct http_head *h);

/* struct inject_watch's, with struct egress: a record of the credentials that a body carries. */
void request_note_injected(void *egress, uint64_t flow_id, const char *method, const char *path,
                           const char *names);

/* Has an answer of that status DENY_HEADER? */
bool request_is_denial(int status);

#define REQUEST_HOST_REASON "Host is not the host that was dialled"
#define REQUEST_SECOND_REASON \
    "the header %s names a second path, and not every method and path of this host is allowed"
#define REQUEST_RATE_REASON      "too many requests in this second"
#define REQUEST_MALFORMED_REASON "the request does not say plainly whom it is for"
