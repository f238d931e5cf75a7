#pragma once
/* Kept layers: writable layers by number, which outlive the slot that they come from, privd and the
 * host's boot. A layer is kept by KEEP, which ends its sandbox, used by a CREATE with that number,
 * which takes it, and removed by DROP.
 *
 * There is a record of fixed size for each number in <state>/kept, a file of root's alone. A record
 * says what is being done before it is begun (pwrite; the task that does it makes it durable before
 * it changes the disk) and is brought up to date when it was done. After a crash the state disk is
 * believed: a layer lies below its slot's name, below its number, or nowhere; the record says which
 * of both names was meant. cayd's database is not asked: it lists what is kept (KEPTS) and drops
 * what it does not know. */

#include "contract/proto.h"

#include "base/util.h"

enum kept_state {
    KEPT_NONE,
    KEPT_KEEPING,   /* slot's layer becomes this */
    KEPT_WHOLE,     /* it is there, and nothing of it is in use */
    KEPT_TAKING,    /* it becomes slot's layer; at the end of a start that failed it comes back */
    KEPT_DROPPING,  /* it is being removed */
    KEPT_COPYING,   /* slot's layer is being copied to it */
    KEPT_ARCHIVING, /* it is whole, and being read for the archive that is to be it instead */
    KEPT_IMPORTING, /* a file of another server becomes it */
    KEPT_STATE_COUNT
};

/* On disk, at number * sizeof. Version 1 had no owner. */
struct kept_record {
    uint32_t magic, version;
    uint32_t number;
    uint32_t state; /* enum kept_state */
    uint32_t slot, gen;
    uint32_t template_number; /* of the layers that it lies on; 0: not known any more */
    uint32_t level;
    int64_t since_real_ms;
    uint8_t owner[PRIVSEP_OWNER_SIZE]; /* all zero: not known, as of a lost record */
    uint64_t sum;                      /* over all before it */
};

_Static_assert(sizeof(struct kept_record) == 64, "records lie at number * 64");

struct kept {
    int fd;
    struct kept_record all[PRIVSEP_KEPT_MAX + 1]; /* by number; the first is not used */
    bool without_memory[PRIVSEP_KEPT_MAX + 1];    /* of those that are whole, by the disk */
    /* How many creates were to follow COPY; a number that is free has none. */
    uint8_t creates[PRIVSEP_KEPT_MAX + 1];
};

/* Opens or makes state_dir/kept and reads it. A damaged record is KEPT_NONE. 0 or -errno. */
int kept_open(struct kept *k, const char *state_dir) WARN_UNUSED;
void kept_close(struct kept *k);

/* The record of a number; NULL for what is none. */
const struct kept_record *kept_find(const struct kept *k, uint32_t number);

/* Whether it is that owner's, as far as is known: one that is not is given to any that names the
 * number. */
bool kept_is_of(const struct kept_record *r, const uint8_t owner[static PRIVSEP_OWNER_SIZE]);

/* The number that slot's layer of that generation is to become or comes from; 0: none. */
uint32_t kept_of_slot(const struct kept *k, uint32_t slot, uint32_t gen);

/* Whether one lies on that template. */
bool kept_uses_template(const struct kept *k, uint32_t template_number);

/* Writes it: all but magic, version and sum are r's. The caller does nothing to the disk when this
 * fails. 0 or -errno. */
int kept_write(struct kept *k, const struct kept_record *r) WARN_UNUSED;

/* The same record with another state; KEPT_NONE forgets the rest. */
int kept_enter(struct kept *k, uint32_t number, enum kept_state state) WARN_UNUSED;

/* The same for what is so on the disk already: it is so here too where the record cannot be
 * written, which is logged. The next start finds it by the disk; so this is not for the end of a
 * copy, whose record alone tells a whole one. */
void kept_settle(struct kept *k, uint32_t number, enum kept_state state);

/* The state of a record at a start, by the disk and the sandboxes that live. is_kept: the disk has
 * a layer of that number. lives: its slot and generation are a sandbox that lives. */
enum kept_state kept_recovered(enum kept_state state, bool is_kept, bool lives);
