#pragma once
/* Creates whose sandboxes are restored from memory: few at a time, as an image is in the host's
 * memory beside what is restored of it, shared out by the accounts that the peer names
 * (base/share.h). While its image is opened and read a create has a control group for it, which
 * bounds and counts it. */

#include "privd/create_request.h"
#include "privd/image_groups.h"

#define RESTORES_MAX 4u /* at a time, of the whole server */

/* May that account have another, beside those that have begun or wait for a slot? */
bool restores_left(const struct privd *p, uint32_t account);

/* As image_group_begin; restores_group_end follows in either case. */
int restores_group_begin(struct privd *p, struct create_request *c, uint64_t memory_bytes,
                         int fds[static IMAGE_GROUP_FDS]);

/* When the start has ended, or its task has. c may have none, or be NULL. */
void restores_group_end(struct privd *p, struct create_request *c);
