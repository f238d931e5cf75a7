#pragma once
/* The state that privd needs after it died: one fixed-size record per slot in <run>/slots/table, a
 * file of root's alone, written with one pwrite before each step. It is believed only together with
 * cgroups, /proc and process start times (recover.c), and only for this boot of the host.
 *
 * Writes are a few microseconds (page cache; no fsync: what it describes dies with the kernel
 * too). */

#include "base/util.h"
#include "privd/permit.h"

#include <sys/types.h>

#define RECORDS_MAGIC   0x63617931u /* "cay1" */
#define RECORDS_VERSION 1u

struct record {
    uint32_t magic, version;
    uint32_t slot, gen;
    uint32_t state;     /* enum slot_state: the present step, or the last */
    int32_t pid;        /* of PID 1 in privd's pid namespace; 0: none yet */
    uint64_t pid_start; /* field 22 of /proc/<pid>/stat */
    uint32_t template_number, level;
    int64_t started_real_ms;
    struct privsep_limits limits;
    char id[PRIVSEP_ID_SIZE];
    struct privsep_mount volumes[PRIVSEP_CREATE_VOLUMES];
    uint32_t on_archive, account; /* 0 in one of an earlier version, which had neither */
    uint8_t zero[96];
    uint64_t sum; /* over all before it */
};

_Static_assert(sizeof(struct record) == 256, "records lie at slot * 256");

struct records {
    int fd;
    uint32_t slots_max;
    uint32_t first_gen; /* of slots that have no record: above whatever was before the last boot */
};

/* Opens or makes run_dir/slots/table. A table of another boot of the host is emptied. 0 or
 * -errno. */
int records_open(struct records *r, const char *run_dir, uint32_t slots_max);
void records_close(struct records *r);

/* After a shutdown that left nothing: removes the file and its directory. */
void records_remove(struct records *r, const char *run_dir);

/* Fills magic, version and sum, and writes. 0 or -errno. */
int records_write(const struct records *r, struct record *rec) WARN_UNUSED;

/* 0; -ENOENT: never written, or damaged. */
int records_read(const struct records *r, uint32_t slot, struct record *out) WARN_UNUSED;

/* Start time of a process in clock ticks since boot: with its pid it names a process for good.
 * 0 or -errno. */
int records_pid_start(pid_t pid, uint64_t *out);
