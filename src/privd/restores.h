#pragma once
/* Creates whose sandboxes are restored from memory: few at a time, as an image is in the host's
 * memory beside what is restored of it, shared out by the accounts that the peer names
 * (base/share.h). While its image is opened and read a create has a control group for it, which
 * bounds and counts it. */

#include "privd/create_request.h"
#include "privd/image_groups.h"

#define RESTORES_MAX       6u    /* at a time, of the whole server */
#define RESTORES_AHEAD     1u    /* beside them, for the pool */
#define RESTORE_TIMEOUT_MS 90000 /* longer than cay-checkpoint has */

/* May that account have another, beside those that have begun or wait for a slot? */
bool restores_left(const struct privd *p, uint32_t account);

/* As image_group_begin; restores_group_end follows in either case. */
int restores_group_begin(struct privd *p, struct create_request *c, uint64_t memory_bytes,
                         int fds[static IMAGE_GROUP_FDS]);

/* The image that is kept by that number, for a sandbox of that kind: the same that dump.c had
 * sealed. */
const struct runtime_image *restores_image(const struct privd *p, const struct slot_kind *kind,
                                           uint32_t kept, struct runtime_image *out);

/* The same for a member of the pool, which is no account's: one at a time. */
int restores_ahead_begin(struct privd *p, uint64_t memory_bytes, int fds[static IMAGE_GROUP_FDS]);
void restores_ahead_end(struct privd *p);

/* When the start has ended, or its task has. c may have none, or be NULL. */
void restores_group_end(struct privd *p, struct create_request *c);
