#pragma once
/* Was a process ended at the sandbox's memory limit? */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct agent;
struct proc;
struct proc_end;

/* How many of the sandbox's processes the kernel has killed at its memory limit so far; 0 too where
 * that is not to be had. */
uint64_t proc_oom_kills(const struct agent *a);

/* Was p, which was reaped, ended by that, as far as can be told? Its own signal, or that of the
 * program which a shell ran last (137), and a number that grew while it ran. Not where it was
 * killed through the API. */
bool proc_oom_ended(const struct proc *p);

/* A terminal has printed bytes: where does a line end that says "killed", as shells do of a
 * command, once the kernel has killed at the limit? The place after it, or 0. Once for each such
 * time. */
size_t proc_oom_line(struct proc *p, const char *bytes, size_t n);

/* Takes down the name of p's program, which has ended and is not reaped. */
void proc_oom_name(struct proc *p);

/* The sentence for its owner: why, and what to do. killed: whom, where that is known; else NULL. */
void proc_oom_text(const struct agent *a, const struct proc_end *killed, char *out, size_t size);
