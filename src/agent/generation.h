#pragma once
/* The sandbox's generation: 32 hex digits and a newline in /run/sandbox/generation, for programs
 * that have to know that the sandbox was interrupted, or began as a copy of another: those that
 * keep random numbers, connections, leases or times of their own.
 *
 * A new random value at each start of cay-init (a create, a fork, a sandbox of a snapshot, a resume
 * of the files, a rollback) and at each resume of what was frozen. Written in place, so that a
 * watch (inotify: IN_MODIFY) or a mapping of the file sees it. Mode 0444: root inside can write it
 * as any file of its own; it tells programs of the sandbox, and is no evidence. */

#define GENERATION_DIR  "/run/sandbox"
#define GENERATION_NAME "generation"

/* Best effort: files that were made without /run have none. */
void generation_renew(void);
