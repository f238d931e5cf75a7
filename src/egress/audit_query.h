#pragma once
/* GET /v1/audit and /v1/audit/verify: reads the log on libuv's helper thread, so that the loop goes on
 * however long the log is. */

#include "egress/egress.h"

#define AUDIT_QUERY_MAX 10000u

/* ?tenant=&sandbox=&verdict=allow|deny&since=RFC3339&limit=N&follow=1: the newest N (100) that fit,
 * oldest first, then with follow those to come. */
void audit_query_start(struct egress *eg, struct http_exchange *x);

/* {"ok", "lines", "broken_line", "file", "cut_lines"} */
void audit_verify_start(struct egress *eg, struct http_exchange *x);
