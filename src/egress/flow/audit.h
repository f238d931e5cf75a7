#pragma once
/* The log of decisions: one JSON object in each line, in a chain for each tenant (audit_store.h:
 * the files, whose bytes are shared out by tenant; audit_chain.h: making one, and following it).
 *
 * There is a line for each decision when it is made, so that nothing that was let through is
 * missing if the program is killed; one more at the end of what was let through, with bytes and
 * duration. Refusals beyond AUDIT_REFUSALS_PER_SECOND of a sandbox are counted, and the number is
 * recorded each second. Lines leave in one write a turn of the loop. */

#include "base/err.h"
#include "policy/policy.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct audit;
struct audit_store;
struct egress;
struct flow;
struct sandbox;
struct target;

#define AUDIT_REFUSALS_PER_SECOND 100u /* of a sandbox and its commands */

enum audit_event {
    AUDIT_CONNECTION,
    AUDIT_REQUEST,
    AUDIT_END,
    AUDIT_REFUSED,
    AUDIT_RENEWAL,
    AUDIT_DELIVERY,
    AUDIT_INJECTION /* placeholders in the body of a request that was let through */
};

struct audit_record {
    enum audit_event event;
    const struct sandbox *sandbox;
    const struct flow *flow;     /* NULL with AUDIT_REFUSED, AUDIT_RENEWAL, AUDIT_DELIVERY */
    const struct target *target; /* NULL: the flow's */
    bool allowed;
    const char *rule; /* or preset, default; or what else refused: "sni", "limit" */
    enum policy_source source;
    bool warned; /* the policy would deny it, and only warns */
    /* of what was allowed and dialled: "connected", "unreachable", "failed"; or NULL */
    const char *outcome;
    const char *reason;            /* of a refusal, or why it is not reached; may be NULL */
    const char *method, *path;     /* of a request; the path is cut at its '?' */
    const char *credential;        /* name of what was put on it, or NULL */
    uint64_t up_bytes, down_bytes; /* with AUDIT_END */
    uint64_t duration_ms;
    uint64_t count; /* with AUDIT_REFUSED: how many were not recorded one by one */
};

enum err_code audit_open(struct egress *eg, struct audit **out, struct err *e);
void audit_free(struct audit *a);

/* Written before anything passes; needs no memory for a tenant whose log there is (audit_prepare),
 * and ends the process where a decision cannot be recorded. */
void audit_record(struct audit *a, const struct audit_record *r);

/* There is a log for that tenant's decisions; false: memory is out. */
bool audit_prepare(struct audit *a, const char *tenant);

/* A refusal: recorded, or counted where its sandbox has too many of them. */
void audit_refusal(struct audit *a, const struct audit_record *r);

/* Writes the counts of s, which may be about to end. */
void audit_summary(struct audit *a, struct sandbox *s);

struct audit_store *audit_files(const struct audit *a);

/* Writes what this turn has decided so far. */
void audit_flush(struct audit *a);

/* Calls cb with each new line (without its newline) from now on. Its id, or 0
 * when there are too many. */
uint64_t audit_follow(struct audit *a, void (*cb)(void *arg, const char *line, size_t n),
                      void *arg);
void audit_unfollow(struct audit *a, uint64_t id);
