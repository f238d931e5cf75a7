#pragma once
/* Makes the connection outside: name -> addresses -> the policy's word on each -> connect to
 * exactly that address. Several addresses are tried one after the other, DIAL_STAGGER_MS apart, and
 * the first that answers is taken (RFC 8305, simple).
 *
 * Bounded by its flows, one dial for each. Never blocks. */

#include "base/err.h"
#include "policy/policy.h"

#include <stdbool.h>
#include <stdint.h>

struct egress;
struct sandbox;
struct target;

#define DIAL_STAGGER_MS 250u

/* The slot of a sandbox that is none's: rules of their own, for what this program dials itself
 * (renew.c). It is not registered, and outlives its dials. */
#define DIAL_LONE UINT32_MAX

struct dialer;

struct dial_result {
    int fd;                        /* connected, the callback's; or -1 and why */
    struct policy_address address; /* that it is connected to; of a rerouted name none, but: */
    struct policy_address via;
    uint16_t via_port;
    const char *via_name; /* that was resolved to via, or NULL; valid during the callback */
    struct policy_verdict verdict; /* of that address; or of the last one that was refused */
    bool denied;                   /* it was the policy that said no, to every address */
    struct err why;
};

/* Where t was dialled, as of r. */
void dial_note(struct target *t, const struct dial_result *r);

typedef void (*dial_cb)(struct egress *eg, uint64_t owner, const struct dial_result *r);

int dialer_new(struct egress *eg, struct dialer **out);

/* cb is called exactly once with `owner`, never from inside this call, unless dial_cancel comes
 * first. t is copied. The dial's id, or 0 when memory is out. */
uint64_t dial_start(struct egress *eg, struct sandbox *s, const struct target *t, uint64_t owner,
                    dial_cb cb);
void dial_cancel(struct egress *eg, uint64_t id);
