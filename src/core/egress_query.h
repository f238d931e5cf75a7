#pragma once
/* Requests to cay-egress for a client: a sandbox's refusals, its open questions, and the log of
 * decisions. Each answer is text as cay-egress gave it, valid during the call; done is called once,
 * never from inside. */

#include "core/core.h"

#include <stdatomic.h>

typedef void (*core_text_cb)(void *arg, const char *json, size_t len, const struct err *why);

/* {"denials": [...]}, newest last. */
void core_denials(struct core *c, const char *tenant, const char *id, core_text_cb done, void *arg);

/* {"asks": [...]}: the connections that wait for the owner's answer. */
void core_asks(struct core *c, const char *tenant, const char *id, core_text_cb done, void *arg);

/* Predicts the verdict on a connection or a request of the sandbox: question as
 * egress/control/explain.h has it, without "credentials" (a reference is kept until done is
 * called). The operator's limits count, and are not told but for what they refuse. ERR_INVALID with
 * what is wrong; ERR_UNAVAILABLE: cay-egress does not answer. */
void core_explain(struct core *c, const char *tenant, const char *id, const json_t *question,
                  core_text_cb done, void *arg);

struct core_ask_answer {
    const char *ask; /* the question's id */
    bool yes;
    bool always; /* also to what is asked later, for the sandbox's life */
};

/* json is "". ERR_NOT_FOUND: no such sandbox, or question, of the tenant's; ERR_CONFLICT: too many
 * answers are kept. */
void core_ask_answer(struct core *c, const char *tenant, const char *id,
                     const struct core_ask_answer *answer, core_text_cb done, void *arg);

/* For core: the question reaches no follower. */
struct sandbox;
void egress_ask_unfollowed(struct core *c, const struct sandbox *s, const char *ask);

#define CORE_AUDIT_MAX 10000u /* lines of one answer */

struct core_audit_filter {
    const char *sandbox, *verdict; /* NULL: any. verdict: "allow" or "deny" */
    int64_t since_ms;              /* 0: from the start */
    unsigned limit;                /* the newest so many, 1..CORE_AUDIT_MAX */
};

#define CORE_AUDITS_EACH 2u  /* questions of a tenant at a time */
#define CORE_AUDITS_MAX  16u /* of all, shared out by tenant */

/* A JSON array of the tenant's records of all processes of cay-egress, oldest first. gone (may be
 * NULL; valid until done was called): once true, who asked has gone, and the question ends. */
void core_audit(struct core *c, const char *tenant, const struct core_audit_filter *f,
                const atomic_bool *gone, core_text_cb done, void *arg);

/* A JSON array with one object for each process: {"ok", "lines", "broken_line", "file",
 * "cut_lines", "rotated_out", "logs"}. */
void core_audit_verify(struct core *c, const atomic_bool *gone, core_text_cb done, void *arg);
