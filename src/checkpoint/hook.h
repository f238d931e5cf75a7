#pragma once
/* cay-checkpoint itself as CRIU's action script, which CRIU calls while all processes of a sandbox
 * stand still. */

#define HOOK_PROGRAM "/proc/%d/exe" /* of the cay-checkpoint that started CRIU */

/* CRIU closes all descriptors for its script: those of the cay-checkpoint that self names are taken
 * from it, with their numbers. It is dumpable for this, and has no other rights than CRIU. 0 or
 * -errno. */
int hook_take_descriptors(const char *self, const int *wanted, unsigned n);
