#pragma once
/* The conditions of a rule, as one table: how each is read, compared, named in a near miss and
 * printed. Rules of a policy, presets, injections and the bindings of credentials are all made of
 * them, and every reader goes through the table: parse.c, decide.c, near.c, explain.c, offer.c,
 * lint.c, and credential_read.c of cay-egress.
 *
 * A new condition is one line of CONDITIONS and the functions that the line names. A function that
 * is missing does not compile (test: test_policy_conditions.py), and a key that is no line is
 * refused where it is read. Nothing else of it has to be told to any reader, so that none can
 * forget it and allow what it would not.
 *
 * Internal to src/policy. */

#include "base/util.h"
#include "policy/policy.h"

struct range {
    struct in6_addr in6;
    uint8_t bits; /* 0..128 of the mapped form */
};

struct ports {
    uint16_t first, last;
};

/* An entry of a condition's list. */
union entry {
    const char *text; /* malloc'd, but of presets */
    struct range range;
    struct ports ports;
};

struct list {
    union entry *entries;
    size_t n; /* 0: the rule does not have this condition */
};

/* When a condition can be compared. The first two are a rule's destination: one match of either is
 * enough, and each condition of the other two has to match. */
enum condition_stage {
    CONDITION_NAME,       /* the name that is asked for */
    CONDITION_ADDRESS,    /* the address that is dialled: once it is known */
    CONDITION_CONNECTION, /* before the connection is made */
    CONDITION_REQUEST     /* by a request that was read: until then the verdict is POLICY_INSPECT */
};

/* X(ID, key in JSON, stage, may an injection or a binding have it). The functions are
 * condition_KEY_read and so on. */
#define CONDITIONS(X)                       \
    X(DOMAINS, domains, NAME, true)         \
    X(ADDRESSES, addresses, ADDRESS, false) \
    X(PORTS, ports, CONNECTION, true)       \
    X(METHODS, methods, REQUEST, true)      \
    X(PATHS, paths, REQUEST, true) CONDITIONS_MORE(X)

/* Only for the test of the table itself. */
#ifndef CONDITIONS_MORE
#define CONDITIONS_MORE(X)
#endif

#define CONDITION_ID(id, ...) CONDITION_##id,
enum condition_id { CONDITIONS(CONDITION_ID) CONDITION_COUNT };
#undef CONDITION_ID

/* A rule, an injection or a preset. Lists belong to it, but a preset's. */
struct rule {
    char *name; /* never NULL */
    enum policy_action action;
    struct list lists[CONDITION_COUNT];
    char *credential; /* of an injection; NULL in a rule */
};

/* The subject of a question. Unknown yet: a NULL before the name was resolved, method NULL before
 * there is a request. */
struct subject {
    const char *name; /* NULL: by address */
    const struct policy_address *a;
    uint16_t port;
    const char *method, *path; /* both or none */
    bool is_public;            /* valid with a */
    bool is_ambiguous;         /* valid with path */
};

struct subject subject_of(const char *name, const struct policy_address *a, uint16_t port,
                          const char *method, const char *path);

/* The middle two: cannot be told before the address, or the request, is known. */
enum match { MATCH_NO, MATCH_ADDRESS, MATCH_REQUEST, MATCH_YES };

#define CONDITION_WHAT_SIZE 48   /* of what did not match, in words */
#define CONDITION_TEXT_SIZE 1040 /* of one entry: a path of PATH_MAX_BYTES */

struct condition {
    const char *key;
    enum condition_stage stage;
    bool in_injections;
    const char *allowed; /* in an error: "allowed is ..." */
    /* 0, -EINVAL or -ENOMEM; text is malloc'd. */
    int (*read)(const json_t *json, union entry *out);
    /* Does the subject, of which this much is known, match the entry? A deny rule compares more
     * widely than an allow rule, so that another spelling is denied too. */
    bool (*matches)(const union entry *e, const struct subject *s, bool denies);
    /* Could something match both? True where that is not certain. */
    bool (*overlaps)(const union entry *a, const union entry *b);
    /* Describes the part of the subject that did not match, in CONDITION_WHAT_SIZE: "port 22",
     * "this method". */
    void (*describe)(const struct subject *s, char *out, size_t size);
    void (*print)(const union entry *e, char *out, size_t size);
    void (*clear)(union entry *e);
};

/* Indexed by enum condition_id. */
extern const struct condition conditions[CONDITION_COUNT];

/* Of that key, or NULL. */
const struct condition *condition_find(const char *key);

/* Lists the keys for errors: "domains, addresses, ports". injection: of one. */
void condition_keys(bool injection, char *out, size_t size);

/* Has the rule conditions of this stage? */
bool rule_has_stage(const struct rule *r, enum condition_stage stage);
bool rule_has_destination(const struct rule *r);

/* Does this one condition match? MATCH_YES where the rule does not have it. Not for
 * destinations. */
enum match rule_matches_condition(const struct rule *r, enum condition_id id,
                                  const struct subject *s);

/* Destinations; all other conditions; all of it. */
enum match rule_matches_destination(const struct rule *r, const struct subject *s);
enum match rule_matches_rest(const struct rule *r, const struct subject *s);
enum match rule_matches(const struct rule *r, const struct subject *s);

void rule_clear(struct rule *r);

/* Reads the digits of a port and goes behind them. */
bool condition_port_from_text(const char **text, uint16_t *out);
