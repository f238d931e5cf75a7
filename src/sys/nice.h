#pragma once
/* The scheduler's priority of the calling process, and of what it starts from then on. Nothing
 * blocks. */

/* Nice value (setpriority(2), -20 to 19). Where the process leads its session, the kernel's group
 * of that session (sched(7), autogroup) gets the same: without that the value counts only among
 * the session's own. 0 or -errno (-EACCES: a lower value needs CAP_SYS_NICE). */
int nice_set(int value);

/* Back to 0 from a value below that, for a child that runs a program that is not the daemons' own.
 * A process without CAP_SYS_NICE of the host whose RLIMIT_NICE is 0 cannot go below it again. 0 or
 * -errno. */
int nice_give_up(void);
