#pragma once
/* The destination of an HTTP request: its Host, and its target where that is in absolute form,
 * against the dialled one. */

#include "base/arena.h"
#include "http/message.h"
#include "policy/policy.h"

#include <stdbool.h>

struct sandbox;
struct target;

#define AUTHORITY_HTTP_PORT  80u
#define AUTHORITY_HTTPS_PORT 443u

/* The same name, or the same address; ports are not looked at. */
bool authority_check_same(const struct target *a, const struct target *b);

/* "name", "192.0.2.1" or "[2001:db8::1]"; lives in out or in t. */
const char *authority_check_text(const struct target *t, char out[static INET6_ADDRSTRLEN + 2]);

/* An authority that was found to agree, as it was judged: its name in lower case and without a
 * final dot, its address in its usual form, its port where one was said that is not the scheme's
 * own. A server is not left to read the client's spelling otherwise. NULL: memory is out. */
const char *authority_check_canonical(const char *text, uint16_t scheme_port, struct arena *a);

/* To the proxy itself: the target's authority says where to, into *out (its name into room), and
 * Host must say the same. 0, or the status to refuse it with. */
int authority_check_proxy(const struct sandbox *s, const struct http_head *h, struct target *out,
                          char name_buffer[static POLICY_NAME_MAX + 1]);

/* To an origin that was dialled: all that the head says must agree with it. Where that was an
 * address, a name that is said becomes dialed->said, in room, unless there is one: then it must be
 * that. The policy is then asked about both (request_decide). 0, or the status to refuse it
 * with. */
int authority_check_origin(const struct http_head *h, struct target *dialed,
                           char name_buffer[static POLICY_NAME_MAX + 1]);
