#pragma once
/* Sends cayd's traces to the operator's collector: POST /v1/traces of cayd, whose body is what the
 * collector gets (OTLP in JSON). Answered with what it said, or why there is no answer:
 *
 *   {"status": 200} or {"failed": why}
 *
 * Where the collector is says this program's own configuration ([traces] otlp_url), and no message
 * of cayd's: an address in digits, which may be private or this host's, in plain HTTP. Each is one
 * request; a redirect is not followed, and of the answer only the status is read. cayd decides
 * about further attempts (core/trace_send.c).
 *
 * Its address is never reached from a sandbox, whatever a policy says (hostaddr.h). */

#include <stddef.h>

#define COLLECTOR_AT_ONCE  2u /* requests under way */
#define COLLECTOR_ANSWER   4096u
#define COLLECTOR_TIME_MS  10000u
#define COLLECTOR_BODY_MAX (512u * 1024u) /* as cayd's batch at the most: core/trace.h */

struct egress;
struct http_exchange;

/* Answers x, now or later. */
void collector_post(struct egress *eg, struct http_exchange *x, const char *body, size_t len);
