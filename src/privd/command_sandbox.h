#pragma once
/* Command sandboxes: networks of their own for single commands of a sandbox that runs (runtime.h,
 * command_sandbox_begin).
 *
 * A command sandbox belongs to the connection that asked for it, as no other peer knows its key: it
 * ends with that connection, when it is asked to, or with its sandbox. At most
 * PRIVSEP_COMMAND_SANDBOXES_MAX of a sandbox at a time, dying ones included. A number is never used
 * twice for a generation. */

#include "contract/proto.h"
#include "privd/loop.h"
#include "privd/pace.h"
#include "privd/reply.h"
#include "runtime/runtime.h"

#include <stdbool.h>
#include <stdint.h>

struct privd;
struct slot;

#define COMMAND_SANDBOXES_STARTING_MAX 32u /* at a time, of all sandboxes */

struct command_sandbox {
    struct privd *privd;
    struct slot *slot; /* NULL: its sandbox has ended before it */
    uint32_t slot_number, gen, number;
    struct task task; /* makes it */
    struct loop_source task_source;
    int pidfd; /* its PID 1; -1 while the task works */
    int pin;   /* pins.h; -1: none */
    bool paid; /* its programs had their turn */
    struct loop_source pid_source;
    int boot_fd;
    struct loop_source boot_source;
    struct loop_timer timer; /* until it is ready */
    uint64_t begun_ms;
    bool starting;                       /* on privd's list of those */
    struct reply_to maker, ender;        /* requests that wait */
    struct runtime_claim claim;          /* until it was given */
    const struct runtime_driver *driver; /* its sandbox's */
    bool ending;
    struct pace_item kill;              /* waits for its turn */
    int egress_fds[PRIVSEP_EGRESS_FDS]; /* as of a slot */
    struct command_sandbox *next;       /* of its slot, or of privd's list of those without */
};

/* COMMAND_SANDBOX and COMMAND_SANDBOX_END, after permit.c. */
void command_sandbox_make(struct privd *p, struct slot *s, const struct reply_to *to,
                          const struct privsep_msg *m);
void command_sandbox_end_requested(struct privd *p, struct slot *s, const struct reply_to *to,
                                   const struct privsep_msg *m);

/* The sandbox has ended: its command sandboxes have no owner, and end by themselves. */
void command_sandbox_forget_slot(struct slot *s);

/* The peer is gone: all command sandboxes end. */
void command_sandbox_end_all(struct privd *p);

/* privd leaves: kills them and forgets them. */
void command_sandbox_free_all(struct privd *p);
