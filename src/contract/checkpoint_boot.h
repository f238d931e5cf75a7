#pragma once
/* Descriptors that cay-checkpoint is started with, by number. Those of a restore are given by what
 * made the sandbox's namespaces and its tree of files, as whose root it then runs. */

#define CHECKPOINT_CRIU "/usr/local/sbin/criu" /* that it runs */

#define CHECKPOINT_PID_FD     3 /* a dump's: a pidfd of the sandbox's PID 1 */
#define CHECKPOINT_WORK_FD    3 /* a restore's: a directory for what is no part of the image */
#define CHECKPOINT_DIR_FD     4 /* the image's; a dump's, which is empty, is the first id's */
#define CHECKPOINT_REQUEST_FD 5 /* written to: one line when all is in the directory */
#define CHECKPOINT_ANSWER_FD  6 /* a dump's; read from: CHECKPOINT_END, or anything else */

/* Of a restore. REQUEST_FD is then a socket, which gets these words one after the other; each is
 * answered with CHECKPOINT_GO, without which there is no next one. */
/* CHECKPOINT_IMAGE: all is there but the image. With the answer come the descriptors that are
 * CHECKPOINT_DIR_FD and CHECKPOINT_PROGRAM_FD from then on: so nothing of an image can be read
 * before who answers knows that it is whole. */
#define CHECKPOINT_IMAGE "I\n"
#define CHECKPOINT_READY "R\n" /* all is there but CRIU, which is started where this process is */
#define CHECKPOINT_ALONE "N\n" /* with a pidfd of PID 1, before it has a child */
#define CHECKPOINT_MADE  "M\n" /* all processes are there, and the filters' listener was sent */
/* CHECKPOINT_DONE: all stand still, and are let go of after the answer. When this program then ends
 * with status 0 no process but their own holds them any more. */
#define CHECKPOINT_GO 'g'

#define CHECKPOINT_FILTERS_FD  7 /* a file of filter_file */
#define CHECKPOINT_LISTENER_FD 8 /* a socket: gets the listener of those filters */
#define CHECKPOINT_PROGRAM_FD  9 /* PID 1's program: what /proc/1/exe is */
#define CHECKPOINT_LAST_FD     9

#define CHECKPOINT_END  'e' /* the sandbox's processes end, as its image is kept */
#define CHECKPOINT_DONE "D\n"

/* Where the file system of a restore's mount points is attached, in a mount namespace of its own:
 * CRIU makes its working directories in /tmp, and this is then a /tmp of its own. */
#define CHECKPOINT_STAGE "/tmp"
#define CHECKPOINT_ROOT  "/tmp/root"
/* That tree without what is mounted in it, which CRIU mounts there one by one. */
#define CHECKPOINT_PLAIN_ROOT "/tmp/plain"
