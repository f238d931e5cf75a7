#pragma once
/* The host's own addresses are never reached from a sandbox, whatever a policy says: what listens
 * on them trusts its neighbours. Those there are at the start, and those that come later; those
 * that go are forgotten. Beyond POLICY_NEVER_OWN_MAX ranges are kept that hold them, and more with
 * them. The address of the operator's collector of traces (collector.h) is kept from sandboxes
 * likewise. */

struct egress;

/* Before the program is confined: reads them, and keeps a netlink socket that tells of new ones. 0
 * or -errno; then the program ends. */
int hostaddr_start(struct egress *eg);
