#pragma once
/* Control groups of what works on a sandbox's memory from outside of it, beside those of jobs: that
 * work is bounded and counted there, and ended with its group. */

#include <stdint.h>

struct privd;

#define IMAGE_GROUPS_FIRST 16u /* its number in the control group of jobs */
#define IMAGE_GROUPS       11u /* from 0: those of dump.c, then those of restores.c */
#define IMAGE_GROUP_FDS    8

/* For an image of a sandbox that has so much memory. Files into which writing "0" moves the writer
 * there, in each hierarchy; the caller's. How many, or -errno. */
int image_group_begin(struct privd *p, uint32_t group, uint64_t memory_bytes,
                      int fds[static IMAGE_GROUP_FDS]);

/* Kills what is in it. */
void image_group_end(struct privd *p, uint32_t group);
