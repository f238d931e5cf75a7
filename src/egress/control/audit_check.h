#pragma once
/* A check of the audit log's chains (audit_chain.h), from the oldest line that is kept to the
 * newest that there was when it began, in slices: the loop opens the files, since it alone renames
 * and removes them, and a helper thread reads a slice. A file that makes room for newer lines
 * between two slices is not missed. */

#include "egress/audit/audit_store.h"

#include <stdio.h>

struct audit_checking {
    struct audit_store *store;
    const char *dir; /* of the files */
    /* copies, as they were when it began; all of these are the caller's, and outlive it */
    const struct audit_log *sources;
    size_t n_sources;
    volatile int *canceled; /* ends when it is not 0 */

    struct audit_check found;
    struct audit_walk walk;
    size_t source;
    uint32_t number; /* of the file; one that the source's first has not had yet is walk.out NULL */
    FILE *file;      /* NULL: the next one is not open yet */
    size_t left;     /* bytes of it, of those that it had when it was opened */
    char name[AUDIT_NAME_SIZE];
};

/* On the loop: has it something to read? 1; 0: all is read; -errno. */
int audit_check_next(struct audit_checking *c);

/* On a helper thread, after audit_check_next was 1: about so many bytes of it. 0 or -errno,
 * -ECANCELED. */
int audit_check_slice(struct audit_checking *c, size_t bytes);

void audit_check_close(struct audit_checking *c);
