#pragma once
/* Room for a start on files that fill their limit. A start needs some: the kernel makes the
 * directories of an overlay anew, cay the files for the sandbox's name, CRIU those that programs
 * had open and removed. Without room a sandbox whose disk was full when it was paused would never
 * run again, and a full volume would be mounted read-only, so that no sandbox could empty it.
 *
 * The limit is higher from before the mounts until PID 1 was executed, in which no program of a
 * tenant runs. A child of the task, which keeps the host's root while the task gives it up, sets it
 * down when the task and PID 1 have closed a pipe: so it does, however they end. Where it is killed
 * itself, with the host or with the control group of an image, the next start sets it.
 *
 * Private to the runtime; in tasks only. */

#include "base/util.h"

#include <stdint.h>
#include <sys/types.h>

#define DISK_ROOM_BYTES (16ull * 1024 * 1024) /* beyond what is used, for one start */
#define DISK_ROOMS_MAX  5u                    /* of one start: its layer and its volumes */

/* Those of one start. */
struct disk_rooms {
    uint32_t n;
    pid_t children[DISK_ROOMS_MAX];
    int pipes[DISK_ROOMS_MAX];
};

/* Limits the subvolume whose root fd is; root_fd: of its file system; bytes: its limit, 0: none;
 * rooms NULL: no room, as for what is new. disk_rooms_end follows in each case. 0 or -errno. */
int disk_room_limit(struct disk_rooms *rooms, int root_fd, int fd, uint64_t bytes) WARN_UNUSED;

/* Waits until all limits are what they shall be. PID 1 was executed, or has ended. */
void disk_rooms_end(struct disk_rooms *rooms);
