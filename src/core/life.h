#pragma once
/* The life of a sandbox as a table: for each state what every event does, and what holds while a
 * sandbox is in that state. Pure data; no file of core, gateway or api compares a state itself.
 *
 * Readers call life_of or sandbox_life. sandbox.c carries out steps, lifecycle.c events, pause.c
 * and the tiers (tier.h) the changes between running and paused; all others ask what a state
 * grants.
 *
 * Deny by default: an entry that was not written is 0. 0 in `next` permits no step, 0 in an event
 * ends the sandbox or does nothing that keeps it, 0 in a call refuses it, and false grants
 * nothing: it counts against its quotas too. */

#include "core/core.h"

/* A row of the store, before privd was asked. */
enum life_start {
    LIFE_START_REFUSE, /* not decided: the start is refused */
    LIFE_START_UNDO,   /* ending: its create was never answered, so no client is told of its end */
    LIFE_START_RUN,    /* its end is armed where it has one; it goes on when LIST has it */
    LIFE_START_FILES,  /* LIST and KEPTS tell what there is of it */
    LIFE_START_END,    /* it stays ending */
    LIFE_START_DELETE  /* the row is removed */
};

/* The timer of its end fires. */
enum life_timer {
    LIFE_TIMER_NONE,     /* none is armed */
    LIFE_TIMER_CREATE,   /* the create's deadline: its caller is told, and it is ended */
    LIFE_TIMER_LIFETIME, /* its time is over: `timeout`, unless it was used meanwhile */
    LIFE_TIMER_KILL,     /* KILL was not answered: it is sent again */
    LIFE_TIMER_CHANGE,   /* privd has not answered what it was asked for: its channel begins anew */
    LIFE_TIMER_REST      /* it was stopped as long as its owner lets it: ended (auto_delete.h) */
};

/* Its time is over, by what its owner chose (on_timeout). */
enum life_timeout {
    LIFE_TIMEOUT_END,
    LIFE_TIMEOUT_PAUSE /* paused; a failed attempt is repeated */
};

/* LIST (and, for kept files, KEPTS) does not have it. */
enum life_missing {
    LIFE_MISSING_LOST,  /* ended; its owner is told "lost" */
    LIFE_MISSING_DONE,  /* ended, as was wanted, once kept files of it are dropped */
    LIFE_MISSING_FILES, /* KEPTS decides: kept, or not there: ended; its owner is told "error" */
    LIFE_MISSING_WAIT   /* stays: the answer to CREATE decides */
};

/* LIST has it. (What privd has and the store does not is killed: it has no state.) */
enum life_listed {
    LIFE_LISTED_END,    /* lifecycle_end: it may not be there */
    LIFE_LISTED_KEEP,   /* slot and generation are taken over; one that is frozen goes on */
    LIFE_LISTED_SETTLE, /* the same, and then paused or running, as privd says (pause_settle) */
    LIFE_LISTED_RUNS,   /* the same, and it runs: its files were not kept */
    LIFE_LISTED_AGAIN, /* the same, and its files are kept again: no caller waits for it any more */
    LIFE_LISTED_KILL,  /* KILL is sent again */
    LIFE_LISTED_WAIT   /* the answer to CREATE decides */
};

/* Its PID 1 ended (privd's ENDED). */
enum life_exit {
    LIFE_EXIT_ENDED, /* ended with the cause that privd names */
    LIFE_EXIT_WAIT   /* the answer to KILL ends it */
};

/* A call of its owner. */
enum life_call {
    LIFE_CALL_NOT_FOUND,
    LIFE_CALL_DO,        /* done */
    LIFE_CALL_WAIT,      /* the call under way comes first, and may be just that */
    LIFE_CALL_ALREADY,   /* refused: it is so already */
    LIFE_CALL_UNDER_WAY, /* answered like NOT_FOUND; a KILL of ours awaits its answer */
    LIFE_CALL_END        /* kill: lifecycle_end */
};

/* The change of its processes that is under way. */
enum life_change { LIFE_CHANGE_NONE, LIFE_CHANGE_PAUSE, LIFE_CHANGE_RESUME };

/* The state for clients that know two states. */
enum life_group { LIFE_GROUP_NONE, LIFE_GROUP_RUNNING, LIFE_GROUP_PAUSED };

struct life {
    const char *name;
    unsigned next; /* LIFE_STEP(state) | ...: the states that may follow */
    enum life_start at_start;
    enum life_timer timer;
    enum life_timeout timeout[SANDBOX_TIMEOUT_ACTION_COUNT];
    enum life_missing missing;
    enum life_listed listed;
    enum life_exit exit;
    enum life_call kill, pause, resume;
    enum life_change change;
    enum life_group group; /* in listings */
    bool files;            /* its files alone are there, or are about to be */
    bool awaits_create;    /* the answers to CREATE and /init belong to it */
    bool visible;          /* clients may know of it */
    bool wakes;            /* a request to its ports may resume it, or waits for it to be resumed */
    bool reachable;        /* its ports, its agent, programs, samples, its tenant's certificate */
    bool policy;           /* cay-egress is sent its policy, once privd has made it */
    bool gone;             /* it counts against no quota, and has none of its volumes any more */
};

#define LIFE_STEP(state) (1u << (state))

/* Never NULL. For a number that is no state: a row that permits nothing. */
const struct life *life_of(enum sandbox_state state);

/* Its files and nothing else are there, and nothing is under way. */
bool life_is_at_rest(enum sandbox_state state);

bool life_may_move(enum sandbox_state from, enum sandbox_state to);
