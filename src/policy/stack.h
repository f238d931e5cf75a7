#pragma once
/* All policies that have a word about a sandbox, and what they say together: its own, for a command
 * its sandbox's above it, and the ceilings of its tenant and of all. The one evaluation of
 * cay-egress, which does what it says, and of `cay policy explain`, which shows it.
 *
 * A target goes through it as a connection does: policy_stack_name before anything is asked
 * outside, then policy_stack_dial about the very address that is to be dialled, then, where that
 * said POLICY_INSPECT, policy_stack_request about each request; and where a verdict has a
 * credential, policy_binding_fits. */

#include "policy/policy.h"

#define POLICY_STACK_CEILINGS_MAX 2u /* the operator's for all, and for the tenant */

/* Where to: a name, or an address where name is NULL. Names are policy_name_normalize's. */
struct policy_target {
    const char *name;
    /* where it is an address: the name that the client says (SNI, Host), or NULL */
    const char *said;
    struct policy_address address; /* all zero: not known yet; of a rerouted name never known */
    uint16_t port;
    struct policy_address via; /* of a rerouted name: the address dialled instead, */
    uint16_t via_port;         /* there; 0: it is not rerouted, or that is not looked up yet */
    const char *via_name;      /* the name that was resolved to via, or NULL */
    bool via_unresolved;       /* via is not known yet: may via_name be asked for? */
};

struct policy_stack {
    const struct policy *own;
    const struct policy *outer; /* of a command: its sandbox's; else NULL */
    const struct policy *ceilings[POLICY_STACK_CEILINGS_MAX]; /* NULL: no more of them */
    /* The owner's answer to the question of `own`, or of `outer`: it may make ALLOW or DENY of a
     * verdict that asks. NULL: nothing. Never called for a ceiling, beyond which no answer goes. */
    void (*answer)(void *arg, bool of_outer, const struct policy_target *t,
                   struct policy_verdict *v);
    void *arg;
};

/* May the name be resolved and connected to? An address has no name to ask about:
 * policy_stack_dial. */
struct policy_verdict policy_stack_name(const struct policy_stack *s,
                                        const struct policy_target *t);

/* May t->address be dialled, or for a rerouted name t->via? Then it is also asked whether that is
 * still its way. With via_unresolved: may its name be resolved? All zero, `::`, is an address as
 * any other here: the host itself. */
struct policy_verdict policy_stack_dial(const struct policy_stack *s,
                                        const struct policy_target *t);

/* May this request be sent there? resolved: the connection is there, or its address is known. */
struct policy_verdict policy_stack_request(const struct policy_stack *s,
                                           const struct policy_target *t, bool resolved,
                                           const char *method, const char *path);

/* Which of those credentials do all that have a say about them (`own`, and `outer`) name for an
 * allowed request? Bit i: the i-th. Placeholders of others are not replaced in it. None of a
 * request that passes by a warning or an owner's yes alone. */
uint64_t policy_stack_injects(const struct policy_stack *s, const struct policy_target *t,
                              bool resolved, const char *method, const char *path,
                              const char *const *credentials, size_t n);

/* The sandbox's own way for that name; NULL: none. Its commands go it too. */
const struct policy_reroute *policy_stack_reroute(const struct policy_stack *s, const char *name);

bool policy_target_is_resolved(const struct policy_target *t);

/* Both allow, or it is the one that does not; read where one says so. Its credential is the
 * first's. */
struct policy_verdict policy_narrower(struct policy_verdict a, struct policy_verdict b);

/* -- bindings of credentials ------------------------------------------------------------------- */

/* The conditions of a credential's binding (an object with the keys of policy_binding_key;
 * any_domain: without "domains") as a policy that allows what fits them. ERR_INVALID names the
 * place: `bind.ports[0]: ...`. */
enum err_code policy_binding_new(const json_t *bind, bool any_domain, struct policy **out,
                                 struct err *e);

enum policy_fit {
    POLICY_FITS,
    POLICY_FIT_NOT_HOST,
    POLICY_FIT_NOT_TLS,
    POLICY_FIT_DETOUR,
    POLICY_FIT_NOT_REQUEST
};

/* How a request leaves. detour: to where the sandbox's own settings send it (a reroute, a proxy of
 * its own) instead of where the name leads. A caller that may set these must not get a value by
 * them that its owner bound to the name: with TLS the server has to have the name's certificate;
 * without, nothing says who answers there. */
struct policy_transport {
    bool tls, detour;
};

/* Does a credential bound so go to this request? insecure: also over plain HTTP, but on no detour.
 * host NULL: by address, never. */
enum policy_fit policy_binding_fits(const struct policy *bound, bool insecure, const char *host,
                                    uint16_t port, struct policy_transport transport,
                                    const char *method, const char *path);

/* "is not for this host", behind the credential's name; "" of POLICY_FITS. */
const char *policy_fit_text(enum policy_fit fit);
