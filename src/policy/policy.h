#pragma once
/* Decides what may leave a sandbox: rules in, a verdict and its reason out. Pure: no I/O, no clock,
 * nothing blocks; used by core (to refuse a bad policy with the place of the error), by cay-egress
 * (to decide) and by `cay policy explain`.
 *
 * A policy is a JSON object, docs/policy.md:
 *
 *   {"default": "deny" | "public" | "allow",
 *    "mode": "enforce" | "warn" | "ask",
 *    "refusal": "explain" | "close",
 *    "presets": ["package-registries"],
 *    "rules": [{"name": "api", "action": "allow" | "deny",
 *               "domains": ["api.example.com", "*.example.org"], "addresses": ["203.0.113.0/24"],
 *               "ports": [443, "8000-8100"],
 *               "methods": ["GET"], "paths": ["/exact", "/v1*"]}],
 *    "inject": [{"credential": "NAME", "domains": ["api.example.com"], "methods": ["POST"],
 *                "paths": ["/v1*"]}],
 *    "reroute": [{"domain": "api.example.com", "to": "203.0.113.7:8443"}],     (or a name)
 *    "limits": {"connections": 256, "connections_per_second": 50, "requests_per_second": 100,
 *               "bytes": 1073741824}}
 *
 * How it is decided: POLICY_NEVER first, which no tenant opens; then the rules in their order, the
 * first that matches; then the presets; then the default: `deny` nothing, `public` every address of
 * the internet that is not reserved (policy_address_is_public), `allow` all but POLICY_NEVER. An
 * absent "default" is deny: an empty policy lets nothing out.
 *
 * A rule matches when its destination (one of its domains or one of its addresses; one that has
 * neither is for every destination), its ports, methods and paths all match; what it does not have
 * it does not ask. Domains compare without case and without a final dot; "*.example.org" is every
 * name below example.org, not itself. In a path a star stands for anything within one part, at the
 * end for all that follows. Only an address range of an allow rule, or the default
 * "allow", opens addresses that are not public: a name alone does not, whatever it resolves to. And
 * an address range alone opens no name: nothing is resolved for the chance that it might be in it.
 *
 * "mode": "warn": what nothing allows, or a rule denies, is allowed and marked (struct
 * policy_verdict.warned), so that its owner sees what it would deny; never what POLICY_NEVER is
 * about, and no credential is put on it. Another policy's word (policy_both) holds as before.
 *
 * "mode": "ask": what nothing allows (the default denies it, and no rule does) is denied and marked
 * (struct policy_verdict.asks): cay-egress may ask the owner. A denial by another rule removes the
 * mark (policy_both), and the caller removes it from the verdict of a ceiling.
 *
 * "refusal" says nothing about what is allowed: how a TLS connection is told no (policy_closes).
 *
 * "inject" puts credentials on requests that are allowed anyway; it allows nothing. Of those that
 * match a request one is used: exact names come before suffixes, longer suffixes before shorter
 * ones, then their order. cay-egress checks the sealed record's own binding besides.
 *
 * "reroute" names the address, or the name of it, to which connections to a name go. It allows
 * nothing: the three questions are asked about the name alone, and it is the caller's to ask every
 * ceiling, and POLICY_NEVER, about the address.
 *
 * There are three questions, in this order. policy_name: may this name be connected to at all
 * (before it is resolved: nothing is asked outside for what is denied)? policy_address: may this
 * address, which the name was resolved to or which was dialled, be dialled? policy_request: may
 * this HTTP request be sent? Rules with methods or paths, and names that have a credential, can be
 * decided only by the last; the first two then answer POLICY_INSPECT, and the connection must be
 * plain HTTP or be intercepted, else it is refused. */

#include "base/err.h"

#include <jansson.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POLICY_RULES_MAX      1024u /* of one policy, presets not counted */
#define POLICY_INJECT_MAX     64u
#define POLICY_REROUTES_MAX   64u
#define POLICY_PATTERNS_MAX   4096u /* domains, addresses, ports, methods and paths of all rules */
#define POLICY_TEXT_MAX       (128u * 1024u) /* bytes of them together */
#define POLICY_STARS_MAX      128u           /* paths of them with a star that something follows */
#define POLICY_NAME_MAX       253u           /* a host name, RFC 1035 */
#define POLICY_RULE_NAME_MAX  64u
#define POLICY_CREDENTIAL_MAX 64u
#define POLICY_REASON_SIZE    256
#define POLICY_RANGE_SIZE     (INET6_ADDRSTRLEN + 4)

struct policy;

enum policy_action {
    POLICY_DENY,
    POLICY_ALLOW,
    POLICY_INSPECT /* decided by the request: the connection must be read */
};

/* Where a verdict comes from. */
enum policy_source {
    POLICY_BY_NEVER,   /* an address range that no tenant opens */
    POLICY_BY_CEILING, /* the operator's, for all or for this tenant */
    POLICY_BY_RULE,
    POLICY_BY_PRESET,
    POLICY_BY_DEFAULT,
    POLICY_BY_SANDBOX, /* a command's own policy allows it, its sandbox's does not */
    POLICY_BY_OWNER    /* nothing allows it, and the owner was asked: "mode": "ask" */
};

struct policy_verdict {
    enum policy_action action;
    enum policy_source source;
    bool asks;               /* denied, for nothing allows it: the owner may be asked */
    bool inspects;           /* and where the owner allows it, rules have to see its requests */
    bool warned;             /* allowed, for the policy only warns */
    bool capped;             /* a limit of the operator's denies it, also where another does */
    int rule;                /* number of the rule from 0, or -1 */
    const char *name;        /* of the rule, preset or default: "rule 3", "public"; the policy's */
    const char *credential;  /* to put on the request, or NULL; the policy's */
    const struct policy *by; /* the policy that decided; NULL with POLICY_BY_NEVER */
};

struct policy_limits {
    uint32_t connections;            /* at a time; 0: the server's own limit */
    uint32_t connections_per_second; /* 0: the server's own */
    uint32_t requests_per_second;    /* 0: the server's own */
    uint64_t bytes;                  /* both ways, for the sandbox's life; 0: no limit */
};

/* An address; IPv4 as v4-mapped IPv6, so that both spellings are equal. */
struct policy_address {
    struct in6_addr in6;
};

/* Reads and checks the whole; nothing of a bad one is used. The text of *e names the place:
 * `rules[3].ports[0]: ...`. NULL or {} is "deny". */
enum err_code policy_new(const json_t *json, struct policy **out, struct err *e);
void policy_free(struct policy *p);

/* The named presets of a default: "deny", "public", "allow". NULL for another name. The result is
 * shared and constant; policy_free does nothing to it. */
const struct policy *policy_preset(const char *name);

/* May a connection to name:port be attempted? name is lower case without final dot
 * (policy_name_normalize). A name that is an address in digits is policy_address's question. */
struct policy_verdict policy_name(const struct policy *p, const char *name, uint16_t port);

/* May address:port be dialled, for the name that it came from (NULL: dialled by address)? Asked for
 * every address right before connect(2) of that very address. */
struct policy_verdict policy_address(const struct policy *p, const char *name,
                                     const struct policy_address *a, uint16_t port);

/* May this request be sent? path is the target's path, still encoded, as it will be forwarded; host
 * is the normalized name that was dialled, or NULL with an address. Paths that could be read in two
 * ways (dot segments, encoded slashes or dots, backslashes, doubled slashes) match no allow rule
 * with paths, and every deny rule with paths. */
struct policy_verdict policy_request(const struct policy *p, const char *host,
                                     const struct policy_address *a, uint16_t port,
                                     const char *method, const char *path);

/* The narrower of two: what both allow. For a tenant's ceiling and for a process's own policy.
 * credential is the first's; none where one of them only warns. */
struct policy_verdict policy_both(struct policy_verdict own, struct policy_verdict ceiling);

/* The entries that match, in the order of precedence: every rule that matches, or (action
 * POLICY_INSPECT) would with the right address or request, then the presets, the default last. So
 * the first that is not POLICY_INSPECT decides. name or a may be NULL; method NULL: before there is
 * a request. At most max go to out; how many there are. */
size_t policy_matches(const struct policy *p, const char *name, const struct policy_address *a,
                      uint16_t port, const char *method, const char *path,
                      struct policy_verdict *out, size_t max);

/* Does it say less about some names than about their addresses: by a rule that denies names, that
 * looks at requests to them, or by a credential? */
bool policy_narrows_names(const struct policy *p);

/* Or does it let out only what it names? Then it matters which name a connection is for. */
bool policy_depends_on_names(const struct policy *p);

/* Has it a rule that looks at requests, or a credential to put on them? Then TLS may be opened for
 * it; for one that has neither only where a client hides the name that it means. */
bool policy_reads_requests(const struct policy *p);

/* Which of those credentials (at most POLICY_INJECT_MAX) does it name for this request? Bit i: the
 * i-th. All injections that match count, not only the one that policy_request chooses. None of a
 * request that its own rules deny, also where it only warns, or its owner said yes. */
uint64_t policy_request_injects(const struct policy *p, const char *host,
                                const struct policy_address *a, uint16_t port, const char *method,
                                const char *path, const char *const *credentials, size_t n);

/* Is this credential put on any request? */
bool policy_uses_credential(const struct policy *p, const char *credential);
/* The i-th credential's name, or NULL after the last: what a sandbox's egress needs to be given. */
const char *policy_credential(const struct policy *p, size_t i);

/* Where connections to a name go instead of to what it resolves to. */
struct policy_reroute {
    char *domain;             /* as of a rule */
    struct policy_address to; /* unless: */
    char *to_name;            /* the owner of the addresses, resolved outside; or NULL */
    uint16_t port;            /* 0: the one that was asked for */
};

/* The first for that name, or NULL. NULL for name: is there one at all? */
const struct policy_reroute *policy_reroute(const struct policy *p, const char *name);

const struct policy_limits *policy_limits(const struct policy *p);

/* "refusal": "close": a refused TLS connection ends with an alert in its handshake, so that the
 * program fails. Otherwise the handshake is finished and an HTTP answer gives the reason. */
bool policy_closes(const struct policy *p);

/* A sentence for people: the target, refused or allowed, by which rule, which rule almost allowed
 * it, and targets allowed instead. name NULL: by address; a is NULL where it is not known.
 * Printable ASCII, nothing of it unescaped that an attacker chose. */
void policy_explain(const struct policy *p, const struct policy_verdict *v, const char *name,
                    const struct policy_address *a, uint16_t port, const char *method,
                    const char *path, char out[static POLICY_REASON_SIZE]);

/* The beginning of that sentence, up to its ": ": the request or the connection. */
void policy_explain_subject(const char *name, const struct policy_address *a, uint16_t port,
                            const char *method, const char *path,
                            char out[static POLICY_REASON_SIZE]);

/* Lists what it allows, line by line: a destination of each rule that allows with the rule's other
 * conditions ("api.example.com; ports 443, 8000-8100; methods GET"), then presets, then the
 * default. Printable ASCII of less than POLICY_OFFER_SIZE. False from line(): no more of them. */
#define POLICY_OFFER_SIZE 256
void policy_offers(const struct policy *p, bool (*line)(void *arg, const char *text), void *arg);

/* The i-th key of what an injection, and so a credential's binding, can ask ("domains", "ports",
 * ...); NULL after the last. */
const char *policy_binding_key(size_t i);

/* -- names and addresses ----------------------------------------------------------------------- */

/* Lower case, final dot removed, checked (labels of letters, digits, '-' and '_', 1 to 63 each,
 * POLICY_NAME_MAX in all; internationalized names in their ASCII form only). 0 or -EINVAL. */
int policy_name_normalize(const char *in, char out[static POLICY_NAME_MAX + 1]);

/* "192.0.2.1", "2001:db8::1", "[2001:db8::1]"; no octal, hexadecimal or short forms, as they are
 * read differently by different programs. 0 or -EINVAL. */
int policy_address_parse(const char *text, struct policy_address *out);
void policy_address_from(const struct sockaddr *sa, struct policy_address *out);
void policy_address_format(const struct policy_address *a, char out[static INET6_ADDRSTRLEN]);

/* "10.0.0.1/8" as "10.0.0.0/8", for dialects that take both: a policy takes only the latter. A text
 * that is no range stays as it is. False: it is longer than any range; nothing was written. */
bool policy_range_plain(const char *text, char out[static POLICY_RANGE_SIZE]);

/* Metadata services, loopback, link-local, multicast, broadcast, unspecified, and ranges added by
 * policy_never_add (the host's own addresses): refused whatever a policy says. Embedded IPv4
 * (mapped, NAT64, 6to4, Teredo) is looked into. */
bool policy_address_is_never(const struct policy_address *a);

/* Neither that, nor private, shared (100.64/10), benchmarking, documentation or reserved
 * (IANA's special-purpose registries, RFC 6890). */
bool policy_address_is_public(const struct policy_address *a);

#define POLICY_NEVER_OWN_MAX 256u /* ranges that are kept of the host's own addresses */

/* Adds one range to what is never reached: the addresses of the host itself. Never fails open:
 * beyond POLICY_NEVER_OWN_MAX the range that is nearest is widened to hold it. True when that was
 * done. Not thread-safe. */
bool policy_never_add(const struct policy_address *a, unsigned prefix_bits);

/* Forgets what was added: the caller adds all that there is now, within the same turn. */
void policy_never_clear(void);
