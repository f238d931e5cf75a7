#pragma once
/* The tiers of a pause as rows of one table: the state of a sandbox that each keeps, and the
 * functions that pause and resume it so. Two sets of functions do it: freeze.c, where the sandbox
 * stays and stands still, and keep.c, where it ends and its files lie on the disk by a number (with
 * memory beside them: dump.c within it). pause.c has the steps that are the same in all.
 *
 * A tier is no state: while a sandbox is in one of the states of life.h it has just one row here
 * (tier_of_sandbox), by that state and its own row of the store. */

#include "base/err.h"
#include "core/core.h"

#include <stdbool.h>

struct sandbox_obj;

/* ROW(tier, name, memory, or_files, prefix of its functions); struct tier says the rest. A row that
 * is missing here, and a function that a prefix lacks, does not compile. */
#define TIERS(ROW)                             \
    ROW(FROZEN, "frozen", true, false, freeze) \
    ROW(FILES, "files", false, false, keep)    \
    ROW(MEMORY, "memory", true, false, keep)   \
    ROW(MEMORY_OR_FILES, "memory", true, true, keep)

struct tier {
    const char *name; /* the word for clients: listings, events, hooks, traces */
    bool memory;      /* its processes are kept, and go on when it is resumed */
    bool or_files;    /* its files alone will do where its memory cannot be kept or restored */
};

struct tier_functions {
    /* ERR_UNIMPLEMENTED where this server lacks what the tier needs. */
    enum err_code (*check)(const struct core *c, struct err *e);

    /* A sandbox that runs: the row is written, its hooks are called. On failure nothing has
     * changed. */
    enum err_code (*begin)(struct sandbox_obj *o, enum sandbox_pause_reason reason,
                           const struct tier *tier, struct err *e);

    /* Its hooks have ended, or (why) its agent did not answer: pause_done or pause_not_done
     * follows. */
    void (*go_on)(struct sandbox_obj *o, const struct err *why);

    /* A sandbox that is paused so: pause_resumed or pause_not_resumed follows. On failure nothing
     * has changed. */
    enum err_code (*resume)(struct sandbox_obj *o, struct err *e);

    /* The timer of a pause or resume fired. false: privd owes an answer for too long. */
    bool (*on_timer)(struct sandbox_obj *o);
};

const struct tier *tier_of(enum sandbox_tier tier);

/* The tier that it is paused in, or that the pause or resume under way is of; for a sandbox that
 * runs, frozen: all of it is there. */
enum sandbox_tier tier_number(const struct sandbox *s);
const struct tier *tier_of_sandbox(const struct sandbox *s);

/* By tier; core.c puts it into the core, so that files which go by it are not above its
 * functions. */
extern const struct tier_functions tier_functions_table[];
