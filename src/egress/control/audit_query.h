#pragma once
/* GET /v1/audit and /v1/audit/verify: reads the log on libuv's helper threads, so that the loop
 * goes on however long the log is. A tenant's questions read the tenant's own files, newest first,
 * and end where they have enough.
 *
 * AUDIT_QUERIES_AT_ONCE are worked on at a time; the others wait in turn. A question for lines
 * gives its place up after AUDIT_SLICE_BYTES and waits for another, and so does a check of the
 * chains (verify, the operator's); those of one tenant run side by side only where no other
 * tenant's wait. So a long log delays others by a slice. A question whose client is gone ends at
 * the next block. The threads that read have a lower priority than the loop. */

#include <stddef.h>

#define AUDIT_QUERY_MAX       10000u
#define AUDIT_QUERIES_AT_ONCE 2u /* of libuv's threads: main.c */
#define AUDIT_SLICE_BYTES     ((size_t)4 * 1024 * 1024)
#define AUDIT_QUERIES_EACH    2u  /* of a tenant, with those that wait */
#define AUDIT_QUERIES_MAX     16u /* of all, shared by tenant (base/share.h) */

struct audit_queries;
struct egress;
struct http_exchange;

int audit_queries_new(struct egress *eg, struct audit_queries **out);

/* ?tenant=&sandbox=&verdict=allow|deny&since=RFC3339&limit=N&follow=1: the newest N (100) that fit,
 * oldest first, then with follow those to come. */
void audit_query_start(struct egress *eg, struct http_exchange *x);

/* {"ok", "lines", "broken_line", "file", "cut_lines", "rotated_out", "logs"} */
void audit_verify_start(struct egress *eg, struct http_exchange *x);
