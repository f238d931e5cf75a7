#pragma once
/* Moves SQLite's log into its file beside the control loop: a thread that sleeps until it is asked.
 * A checkpoint of the mode PASSIVE never makes a writer wait. */

struct store_checkpoint;

/* 0 or -errno. path is copied. */
int store_checkpoint_start(const char *path, struct store_checkpoint **out);

/* Asks for one; does nothing when one is asked for already. */
void store_checkpoint_request(struct store_checkpoint *cp);

/* Callable from any thread. Waits for the checkpoint that runs: milliseconds, as it writes at most
 * the log. */
void store_checkpoint_wait(struct store_checkpoint *cp);

/* Waits for the one that runs and ends the thread. NULL is fine. */
void store_checkpoint_stop(struct store_checkpoint *cp);
