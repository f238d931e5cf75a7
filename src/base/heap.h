#pragma once
/* Limits the freed memory that the C library's heap keeps. glibc raises its own thresholds with
 * each large block that is freed, after which blocks of up to 32 MiB stay in the heap, and pages
 * between small blocks are never given back unless that is asked for. */

/* At the start, before any thread: blocks of a MiB and more go back to the kernel when they are
 * freed, and so does what is free at the heap's end beyond a MiB. */
void heap_bound_kept(void);

/* Gives back all free pages, of all threads. Takes some milliseconds where much was used: for the
 * end of something large and rare. */
void heap_give_back(void);
