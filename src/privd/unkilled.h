#pragma once
/* Children of privd that were killed and have not ended: in a call of the kernel that nothing
 * interrupts, or frozen. They are not waited for, and reaped when they end. As many as there are
 * tasks at most. Until then the slot that such a one works on is not cleaned (end.c), so that it
 * finds nothing of the slot's next use. */

#include <stdbool.h>
#include <stdint.h>

struct privd;

/* A task of that slot. Takes pidfd over, as task_cancel returns it; -1: nothing. Where memory is
 * out it stays a zombie until privd ends. */
void unkilled_add(struct privd *p, uint32_t slot, int pidfd);

/* Is there such a task of that slot? */
bool unkilled_of(const struct privd *p, uint32_t slot);

/* Forgets those that are left; they live on. */
void unkilled_free(struct privd *p);
