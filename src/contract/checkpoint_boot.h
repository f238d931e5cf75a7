#pragma once
/* Descriptors that cay-checkpoint is started with, by number. Those of a restore are given by what
 * made the sandbox's namespaces and its tree of files, as whose root it then runs. */

#define CHECKPOINT_PID_FD    3 /* a dump's: a pidfd of the sandbox's PID 1 */
#define CHECKPOINT_DIR_FD    4 /* the image's directory, the first id's; for a dump empty */
#define CHECKPOINT_ASK_FD    5 /* written to: one line when all is in the directory */
#define CHECKPOINT_ANSWER_FD 6 /* a dump's; read from: CHECKPOINT_END, or anything else */

/* Of a restore. ASK_FD is then a socket, which gets CHECKPOINT_DONE with a pidfd of PID 1, while
 * all processes stand still. */
#define CHECKPOINT_FILTERS_FD  7 /* a file of filter_file */
#define CHECKPOINT_LISTENER_FD 8 /* a socket: gets the listener of those filters */
#define CHECKPOINT_PROGRAM_FD  9 /* PID 1's program: what /proc/1/exe is */
/* cay-init's end of the boot socket (agent_boot.h), which it gets by another way (agent_go_on.h):
 * here it is only seen whether a struct agent_boot and a struct agent_claim are there, which says
 * that the processes may go on. */
#define CHECKPOINT_BOOT_FD 10
#define CHECKPOINT_LAST_FD 10

#define CHECKPOINT_END  'e' /* the sandbox's processes end, as its image is kept */
#define CHECKPOINT_DONE "D\n"

/* Where the file system of a restore's mount points is attached, in a mount namespace of its own:
 * CRIU makes its working directories in /tmp, and this is then a /tmp of its own. */
#define CHECKPOINT_STAGE "/tmp"
#define CHECKPOINT_ROOT  "/tmp/root"
/* That tree without what is mounted in it, which CRIU mounts there one by one. */
#define CHECKPOINT_BARE "/tmp/bare"
