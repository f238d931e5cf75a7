#pragma once
/* Connections that wait for their owner's yes: where a policy's mode is `ask`, what nothing allows
 * is held, an event tells the owner, and the answer lets it through or refuses it. A held
 * connection is bounded in number and time, it keeps its place among all connections, and nothing
 * is dialled or asked outside for it.
 *
 * An answer holds for the connections that wait, or for the sandbox's life (as long as this program
 * lives). It is one to `nothing allows it` alone: what a rule, a ceiling or POLICY_NEVER denies is
 * never asked about, and a yes does not reach it (policy_verdict.asks). A name's yes opens only
 * public addresses; an address's yes opens that address. */

#include <jansson.h>
#include <stdbool.h>

struct flow;
struct sandbox;

#define ASKS_WAIT_MS  60000u /* of one question */
#define ASKS_EACH_MAX 16u    /* connections of a sandbox and its commands that wait */
#define ASKS_MAX      1024u  /* of all, shared out by tenant and sandbox */

enum asks_answer { ASKS_NO, ASKS_YES, ASKS_UNFOLLOWED /* follows the tenant's events */ };

/* Holds f, or refuses it with the reason. */
void asks_hold(struct flow *f);

/* The policy changed while f waited. */
void asks_recheck(struct flow *f);

/* f ends, or goes on: its place is free again. */
void asks_forget(struct flow *f);

/* An answer to the question of that id, of s itself or a command sandbox of it. always: also for
 * what comes later. 0; -ENOENT: there is no such question (any more); -ENOSPC: ASKS_ANSWERS_MAX are
 * kept, and it was not answered. */
int asks_take(struct sandbox *s, const char *id, enum asks_answer answer, bool always);

/* {"asks": [...]} of s and its command sandboxes. Free with json_decref; NULL when memory is
 * out. */
json_t *asks_list(const struct sandbox *s);
