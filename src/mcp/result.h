#pragma once
/* The answers of tools: a result with text for the model and the same as an object (the tool's
 * output schema), or an error result, which tells the model what was tried, why not, and what to
 * do. Each ends the request. */

#include "mcp/request.h"

/* Takes the reference to structured, and adds "sandbox" to it. text: what the model reads. */
void result_done(struct request *r, json_t *structured, const char *text, size_t len);

/* The same with one more item of content before the text: a new reference. */
void result_done_with(struct request *r, json_t *item, json_t *structured, const char *text,
                      size_t len);

void result_fail(struct request *r, const char *fmt, ...) PRINTF(2, 3);
void result_fail_err(struct request *r, const struct err *e);
void result_no_memory(struct request *r);

/* Answers for an agent that could not be asked or answered other than 2xx. True: it was so, and the
 * request was answered. what: "reading /etc/x". */
bool result_agent_failed(struct request *r, const char *what, const struct err *why, int status,
                         const char *body, size_t len);
