#pragma once
/* Predicts the outcome of a connection or a request, by the evaluation that decides (stack.h) and
 * the bindings of credentials. cay-egress makes one of a sandbox and adds what only it knows
 * (limits that are used up, a proxy); `cay policy explain` makes one of a file alone.
 *
 * A tenant reads it: of a limit of the operator's it says that it refuses, and by which rule, and
 * not what else is in it. */

#include "policy/stack.h"

#define POLICY_NOTES_MAX 8
#define POLICY_NOTE_SIZE 320
#define POLICY_BY_SIZE   128

/* The request that is asked about. Not to be copied: target points into it. */
struct policy_query {
    char name[POLICY_NAME_MAX + 1], said[POLICY_NAME_MAX + 1];
    /* address: of an address, or what the name leads to, all zero where that is not known */
    struct policy_target target;
    bool tls;
    /* beside a reroute: through a proxy of the sandbox's own (struct policy_transport) */
    bool detour;
    const char *method, *path; /* NULL: the connection. The caller's */
};

enum policy_outcome {
    POLICY_OUTCOME_DENY,
    POLICY_OUTCOME_ALLOW,
    POLICY_OUTCOME_DEPENDS, /* on the request */
    POLICY_OUTCOME_ASK      /* its owner is asked */
};

struct policy_explanation {
    enum policy_outcome outcome;
    struct policy_verdict v;
    char subject[POLICY_REASON_SIZE]; /* which the sentence begins with */
    char sentence[POLICY_REASON_SIZE + POLICY_NOTE_SIZE];
    char refused_by[POLICY_BY_SIZE]; /* another refusal than a policy's; "": none */
    char notes[POLICY_NOTES_MAX][POLICY_NOTE_SIZE];
    size_t n_notes;
    /* of the request: those that are put in the place of their placeholders. The caller's texts */
    const char *placeholders[POLICY_INJECT_MAX];
    size_t n_placeholders;
};

/* [http[s]://]HOST, HOST:PORT, ADDRESS, [ADDRESS]:PORT. Without a port 443, or 80 of http://; TLS
 * on every port but 80, unless http:// stands before it. *q: set whole. 0 or -EINVAL. */
int policy_query_parse(const char *text, struct policy_query *q);

/* credentials: [{"name", "bind"}], those that the sandbox was given; NULL: not known, there is only
 * a file. */
void policy_explanation_make(const struct policy_stack *stack, const json_t *credentials,
                             struct policy_query *q, struct policy_explanation *out);

/* A further sentence. A sentence that does not fit is left out. */
void policy_explanation_note(struct policy_explanation *e, const char *fmt, ...) PRINTF(2, 3);

/* It is refused for this reason, whatever the policies say: the first one is its outcome, what they
 * say becomes a note, and so does each further reason. by: "credential", "limit" ..., and which, or
 * NULL. */
void policy_explanation_refuse(struct policy_explanation *e, const char *by, const char *which,
                               const char *fmt, ...) PRINTF(4, 5);

/* {"verdict", "warned", "text", "notes": [text], "credential"?, "placeholders": [name], "by",
 * "matches": [{"verdict", "by", "decides"}], "conflict"}: by: what decides; matches: what of the
 * sandbox's own policy has a say. NULL: memory is out. */
json_t *policy_explanation_json(const struct policy_stack *stack, const struct policy_query *q,
                                const struct policy_explanation *e);
