#pragma once
/* What the files of cay-egress share: the sandboxes it serves, the flows of each, and the one
 * struct that holds the program together. One libuv loop, one thread; nothing here blocks.
 *
 * A flow is one TCP connection from inside a sandbox. Its way:
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
 * look it up (flow_find). Sandboxes and their command sandboxes are kept as {slot, gen, room}
 * likewise (registry_find). */

#include "base/clock.h"
#include "base/err.h"
#include "contract/proto.h"
#include "egress/flow/rate.h"
#include "policy/stack.h"

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

#define EGRESS_TENANT_MAX      64u
#define EGRESS_CEILINGS_MAX    2u     /* the operator's for all, and for the tenant */
#define EGRESS_FLOWS_MAX       16384u /* of all sandboxes; less where descriptors are few */
#define EGRESS_POLICY_WAIT_MS  5000u  /* a connection waits that long for the sandbox's policy */
#define EGRESS_SNIFF_MS        10000u /* for a first message that has begun, or must come */
#define EGRESS_SILENT_MS       300u   /* a refused client that says nothing is reset after it */
#define EGRESS_SNIFF_MAX_BYTES 16640u /* one TLS record and some; an HTTP or SOCKS start is less */

struct egress;
struct sandbox;
struct flow;
struct http_exchange;
struct http_head;
struct http_relay_options;
struct intercept;
struct answers;
struct h2_share;
struct share;
struct share_pool;

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

enum target_granted { TARGET_NOT_GRANTED, TARGET_BY_NAME, TARGET_BY_ADDRESS };

/* Where to: a name, or an address where name is NULL. The names are policy_name_normalize's. */
struct target {
    const char *name;
    const char
        *said; /* where it is an address: the name that the client says (SNI, Host), or NULL */
    struct policy_address address; /* of a name: what it was resolved to and dialled, once it was */
    uint16_t port;
    struct policy_address
        via;           /* dialled for the name instead of what it resolves to: policy/stack.h */
    uint16_t via_port; /* there; 0: it is not rerouted, or not dialled yet */
    char via_name[POLICY_NAME_MAX +
                  1];            /* that was resolved to via; "": its policy has the address */
    enum target_granted granted; /* the owner said yes to this connection: asks.h */
};

/* The name that an address of cay's own stands for in a sandbox, into t. 0 also for other
 * addresses; -ENOENT when it was never given out. */
int target_of_own(const struct sandbox *s, struct target *t);

/* Is t->address known? */
bool target_is_resolved(const struct target *t);

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
    int unreachable; /* allowed, and no server answered there: the HTTP status that says so; else 0 */
    bool cut;        /* ended by us: a changed policy, a limit */
    char *name_store; /* what target.name points to */
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
    struct flow_io *io; /* handles while waiting, sniffing, negotiating, dialling (flow.c) */
    void *user;         /* of who serves it now: tunnel, forward, interceptor */
    void (*on_end)(struct flow *f); /* user's own end, before the flow's memory goes; may be NULL */
    uint64_t dial_id;               /* under way, or 0 */
    char ask[17];                   /* while FLOW_ASKING: the id of its question */
    uint64_t ask_end_ms;
    struct share *ask_place;

    uint64_t started_ms, up_bytes, down_bytes;
    char rule[POLICY_RULE_NAME_MAX + 1]; /* that decided last, for the record of its end */
    char *reason;                        /* why it was refused, or NULL */
};

#define DENIALS_MAX 64u

struct denial {
    int64_t at_ms;    /* the last time */
    uint32_t count;   /* that it was refused alike */
    uint32_t command; /* of the command that was refused; 0: none's */
    uint16_t port;
    char name[POLICY_NAME_MAX + 1]; /* or the address in digits */
    char method[16], path[128];     /* of a request; printable ASCII, cut */
    char rule[POLICY_RULE_NAME_MAX + 1];
    char reason[POLICY_REASON_SIZE];
};

/* A sandbox, or one of its command sandboxes: a command with a network, names and a policy of its
 * own, which says no more than its sandbox's does. A command sandbox has no ceilings, upstream or
 * proxy of its own. */
struct sandbox {
    struct egress *egress;
    uint32_t slot, gen;
    uint32_t command;       /* 0: the sandbox itself */
    struct sandbox *parent; /* of a command sandbox, else NULL; outlives it */
    struct sandbox *command_sandboxes, *next_command_sandbox; /* of a sandbox */
    char id[PRIVSEP_ID_SIZE], tenant[EGRESS_TENANT_MAX + 1];  /* "" until the policy came */
    bool has_policy;
    struct policy *policy;
    struct policy *ceilings[EGRESS_CEILINGS_MAX]; /* NULL: no more of them */
    struct upstream *upstream;                    /* this sandbox's own upstream proxy, or NULL */
    struct credentials *credentials;              /* intercept_credentials_new's, or NULL */

    int tcp_fd, udp_fd; /* -1 until privd sent them */
    struct sandbox_io *io;
    struct names *names;
    char
        *allows; /* what its policy allows, for refusals: the inside of a JSON array; may be NULL */

    struct answers *answers; /* of its owner's, for its life: asks.c. NULL: none */
    struct h2_share *h2;     /* what its connections of HTTP/2 hold, or NULL: none yet */
    struct flow *flows;
    uint32_t flow_count;
    struct rate connections, requests;
    struct rate handshakes;        /* of refused clients: deny.c */
    uint64_t up_bytes, down_bytes; /* of flows that ended; registry_usage adds the others */
    uint64_t allowed, denied, requests_total;
    struct denial *denials; /* ring of DENIALS_MAX, made with the first */
    size_t denials_next, denials_count;
    struct rate patient;   /* forward.c: requests over the rate whose connections stay */
    struct rate recorded;  /* audit.c: refusals that have a record of their own */
    uint64_t unrecorded;   /* and that were only counted */
    struct rate announced; /* event_stream.c: refusals that cayd was told of */
    uint64_t unannounced;  /* and that were only counted */
    uint64_t round;        /* of privd's hellos that told it: see registry_sync */
};

struct egress_config {
    const char *state_dir; /* of egress alone, 0700 */
    uint32_t shard, shards;
    uid_t peer_uid;          /* cayd's */
    const char *dns_servers; /* "192.0.2.1,[2001:db8::1]:53", or NULL for the host's */
    bool offline;
    struct upstream *upstream; /* for all sandboxes, or NULL */
    uint32_t connections, connections_per_second, requests_per_second; /* for each sandbox */
    uint32_t connect_timeout_ms;
    uint64_t idle_timeout_ms;
    uint64_t audit_size_bytes;
    uint32_t audit_files;
    uint32_t flows_max; /* of all, from RLIMIT_NOFILE */
};

struct egress {
    uv_loop_t *loop;
    struct egress_config config;
    struct registry *registry;
    struct resolver *resolver;
    struct dialer *dialer;
    struct turns *turns; /* before what uses it; outlives it */
    struct tunnels *tunnels;
    struct forward *forward;
    struct share_pool *ask_places; /* ASKS_MAX */
    struct audit *audit;
    struct audit_queries *audit_queries;
    struct control *control;
    struct event_stream *event_stream; /* control.c's */
    struct renewals *renewals;
    struct intercept
        *intercept; /* NULL: TLS is not read, and no credential is put on a request (tests) */
};

/* -- flow.c ------------------------------------------------------------------------------------ */

/* Takes fd over, also on failure; NULL when memory or places are out. */
struct flow *flow_new(struct sandbox *s, int fd);
struct flow *flow_find(struct egress *eg, uint64_t id); /* registry.c */

/* From anywhere, also from callbacks: everything of it is closed, its end is recorded. */
void flow_end(struct flow *f);

/* Sets the target; name (normalized) is copied. An address of cay's own is its name. 0; -ENOMEM;
 * -ENOENT: an address of cay's own that was never given out. */
int flow_set_target(struct flow *f, const char *name, const struct policy_address *a,
                    uint16_t port);

/* What sandbox and ceilings say to its target, before anything is resolved. With a bare address
 * this is policy_address's word. */
struct policy_verdict verdict_flow(const struct flow *f);

/* The same of any target, after it was resolved (address is then what will be dialled). Where an
 * upstream proxy resolves names, there is no address, and the name alone is asked about. */
struct policy_verdict verdict_target(const struct sandbox *s, const struct target *t);

/* Does a policy, a sandbox's above it or a ceiling say less about some name than about all else?
 * Then a connection by address is evaluated only once the name that is said there is known. */
bool verdict_narrows_names(const struct sandbox *s);

/* Or does one let out only what it names? */
bool verdict_depends_on_names(const struct sandbox *s);

/* The narrowest word of all that have one about s: its own policy, for a command sandbox its
 * sandbox's, the ceilings. A room's credential is one that both name. As policy/stack.h, with the
 * owner's answers. verdict_dial: about the very address that is to be dialled, also when it is
 * `::`, which is the host itself to connect(2), and to verdict_target a name that is not resolved
 * yet. */
struct policy_verdict verdict_name(const struct sandbox *s, const struct target *t);
struct policy_verdict verdict_dial(const struct sandbox *s, const struct target *t);
/* Before t->via_name is resolved: may it be? */
struct policy_verdict verdict_way(const struct sandbox *s, const struct target *t);
struct policy_verdict verdict_request(const struct sandbox *s, const struct target *t,
                                      bool resolved, const char *method, const char *path);

/* What these ask, for another target. asked and its sandbox outlive the stack. */
struct verdict_asked {
    const struct sandbox *s;
    enum target_granted granted;
};
struct policy_stack verdict_stack(struct verdict_asked *asked);

/* The way of that name in s, whose commands go it too; NULL: none. */
const struct policy_reroute *verdict_reroute(const struct sandbox *s, const char *name);

/* Goes what is sent to that name where the sandbox's own settings say (a reroute, a proxy of its
 * own)? */
bool verdict_is_detour(const struct sandbox *s, const char *name);

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

/* Sends these last bytes to the client, which may still be sending, and ends the flow. */
void flow_answer(struct flow *f, const void *bytes, size_t n);

/* Ends the flow with a reset, which clients take for a refusal. */
void flow_reset(struct flow *f);

/* SOCKS or CONNECT was answered, or nothing needed to be: f->up_fd is dialled, or the flow has to
 * be read first. Looks at what the client sends and hands the flow on. */
void protocol_detect_start(struct flow *f);

/* Looking is over: before the descriptor is handed on. */
void protocol_detect_done(struct flow *f);

/* The client's descriptor is watched for reading by cb, with a timer (0: none) that calls late. One
 * watch at a time; flow_unwatch ends it, and so does handing the descriptor on. */
int flow_watch(struct flow *f, int events, void (*cb)(struct flow *f, int events),
               uint64_t timeout_ms, void (*late)(struct flow *f));
void flow_unwatch(struct flow *f);

/* Beside flow_watch, until it ends: f->up_fd has something to read, or has ended. cb returns false
 * when that need not be told any more; it may end f only when it returns true. */
void flow_watch_upstream(struct flow *f, bool (*cb)(struct flow *f));
void flow_watch_again(struct flow *f, uint64_t timeout_ms); /* the timer starts anew */

/* The policy changed: is it still allowed? Cuts it if not. */
void flow_recheck(struct flow *f);
