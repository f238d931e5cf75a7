#pragma once
/* Decides what a request gets: the credential that the policy names for it, and secrets in the
 * place of their placeholders. The request itself is changed on its way out: by rewrite.c, or of
 * HTTP/2 by h2_request.c.
 *
 * A credential goes to a request that its own binding allows (host, port, method, path), and over
 * plain HTTP only where that says so; else the request is refused, with the reason. A value that
 * the client sent in the same place (its Authorization, that header, that parameter) is replaced,
 * never added to.
 *
 * Placeholders are `cay-secret:NAME` and `${e2b.secrets.NAME}`, NAME a credential of kind
 * placeholder:
 *
 *   in header values (also inside Basic's base64) and the target: replaced where the policy names
 *   NAME for the request (`named`), toward a host that NAME is bound to, where its binding lets it
 *   stand (credential_goes_in, in_target); any other request with one is refused;
 *   in bodies of text, JSON and forms of at most REWRITE_BODY_MAX: replaced where the policy names
 *   NAME, it is bound to the host and its binding says so (in_bodies), left as it is where not (a
 *   text may speak of a placeholder). In longer bodies, and those of other types, nothing is
 *   looked for: the placeholder goes out as it is, which gives nothing away.
 *
 * Answers of a host that any of the sandbox's credentials is bound to are searched for its
 * secrets. */

#include "base/arena.h"
#include "egress/credential/credential.h"
#include "egress/http/inject_late.h"
#include "egress/http/rewrite.h"
#include "http/relay.h"

struct inject_request {
    struct credentials *credentials;    /* the sandbox's, or NULL */
    const struct credentials *searched; /* that its answer is searched for; NULL: credentials */
    const char *credential;             /* that the policy names, or NULL */
    uint64_t named;   /* bit i: `inject` of the policy names the credential i for this request */
    const char *host; /* normalized; NULL: dialled by address, bound to nothing */
    const char *said; /* then the name that the client says, or NULL: for what comes back */
    uint16_t port;
    struct policy_transport transport; /* how it leaves */
    struct inject_watch watch;         /* arg outlives the request */
    bool ruled;                        /* methods or paths decide: override.h */
    struct held_bodies bodies;         /* where a body that is held is counted; */
    struct held_answers *answers;      /* where its answer's memory is, beside bodies.like */
};

/* The decision on a request. */
struct inject_plan {
    const char *const
        *remove; /* the client's headers that are left out; NULL-terminated, the arena's */
    struct rewrite_job *job; /* changes to it; never NULL */
    struct redact *redact;   /* the secrets that its answer is searched for, or NULL */
    /* the names of the credentials that its head carries, for people; or NULL. A body's: watch */
    const char *put;
};

/* head lives as long as the plan is used. ERR_DENIED, ERR_INVALID, ERR_TOO_LARGE: the request is
 * refused, as well as by ERR_EXHAUSTED, which may be over soon; *out is empty then. */
enum err_code inject_decide(const struct inject_request *r, const struct http_head *head,
                            struct arena *arena, struct inject_plan *out, struct err *e);
void inject_plan_free(struct inject_plan *plan);

/* Has its target or a header one, also inside of Basic? A request with one is not for the server as
 * it is: inject_decide says what becomes of it. Also true where memory is out. */
bool inject_has_placeholder(const struct http_head *head);

/* inject_decide for the relay. Fills o->remove from x's arena, and o->filter where anything is to
 * be changed or searched (turns and owner: rewrite_relay). On an error nothing was changed. */
enum err_code inject_prepare(struct turns *turns, uint64_t owner, const struct inject_request *r,
                             struct http_exchange *x, struct http_relay_options *o,
                             const char **put, struct err *e);
