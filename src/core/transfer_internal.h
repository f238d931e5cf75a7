#pragma once
/* Shared by transfer.c (the queue), transfer_export.c and transfer_import.c. */

#include "core/timers.h"
#include "core/transfer.h"

enum transfer_state {
    TRANSFER_RECEIVING, /* an import whose bytes come */
    TRANSFER_WAITING,
    TRANSFER_RUNNING, /* privd owes the answer */
    TRANSFER_READ     /* an export that its client may be reading */
};

struct transfer;

/* An export or an import. */
struct transfer_kind {
    const char *name;
    const char *hint; /* to who has one of it already */
    unsigned most;    /* of all tenants */
    /* Asks privd; on failure nothing was asked. */
    enum err_code (*request)(struct transfer *x, struct err *e);
    /* Tells who waits for it, once, and removes it. */
    void (*fail)(struct transfer *x, const struct err *why);
};

struct transfer {
    struct transfer *next; /* younger ones */
    struct core *core;
    enum transfer_state state;
    const struct transfer_kind *kind;
    uint64_t number; /* of the server's; never twice */
    char tenant[CORE_TENANT_SIZE];
    char snapshot[IDS_SANDBOX_SIZE];
    int held_fd; /* of TRANSFER_READ; -1 */
    struct timer timer;
    core_export_cb exported;
    core_snapshot_cb imported;
    void *arg;
};

/* NULL: there is none. */
struct transfer *transfer_get(struct core *c, uint64_t number);

/* A new one at the end of the queue. NULL, and why: the tenant has one of its kind, or all have as
 * many as they may. */
struct transfer *transfer_new(struct core *c, const char *tenant, const struct transfer_kind *kind,
                              struct err *e);
void transfer_remove(struct transfer *x);

/* The first that waits is begun, where none is with privd. */
void transfer_next(struct core *c);

struct privsep_msg;

/* A refusal of privd's, or of the channel to it. what: "the snapshot was not exported". */
void transfer_refusal(struct err *e, int status, const struct privsep_msg *m, const char *what);
