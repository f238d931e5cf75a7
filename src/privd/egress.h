#pragma once
/* The descriptors for cay-egress: in every sandbox's network namespace a listener and a socket for
 * DNS, which the namespace's rules send everything to (sys/nft.h). They are made before anything of
 * a tenant runs in it, so that no process inside can have their ports; privd keeps no copy once
 * cay-egress has them.
 *
 * There is a channel per process of cay-egress (RUN/egress-I.sock), the same in form as cayd's; its
 * only request is HELLO, after which it is told every sandbox that lives. */

struct command_sandbox;
struct privd;
struct slot;

/* Without processes of cay-egress all of these do nothing. 0 or -errno. */
int egress_init(struct privd *p);
void egress_free(struct privd *p);

/* s is about to get an owner: makes its sockets. Without cay-egress at the other end they wait in
 * s. A failure leaves the sandbox without a network, and is logged. */
void egress_open(struct privd *p, struct slot *s);

/* s has ended, and with it its command sandboxes. */
void egress_close(struct privd *p, struct slot *s);

/* The same of a command sandbox (command_sandbox.h); that of one whose sandbox has ended was told
 * already. */
void egress_open_command_sandbox(struct privd *p, struct command_sandbox *r);
void egress_close_command_sandbox(struct privd *p, struct command_sandbox *r);
