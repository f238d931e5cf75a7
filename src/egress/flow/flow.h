#pragma once
/* A flow: one TCP connection from inside a sandbox. Its way:
 *
 *   accept.c    accepted; the original destination tells the name (names.c) or the address;
 *               waits for the sandbox's policy; limits; what its first bytes are (sniff.c)
 *   socks.c, connect.c   the destination was the listener itself: the client says where to
 *   flow.c      policy_name, then dial.c (resolve.c, policy_address, connect) for what is allowed
 *   asks.c      held until its owner has said yes or no, where the policy says so
 *   protocol_detect.c      what its first bytes are, and whether they name what was dialled
 *   tunnel.c    bytes both ways; TLS after its name was checked (clienthello.c, retry.c)
 *   forward.c   HTTP: every request is checked and relayed (forward_up.c), or is for cay.internal
 *   (local_info_page.c) tls_intercept.c   TLS that has to be read; then forward.c, or h2_flow.c
 *   deny.c      refused, with the reason
 *
 * A sandbox is who owns the listener that accepted, and nothing else says who it is. A flow is
 * owned by registry.c and ends in flow_end alone; across turns of the loop others keep its id, and
 * look it up (flow_find). Sandboxes and their command sandboxes are kept as {slot, gen,
 * command sandbox} likewise (registry_find). */

#include "base/util.h"
#include "egress/flow/target.h"
#include "policy/policy.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct egress;
struct err;
struct flow_io;
struct http_head;
struct sandbox;
struct share;

#define EGRESS_SNIFF_MS        10000u /* for a first message that has begun, or must come */
#define EGRESS_SILENT_MS       300u   /* a refused client that says nothing is reset after it */
#define EGRESS_SNIFF_MAX_BYTES 16640u /* one TLS record and some; an HTTP or SOCKS start is less */

enum flow_kind {
    FLOW_UNKNOWN,
    FLOW_TLS,
    FLOW_HTTP,
    FLOW_SOCKS,
    FLOW_CONNECT,
    FLOW_OPAQUE,
    FLOW_DNS
};

/* How the destination was said. */
enum flow_via {
    FLOW_REDIRECTED, /* by connecting to it: the original destination */
    FLOW_BY_SOCKS,
    FLOW_BY_CONNECT,
    FLOW_BY_REQUEST /* HTTP in absolute form: each request says it anew */
};

enum flow_state {
    FLOW_WAITING,     /* for the policy */
    FLOW_SNIFFING,    /* for the first bytes of the client */
    FLOW_NEGOTIATING, /* SOCKS or CONNECT */
    FLOW_ASKING,      /* for the owner's yes: asks.c */
    FLOW_DIALING,
    FLOW_TUNNELED,
    FLOW_FORWARDED,   /* the descriptor is http_server's; fd stays valid until the flow ends */
    FLOW_INTERCEPTED, /* the descriptor is the interceptor's, until it calls flow_end */
    FLOW_STREAMS,     /* of HTTP/2, likewise: h2_flow.c */
    FLOW_ANSWERING    /* a refusal, or DNS */
};

struct flow {
    uint64_t id; /* never used twice in one life of the program */
    struct egress *egress;
    struct sandbox *sandbox; /* valid as long as the flow: its end ends its flows */
    struct flow *prev, *next, *hash_next;
    struct share *share; /* its place among all flows (registry.c) */

    enum flow_state state;
    enum flow_kind kind;
    enum flow_via via;
    bool to_listener; /* the original destination was the listener: explicit proxy */
    bool refused;     /* the verdict was no: only a refusal may be said */
    bool busy;        /* for a number or a rate: it may try again */
    /* allowed, and no server answered there: the HTTP status that says so; else 0 */
    int unreachable;
    bool cut;         /* ended by us: a changed policy, a limit */
    char *name_store; /* target.name points to it */
    struct target target;
    char *sni;                    /* of a ClientHello, or NULL */
    bool offers_h2, offers_http1; /* it says that it speaks those (none said: HTTP/1.1) */
    bool must_inspect;            /* POLICY_INSPECT: no byte passes that was not read */
    bool low_water;               /* SO_RCVLOWAT of fd was raised */
    bool silent;  /* in protocol_detect.c: neither side has said anything for long */
    bool greeted; /* the server spoke first, the client has not yet: greeting.h */
    bool dialed;  /* up_fd was dialled for it, whether or not it still has it */

    int fd;             /* the client's; -1 once another owner has it, but see FLOW_FORWARDED */
    int up_fd;          /* dialled and not handed on yet, or -1 */
    struct flow_io *io; /* handles while waiting, sniffing, negotiating, dialling (flow_watch.c) */
    void *user;         /* of who serves it now: tunnel, forward, interceptor */
    void (*on_end)(struct flow *f); /* user's own end, before the flow's memory goes; may be NULL */
    uint64_t dial_id;               /* under way, or 0 */
    char ask[17];                   /* while FLOW_ASKING: the id of its question */
    uint64_t ask_end_ms;
    struct share *ask_share;

    uint64_t rules_serial; /* of those that were asked about it last; 0: it is to be asked again */
    uint64_t started_ms, up_bytes, down_bytes;
    char rule[POLICY_RULE_NAME_MAX + 1];        /* that decided last */
    char passed_rule[POLICY_RULE_NAME_MAX + 1]; /* that let through last: flow_pass_rule */
    char *reason;                               /* why it was refused, or NULL */
};

/* Takes fd over, also on failure; NULL when memory or places are out. */
struct flow *flow_new(struct sandbox *s, int fd);
struct flow *flow_find(struct egress *eg, uint64_t id); /* registry.c */

/* From anywhere, also from callbacks: everything of it is closed, its end is recorded. */
void flow_end(struct flow *f);

/* Sets the target; name (normalized) is copied. An address of cay's own is its name. 0; -ENOMEM;
 * -ENOENT: an address of cay's own that was never given out. */
int flow_set_target(struct flow *f, const char *name, const struct policy_address *a,
                    uint16_t port);

/* f->target is known (by accept.c, socks.c, connect.c): asks the policy, dials, sniffs, hands
 * on. */
void flow_route(struct flow *f);

/* Refused: noted, recorded, and said in the words of what the client speaks, once that is known. v
 * may be NULL where it was no policy's word; rule is then what refused ("sni", "limit", ...). */
void flow_refuse(struct flow *f, const struct policy_verdict *v, const char *rule, const char *fmt,
                 ...) PRINTF(4, 5);

/* Its connection was allowed, and is: recorded. */
void flow_allow(struct flow *f, const struct policy_verdict *v);

/* It was allowed, and not reached: recorded, for DNS may have been asked outside, and addresses
 * dialled. t NULL: the flow's target; h NULL: a connection, else a request. */
void flow_not_reached(struct flow *f, const struct target *t, const struct policy_verdict *v,
                      const struct http_head *h, const struct err *why);

/* The same: its client has ended while it was dialled. */
void flow_gave_up(struct flow *f, const struct target *t, const struct policy_verdict *v,
                  const struct http_head *h);

/* A request was let through and recorded, and its server gave no answer to it: recorded as its
 * outcome. */
void flow_failed(struct flow *f, const struct target *t, const struct policy_verdict *v,
                 const struct http_head *h, const char *why);

/* A flow that was let through ends here, as flow_refuse: noted and recorded; the caller ends it. */
#define FLOW_BYTES_REASON "cut: the sandbox has used up its bytes"
void flow_cut(struct flow *f, const struct policy_verdict *v, const char *rule, const char *fmt,
              ...) PRINTF(4, 5);

/* f->rule, as printable ASCII: it goes into headers. */
void flow_set_rule(struct flow *f, const char *rule);

/* f->rule lets it, or a request of it, through: the record of its end names the last such one,
 * whatever later requests on it were refused by. */
void flow_pass_rule(struct flow *f);

/* Sends these last bytes to the client, which may still be sending, and ends the flow. */
void flow_answer(struct flow *f, const void *bytes, size_t n);

/* Ends the flow with a reset, which clients take for a refusal. */
void flow_reset(struct flow *f);

/* The client's descriptor is watched for reading by cb, with a timer (0: none) that calls late.
 * There is one watch at a time; flow_unwatch ends it, and so does handing the descriptor on. */
int flow_watch(struct flow *f, int events, void (*cb)(struct flow *f, int events),
               uint64_t timeout_ms, void (*late)(struct flow *f));
void flow_unwatch(struct flow *f);

/* Beside flow_watch, until it ends: f->up_fd has something to read, or has ended. cb returns false
 * when that need not be told any more; it may end f only when it returns true. */
void flow_watch_upstream(struct flow *f, bool (*cb)(struct flow *f));
void flow_watch_again(struct flow *f, uint64_t timeout_ms); /* the timer starts anew */

/* Before f is worked on: where the sandbox's rules have changed since they were asked about it,
 * they are asked again, and f is cut if they do not allow it any more. A call asks about a
 * connection, or about one of its requests of HTTP/2. */
enum flow_standing {
    FLOW_SETTLED,   /* it may go on */
    FLOW_UNSETTLED, /* more of it is to be asked about: nothing of it goes on before */
    FLOW_ENDED
};
enum flow_standing flow_settle(struct flow *f);
