#pragma once
/* Answers of the toolbox, and errors in Daytona's shape. */

#include "base/buf.h"
#include "base/err.h"
#include "http/server.h"

#include <jansson.h>

struct toolbox_call;

/* Each answers once; without a client they do nothing. Takes the reference to body. */
void toolbox_reply_json(struct toolbox_call *c, int status, json_t *body);
void toolbox_reply_empty(struct toolbox_call *c, int status);
void toolbox_reply_text(struct toolbox_call *c, const char *json, size_t len); /* 200; copied */

/* {"statusCode", "message", "code", "source", "timestamp", "path", "method"}. code: one of
 * Daytona's words; NULL: that of the status. */
void toolbox_fail(struct toolbox_call *c, int status, const char *code, const char *fmt, ...)
    PRINTF(4, 5);
json_t *toolbox_error_json(const struct toolbox_call *c, int status, const char *code,
                           const char *message);

/* The message as it leaves in any error: with "file not found" for the system's words for what is
 * not there, as clients that look for words take "directory" in them for another failure.
 * Returns out. */
char *toolbox_error_text(const char *message, char *out, size_t size);

/* Answers with the reason why cayd did not reach the agent. */
void toolbox_fail_err(struct toolbox_call *c, const struct err *why);

/* A refusal of the agent's, {"code", "message"}, about a file: in Daytona's words, by which clients
 * tell errors apart. Returns the status; code is a literal. */
int toolbox_file_error(int status, const char *body, size_t len, const char *path,
                       const char **code, char *message, size_t size);
/* The same code where the whole answer is that error: INVALID_FILE_PATH is in no contract's list of
 * codes, and upstream says it in the parts of an answer of many files alone, which clients read
 * without that list. */
const char *toolbox_whole_code(const char *code);
void toolbox_fail_file(struct toolbox_call *c, const struct http_head *head, const char *body,
                       size_t len, const struct err *why, const char *path);

/* A handler: 501 with the route's note. */
void toolbox_unsupported(struct toolbox_call *c);

/* Adds "name": text, whose bytes may be any, to a JSON object in the making. 0 or -errno. */
int toolbox_put_text(struct buf *b, const char *name, const char *text, size_t len);
