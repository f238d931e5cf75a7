#pragma once
/* Refusals that help: in the words of what the client speaks, with what was refused, by which rule,
 * and what is allowed instead. Nothing in them is unescaped that an attacker chose. */

#include "base/buf.h"
#include "base/err.h"
#include "policy/policy.h"

#include <jansson.h>

struct flow;
struct sandbox;
struct target;

#define DENY_BODY_MAX 8192u
#define DENY_HEADER   "x-cay-denied"
#define DENY_ANY_NAME "*" /* the name of a refusal that is of no destination */
#define DENY_RETRY_S  "1" /* Retry-After of what is refused for its rate or number */

/* Refused TLS connections whose handshake is finished so that the refusal can be said inside: so
 * many a second of a sandbox; the others get the alert. A handshake costs a signature. */
#define DENY_HANDSHAKES_PER_SECOND 20u
/* A refused client that was told so inside TLS is cut after it: its next connection is evaluated
 * anew. */
#define DENY_CONNECTION_MS 10000u

/* Notes a refusal of the flow (its rule and reason): the sandbox's ring, the log, who watches.
 * method and path are a request's, or NULL. */
void deny_note(struct flow *f, const struct policy_verdict *v, const char *method,
               const char *path);

/* A refusal that is no flow's: the sandbox's ring, and who watches. reason is copied. */
void deny_note_sandbox(struct sandbox *s, const char *rule, const char *reason);

/* Says it to the client of f, whatever that speaks; looks first if that is not known yet. */
void deny_say(struct flow *f);

/* The status for an HTTP client: 403; 429 where it may try again; 502 or 504 where no server was
 * reached. */
int deny_status(const struct flow *f);

/* It was allowed, but could not be reached: said likewise, and not as a refusal. */
void deny_unreachable(struct flow *f, const struct err *why);

/* policy_explain of a target. */
void deny_explain(const struct policy *p, const struct policy_verdict *v, const struct target *t,
                  const char *method, const char *path, char out[static POLICY_REASON_SIZE]);

/* {"type": "error", "error": {"type": error, "code": error, "message", "param": null}, "message",
 * "rule", "sandbox_allows": [...], "help"}: the shapes in which the SDKs of model APIs look for a
 * message. Of message, printable ASCII alone. 0 or -errno. */
int deny_body(const struct sandbox *s, const char *error, const char *rule, const char *message,
              struct buf *out);

/* The same for a client of such a User-Agent (NULL: none): npm shows "error" as its registry sends
 * it, a text, and an object as "[object Object]". */
int deny_body_for(const struct sandbox *s, const char *user_agent, const char *error,
                  const char *rule, const char *message, struct buf *out);

/* The reason phrase of the status line, "Forbidden: REASON": most programs show it where they do
 * not show a body. Of message, printable ASCII alone. */
#define DENY_PHRASE_SIZE (POLICY_REASON_SIZE + 32)
void deny_phrase(int status, const char *message, char out[static DENY_PHRASE_SIZE]);

/* The sandbox's last refusals, newest last: {"denials": [...]}. Free with json_decref; NULL when
 * memory is out. */
json_t *deny_list(const struct sandbox *s);

/* The same as text, a line each: time and reason. 0 or -errno. */
#define DENY_LINE_MAX 640u
int deny_lines(const struct sandbox *s, struct buf *out);
