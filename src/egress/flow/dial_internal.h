#pragma once
/* Shared by the files of a dial: dial.c has its life, dial_start.c its beginning, dial_attempt.c
 * its sockets. */

#include "base/util.h"
#include "egress/flow/dial.h"
#include "egress/flow/resolve.h"
#include "egress/flow/target.h"
#include "policy/policy.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct dial_attempt;
typedef void (*dial_attempt_cb)(struct dial_attempt *a, int err);

struct dial_attempt {
    uv_poll_t poll;
    struct dial *dial;
    struct dial_attempt *next;
    dial_attempt_cb ended;
    int fd;
    uint32_t round; /* turns.h */
    struct policy_address address;
    struct policy_verdict verdict;
};

struct dial {
    struct egress *egress;
    struct dial *next; /* of its bucket */
    uint64_t id, owner;
    dial_cb cb;
    uint32_t slot, gen, command;
    uint64_t share;                 /* the sandbox whose share of the loop's time it has */
    struct sandbox *lone;           /* DIAL_LONE, or NULL */
    char name[POLICY_NAME_MAX + 1]; /* "" for an address */
    uint16_t port;
    uint16_t via_port;                  /* the addresses are a reroute's, at that port; else 0 */
    char via_name[POLICY_NAME_MAX + 1]; /* they are this name's; "": the policy has the one */
    enum target_granted granted;
    struct policy_address addresses[RESOLVE_ADDRESSES_MAX];
    size_t n, at; /* the next to try */
    struct dial_attempt *attempts;
    size_t attempt_count;
    uint64_t handshake; /* with an upstream proxy, under way, or 0 */
    uv_timer_t timer;   /* the next attempt, or the end */
    uint64_t deadline_ms;
    bool done; /* told, or cancelled: only handles are left */
    bool resolving;
    uint64_t rules_serial; /* of those that result.verdict is of, while result.denied */
    struct dial_result result;
};

/* -- dial.c ------------------------------------------------------------------------------------ */

/* Registered, and nothing is under way. NULL when memory is out. */
struct dial *dial_make(struct egress *eg, struct sandbox *s, const struct target *t, uint64_t owner,
                       dial_cb cb);

struct dial *dial_find(struct egress *eg, uint64_t id);     /* NULL where it has gone */
struct sandbox *dial_sandbox(const struct dial *d);         /* NULL likewise */
const struct upstream *dial_upstream(const struct dial *d); /* the sandbox's, or that of all */

/* Of a rerouted name the address is not its own: the rules are not asked about it. */
void dial_set_address(struct dial *d, const struct policy_address *a);

void dial_give_reason(struct dial *d, enum err_code code, int sys, const char *fmt, ...)
    PRINTF(4, 5);

/* The rules of s say v, which is a refusal, of what is in d->result. */
void dial_deny(struct dial *d, const struct sandbox *s, const struct policy_verdict *v);

/* Never from inside dial_start: the timer tells it. */
void dial_fail_soon(struct dial *d);

/* Connects to `address`, or to the proxy that is to connect there. 0 when it is under way; -errno
 * when it failed at once. */
int dial_try_address(struct dial *d, const struct policy_address *address,
                     const struct policy_verdict *v);

/* The next address that the policy allows; false when there is none left. */
bool dial_try_next(struct dial *d, struct sandbox *s);

/* The timer, for the next address or the end; or for the whole, where nothing else can be tried. */
void dial_arm(struct dial *d);
void dial_arm_whole(struct dial *d);

/* -- dial_attempt.c ---------------------------------------------------------------------------- */

/* Connects to `to` and `port` for address, which is the same, or what a proxy is to connect to.
 * ended is called from the loop, err 0 when it is connected, unless it is dropped first. 0 when it
 * is under way; -errno when it failed at once. */
int dial_attempt_start(struct dial *d, const struct policy_address *to, uint16_t port,
                       const struct policy_address *address, const struct policy_verdict *v,
                       dial_attempt_cb ended);

/* keep: the descriptor is returned, not closed. */
int dial_attempt_drop(struct dial_attempt *a, bool keep);
