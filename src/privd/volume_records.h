#pragma once
/* privd's table of volumes: a record of fixed size for each number in <state>/volumes, a file of
 * root's alone, over boots of the host. As with kept layers (kept.h) a record says what is being
 * done before it is begun, the task that does it makes that durable before it changes the disk, and
 * after a crash the disk is believed. */

#include "contract/proto.h"

#include "base/util.h"

enum volume_state {
    VOLUME_NONE,
    VOLUME_MAKING, /* begun, and not answered */
    VOLUME_WHOLE,
    VOLUME_REMOVING,
    VOLUME_STATE_COUNT
};

/* On disk, at number * sizeof. */
struct volume_record {
    uint32_t magic, version;
    uint32_t number;
    uint32_t state; /* enum volume_state */
    uint64_t bytes; /* how much it can hold; 0: not known any more */
    int64_t since_real_ms;
    uint8_t owner[PRIVSEP_OWNER_SIZE]; /* all zero: not known, as of a lost record */
    uint8_t zero[8];
    uint64_t sum; /* over all before it */
};

_Static_assert(sizeof(struct volume_record) == 64, "records lie at number * 64");

struct volume_records {
    int fd;
    struct volume_record all[PRIVSEP_VOLUMES_MAX + 1]; /* by number; the first is not used */
};

/* Opens or makes state_dir/volumes and reads it. A damaged record is VOLUME_NONE. 0 or -errno. */
int volume_records_open(struct volume_records *v, const char *state_dir) WARN_UNUSED;
void volume_records_close(struct volume_records *v);

/* The state of a number; VOLUME_NONE for what is none. */
enum volume_state volume_records_state(const struct volume_records *v, uint32_t number);

/* Whether it is that owner's, as far as is known: one that is not is given to any that names the
 * number. */
bool volume_records_is_of(const struct volume_records *v, uint32_t number,
                          const uint8_t owner[static PRIVSEP_OWNER_SIZE]);

/* Writes one that is to be made. The caller does nothing to the disk when this fails. 0 or
 * -errno. */
int volume_records_enter_new(struct volume_records *v, uint32_t number, uint64_t bytes,
                             const uint8_t owner[static PRIVSEP_OWNER_SIZE]) WARN_UNUSED;

/* Writes its state; size and owner stay as they were, but VOLUME_NONE forgets them. The same. */
int volume_records_enter(struct volume_records *v, uint32_t number,
                         enum volume_state state) WARN_UNUSED;

/* The state of a record at a start, by whether the disk has a volume of that number. */
enum volume_state volume_records_recovered(enum volume_state state, bool is_there);
