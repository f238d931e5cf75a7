#pragma once
/* A pause with the files alone, or with the memory beside them (dump.h). cay-privd ends the sandbox
 * and keeps its layer by a number (KEEP); later it makes one of the same id on that layer (CREATE),
 * which boots anew. The row says which number: it is chosen here, written before it is asked for,
 * and free again when the sandbox runs or privd has dropped what was kept by it.
 *
 * running -> keeping: its agent is asked for its environment, which is written (nothing else has
 * it then), then KEEP; kept; restarting: CREATE and /init as of any create (create.c), then
 * running. After an end of a program in between, LIST, which has the running sandboxes, and KEPTS,
 * which has the kept files, decide (life.h).
 *
 * A rollback (reboot.h) is a restart on a copy of a snapshot's files: its own are kept by their
 * number until it runs, and dropped then. Until that is written it can only become what it was:
 * its own files, kept. */

#include "base/err.h"
#include "contract/proto.h"
#include "core/core.h"
#include "core/timers.h"

#include <stdbool.h>
#include <stdint.h>

struct sandbox_obj;
struct tier;

/* The last answer of KEPTS about a number. */
enum kept_seen { KEPT_SEEN_NONE, KEPT_SEEN_WHOLE, KEPT_SEEN_BUSY };

struct kept_listed {
    enum kept_seen seen;
    bool without_memory;
    uint8_t owner[PRIVSEP_OWNER_SIZE]; /* all zero: privd does not know */
};

/* The kept files of privd, by number (keep.c). */
struct kepts {
    bool can;                                        /* privd can keep files at all */
    struct kept_listed listed[PRIVSEP_KEPT_MAX + 1]; /* by the last answer to KEPTS */
    struct kept_listed coming[PRIVSEP_KEPT_MAX + 1]; /* events of one that is not whole yet */
    bool stray[PRIVSEP_KEPT_MAX + 1];                /* no row names it: being dropped */
    struct timer strays_again;                       /* armed: some could not be */
};

/* The name by which privd knows the owner of kept files: the beginning of the sandbox's or
 * snapshot's id, most of which is random. */
void keep_owner(const char *id, uint8_t out[static PRIVSEP_OWNER_SIZE]);

/* The state, by the last KEPTS, of the files that this sandbox or snapshot has by that number: none
 * where they are another's. */
enum kept_seen keep_seen(const struct core *c, uint32_t number, const char *id);

/* Whether DROP was answered so that nothing of its owner is kept by that number: it is removed,
 * or another's by now. */
bool keep_is_gone(int status);

/* ERR_UNIMPLEMENTED: this server's disk cannot keep files. */
enum err_code keep_check(const struct core *c, struct err *e);

/* A number that is free, as far as the tenant's share goes (ERR_EXHAUSTED). */
enum err_code keep_choose_number(struct core *c, const char *tenant, uint32_t *out, struct err *e);

/* running -> keeping, to a tier other than frozen. On failure nothing has changed. */
enum err_code keep_begin(struct sandbox_obj *o, enum sandbox_pause_reason reason,
                         const struct tier *tier, struct err *e);

/* Keeping, and its hooks have ended: its agent is asked for its environment. why: it did not answer
 * (NULL: it did), so that it is not kept. */
void keep_go_on(struct sandbox_obj *o, const struct err *why);

/* kept -> restarting, on its files or on a copy of those that it is rolled back to. The same. */
enum err_code keep_resume(struct sandbox_obj *o, struct err *e);

/* -- for dump.c -------------------------------------------------------------------------------- */

/* Keeping, and its environment is written: privd is asked to keep its files alone. */
void keep_send(struct sandbox_obj *o);

/* privd has ended it and could not keep its files so far: callers are told, and KEPTS is asked
 * until they are whole. */
void keep_waits(struct sandbox_obj *o);

/* Keeping, and privd has ended it: what it keeps is on the disk. Or it has not, and it runs. */
void keep_done(struct sandbox_obj *o);
void keep_not_done(struct sandbox_obj *o, const struct err *why);

/* Restarting, and privd has refused it so far: it is asked (again). */
void keep_send_restart(struct sandbox_obj *o);

/* -- the rest ---------------------------------------------------------------------------------- */

/* It runs: no number is its own, and its environment is its agent's alone. The caller writes the
 * row. */
void keep_forget(struct sandbox_obj *o);

/* -- of a restart, from create.c --------------------------------------------------------------- */

/* It could not be made, and its files are kept still. */
void keep_restart_refused(struct sandbox_obj *o, int status, const struct err *why);

/* It was made, and its agent failed: its files are kept again. */
void keep_restart_failed(struct sandbox_obj *o, const struct err *why);

/* -- events of life.h -------------------------------------------------------------------------- */

/* LIST has one that is being kept: it runs. */
void keep_on_listed_running(struct sandbox_obj *o);

/* LIST has one that is kept or being restarted: its files are kept again when KEPTS has told
 * what there is of them (keep_settle_listed). */
void keep_on_listed_again(struct sandbox_obj *o);

/* Its first process ended. true: it had been made of a snapshot's files, and is paused with its
 * own. */
bool keep_on_ended(struct sandbox_obj *o, const char *cause);

/* LIST does not have it; seen: what KEPTS says of its number. May free o. */
void keep_on_missing(struct sandbox_obj *o, enum kept_seen seen);

/* Its timer fired. false: privd owes an answer for too long. */
bool keep_on_timer(struct sandbox_obj *o);

/* ENDING, and no process of it is left: its kept files are dropped. Its end follows. */
void keep_drop(struct sandbox_obj *o);

/* Whether that is tried again without a word to who waits for it. */
bool keep_drops_quietly(const struct sandbox_obj *o);

/* -- with KEPTS, from core.c ------------------------------------------------------------------- */

/* Asks privd what is kept; fn when it is known (status 0) or not. 0, or -errno when nothing was
 * asked. */
int keep_send_kepts(struct core *c, void (*fn)(struct core *c, int status));
void keep_on_kept_event(struct core *c, const struct privsep_msg *m);

/* Kept files that no row names are dropped. */
void keep_drop_strays(struct core *c);

/* The kept files of that number (0: none) and of the sandbox with that id go: no row names them. */
void keep_drop_left(struct core *c, const char *id, uint32_t number);

/* KEPTS was answered: keep_on_missing for all that LIST did not have, and keep_settle_listed. */
void keep_settle_all(struct core *c);

/* Those that LIST has, though their files alone are to be there. */
void keep_settle_listed(struct core *c);

/* Asks what is kept, and settles all by it. 0 or -errno. */
int keep_request_settle(struct core *c);
