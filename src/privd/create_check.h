#pragma once
/* Whether a CREATE may begin. */

#include "contract/proto.h"

struct privd;

/* m: a CREATE that permit.c let pass. 0, or -errno and the stage that refuses, and for
 * PRIVSEP_STAGE_LEVEL and PRIVSEP_STAGE_ARCHIVE why: a level that is not there has the reason that
 * its driver gave. */
int create_check(struct privd *p, const struct privsep_msg *m, uint32_t *stage,
                 char why[static PRIVSEP_WHY_SIZE]);
