#pragma once
/* A privd and the agents of its sandboxes, in a thread, for the units of core: speaks the real
 * protocol over a real channel, and HTTP on a loopback port of its own. Its faults are asked for
 * by knobs. All functions are thread-safe. */

#include "contract/proto.h"

#include <stdbool.h>
#include <stddef.h>

struct fake;

struct fake_counts {
    unsigned creates, kills, connects, stats, lists, jobs, inits, bad_keys;
    unsigned command_sandboxes, command_sandbox_ends,
        starts; /* a start is answered as FAKE_START says */
    unsigned freezes, thaws, keeps, drops, resizes;
    unsigned archives, fetches, exports;
    unsigned prepares, dumps, restores; /* agents asked, DUMPs, CREATEs on memory that is there */
    unsigned volume_ends; /* agents that were asked to serve a volume's contents no more */
    unsigned live;        /* sandboxes that live now */
    unsigned peers;       /* connections of cayd so far */
};

enum fake_knob {
    FAKE_FAIL_CREATES,           /* that many creates fail with -ENOSPC at LAYER */
    FAKE_LATE_CREATES,           /* that many creates fail with -ETIMEDOUT at SLOT */
    FAKE_HOLD_CREATES,           /* 1: creates are answered when it is 0 again; -1: but one now */
    FAKE_HOLD_KILLS,             /* the same for kills */
    FAKE_HOLD_JOBS,              /* the same for jobs */
    FAKE_DROP_LISTS,             /* that many lists are never answered */
    FAKE_FAIL_KILLS,             /* that many kills fail with -EIO */
    FAKE_FAIL_JOBS,              /* that many jobs fail with -EIO */
    FAKE_AGENT_STATUS,           /* of /init's answer: 204 */
    FAKE_AGENT_SILENT,           /* 1: agents do not answer */
    FAKE_BASE_READY,             /* template base is there */
    FAKE_FAIL_COMMAND_SANDBOXES, /* that many command sandboxes fail with -EMFILE */
    FAKE_START,                  /* of a program: enum fake_start_answer */
    FAKE_HOLD_FREEZES,           /* as FAKE_HOLD_CREATES */
    FAKE_HOLD_THAWS,             /* the same for thaws */
    FAKE_FAIL_FREEZES,           /* that many freezes fail with -ETIMEDOUT */
    FAKE_FAIL_THAWS,             /* that many thaws fail with -EIO */
    FAKE_HOLD_KEEPS,             /* as FAKE_HOLD_CREATES */
    FAKE_HOLD_DROPS,             /* the same for drops */
    FAKE_HOLD_COPIES,            /* the same for copies */
    FAKE_FAIL_KEEPS,             /* that many keeps fail with -ENOSPC */
    FAKE_FAIL_DROPS,             /* that many drops fail with -EIO */
    FAKE_HOLD_VOLUMES,           /* as FAKE_HOLD_CREATES, for VOLUME_MAKE and VOLUME_REMOVE */
    FAKE_MUTE_VOLUMES,           /* 1: both are done, and never answered */
    FAKE_HOLD_RESIZES,           /* as FAKE_HOLD_CREATES */
    FAKE_FAIL_RESIZES,           /* that many resizes fail with -EBUSY: it uses more memory */
    FAKE_KEEP_RESIZES,  /* that many fail with -ETIMEDOUT, and the answer says that it has them */
    FAKE_FAIL_VOLUMES,  /* that many of both fail with -EIO */
    FAKE_BUSY_KEPTS,    /* that many KEPTS say that all is busy */
    FAKE_KEEPS_NOTHING, /* 1: files are in memory, from the next HELLO on */
    FAKE_VOLUME_BUSY,   /* 1: agents have calls of a volume's contents under way */
    FAKE_CPU_MS,        /* what a sandbox has used of the processor; 0: a little more each time */
    FAKE_HOLD_ARCHIVES, /* as FAKE_HOLD_CREATES; one that is stopped is answered at its release */
    FAKE_HOLD_DUMPS,    /* as FAKE_HOLD_CREATES */
    FAKE_FAIL_DUMPS,    /* that many dumps fail with FAKE_MEMORY_ERRNO */
    FAKE_FAIL_RESTORES, /* the same for creates on memory */
    FAKE_LOSE_RESUMES,  /* the same for those of a sandbox's own memory, which is gone then */
    FAKE_MEMORY_ERRNO,  /* EOPNOTSUPP; of a dump ETIMEDOUT and ECHILD keep its files */
    FAKE_PREPARE, /* status of an agent's answer when it is to prepare for a dump: 204; 0: none comes */
    FAKE_ARCHIVE_ERRNO,  /* of an answer to ARCHIVE, as it is sent: 0 or -errno */
    FAKE_ARCHIVE_STAYS,  /* 1: an ARCHIVE that is done says that the bucket did not take it */
    FAKE_FETCH_ERRNO,    /* as FAKE_ARCHIVE_ERRNO, to FETCH */
    FAKE_HOLD_TRANSFERS, /* as FAKE_HOLD_CREATES, for EXPORT and IMPORT */
    FAKE_EXPORT_ERRNO,   /* as FAKE_ARCHIVE_ERRNO, to EXPORT */
    FAKE_LATE_GO_ONS,    /* that many times an agent that is to go on says that it cannot yet */
    FAKE_STUCK_COPIES,   /* that many copies fail with -ENOTRECOVERABLE: their sandbox is frozen */
    FAKE_CONNECT_ERRNO,  /* is the answer to each CONNECT; 0: sockets */
    FAKE_KNOB_COUNT
};

enum fake_start_answer {
    FAKE_START_ENDS,   /* it prints "out" and "err" and ends with 3 */
    FAKE_START_FAILS,  /* there is no such program */
    FAKE_START_HANGS,  /* it prints "out" and goes on */
    FAKE_START_BREAKS, /* the connection ends after "out" */
    FAKE_START_LIES    /* its answer is no stream */
};

/* Listens in dir ("<dir>/privd.sock"). */
struct fake *fake_start(const char *dir);
void fake_stop(struct fake *f);

const char *fake_path(const struct fake *f);
unsigned short fake_agent_port(const struct fake *f);
void fake_set(struct fake *f, enum fake_knob knob, int value);
struct fake_counts fake_counts(struct fake *f);

/* Ends the channel and opens it anew, as a restart of privd does; forget: its sandboxes are gone. */
void fake_restart(struct fake *f, bool forget);

/* Closes the channel, and does not listen until fake_restart. */
void fake_down(struct fake *f);

/* A sandbox that no call asked for. */
void fake_add_stray(struct fake *f, const char *id);

/* PID 1 of that sandbox dies: it goes, and ENDED is sent. */
void fake_end(struct fake *f, const char *id, unsigned cause);
void fake_end_silently(struct fake *f, const char *id); /* without ENDED */
bool fake_lives(struct fake *f, const char *id);

/* The level that it was asked for at; -1: it does not live. */
int fake_level(struct fake *f, const char *id);

/* Its limits; it lives. */
struct privsep_limits fake_limits(struct fake *f, const char *id);

/* Freezes it, or lets it go on, unasked. */
void fake_set_frozen(struct fake *f, const char *id, bool frozen);
bool fake_is_frozen(struct fake *f, const char *id);

/* The connections to agents end, those of programs that hang (FAKE_START_HANGS) too. */
void fake_break_starts(struct fake *f);

/* The number of kept files (or none), as it is on privd's disk, of no known owner; and of an owner. */
void fake_set_kept(struct fake *f, unsigned number, bool kept);
void fake_set_owner(struct fake *f, unsigned number, const char *owner);
bool fake_is_kept(struct fake *f, unsigned number);
void fake_set_memory(struct fake *f, unsigned number, bool there); /* beside those files */
bool fake_has_memory(struct fake *f, unsigned number);

/* As where the memory of a sandbox was restored for an earlier cayd: it runs, its number is free, and the cayd that is there is
 * told. */
void fake_restored(struct fake *f, unsigned number, const char *id,
                   const uint8_t key[static PRIVSEP_KEY_SIZE]);

/* Its agent is prepared for a dump. */
bool fake_is_prepared(struct fake *f, const char *id);

/* The same of a volume. */
void fake_set_volume(struct fake *f, unsigned number, const char *owner);
bool fake_is_volume(struct fake *f, unsigned number);

/* The volumes of the last CREATE: that entry. */
struct privsep_mount fake_mount(struct fake *f, unsigned place);

/* The name of the last directory of the host that a CREATE asked for. */
void fake_host_dir(struct fake *f, char out[static PRIVSEP_OWNER_SIZE + 1]);

/* PROGRESS for the job that is held. */
void fake_progress(struct fake *f, unsigned percent, const char *text);

/* The last body that an agent got at /init, into out. */
void fake_init_body(struct fake *f, char *out, size_t size);
