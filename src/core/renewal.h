#pragma once
/* cayd decides when a credential of kind oauth2 is renewed, so that every credential has one
 * renewal under way however many sandboxes, and processes of cay-egress, use it (a refresh token
 * that is used twice is taken for a stolen one by many servers). A process of cay-egress does it
 * (egress/flow/renew.h): always the same one for a credential, by the hash of its name, since that
 * alone knows what came of a renewal that this program did not live to write. While it is not up,
 * nothing is renewed, and requests wait.
 *
 *   cay-egress: "renewal" on GET /v1/events    a request needs a newer access token than the
 *   sandbox has here: POST /v1/renewals                    to one process; nothing is asked twice
 *   at a time cay-egress: token, perhaps a new record    both sealed
 *   here: the record is written, to the disk   before the old one is forgotten
 *   here: PUT of every sandbox that uses it    with the sealed token, or why there is none
 *
 * Nothing of it is ever here in clear. Access tokens are in memory alone: after a restart the first
 * request has its credential renewed. */

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct core;
struct sandbox;

/* credentials that have a token or a refusal, shared out by tenant */
#define RENEWALS_MAX          4096u
#define RENEWALS_AT_ONCE      32u   /* under way, shared out by tenant */
#define RENEWALS_EVERY_MS     1000u /* between two of one credential */
#define RENEWALS_AGAIN_MS     5000u /* after a failure; twice as long after each, up to */
#define RENEWALS_AGAIN_MAX_MS 60000u
/* between two lines of the log about one process of cay-egress that is not up */
#define RENEWALS_AWAY_LOG_MS 60000u
/* a token that has ended, or a refusal, is forgotten after it */
#define RENEWALS_KEPT_MS 3600000

/* 0 or -ENOMEM. */
int renewals_init(struct core *c);
void renewals_free(struct core *c);

/* cay-egress: a request of s needs a newer token of the credential than serial. rejected: a server
 * has refused that. */
void renewals_wanted(struct core *c, const struct sandbox *s, const char *name, uint64_t serial,
                     bool rejected);

/* Adds the token and its state to item, a tenant's credential as cay-egress takes it: "token",
 * "refused". 0, or -1: memory is out. */
int renewals_add(struct core *c, const char *tenant, json_t *item);

/* The owner has set it anew, or removed it. */
void renewals_forget(struct core *c, const char *tenant, const char *name);
