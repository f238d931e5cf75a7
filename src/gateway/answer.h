#pragma once
/* Answers of the gateway itself: E2B's JSON forms, or a small page for a browser. */

#include "gateway/resolve.h"
#include "http/server.h"

void answer_not_found(struct http_exchange *x, const char *id);
/* It was paused while the request was under way, and had said nothing. */
void answer_paused(struct http_exchange *x, const char *id);
void answer_port_closed(struct http_exchange *x, const char *id, uint16_t port);
/* The agent is there and does not answer. why: the answer that was waited for. */
void answer_stuck(struct http_exchange *x, const char *id, const char *why);
void answer_refused(struct http_exchange *x, const struct gateway_answer *a);

/* Does the client prefer HTML (a browser's navigation)? Exported for tests. */
bool answer_wants_html(const struct http_head *h);
