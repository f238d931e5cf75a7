#pragma once
/* A CREATE that waits for a slot, or is under way in one. */

#include "privd/slots.h"

struct create_request {
    struct privd *privd;
    struct reply_to reply_to;
    struct loop_timer timer; /* while it waits for a slot */
    struct slot_kind kind;
    struct runtime_claim claim;
    uint32_t kept; /* files that it takes (kept.h), or a copy of them; 0: none */
    bool copy;
    bool last;        /* of those that begin with them: it may have them themselves */
    bool memory;      /* the programs that ran in it are restored */
    bool on_archive;  /* its kept files are one (archive_devices.h) */
    uint32_t account; /* of its tenant: that has a share of restores (restores.h), and of those */
    bool has_group;   /* image_group_begin of image_group, for its image */
    uint32_t image_group;
    bool may_claim;  /* a member of the pool (pool.h) */
    bool claims;     /* it has got one */
    bool has_waited; /* there was no slot for it when it came */
    struct privsep_mount volumes[PRIVSEP_CREATE_VOLUMES];
    struct create_request *next;
};
