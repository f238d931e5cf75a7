#pragma once
/* The part of the machine that a foreign program is given that works on a layer: mksquashfs reads
 * a tree whose names, attributes and contents are a tenant's; curl speaks to a server of the
 * operator's. */

#include <stdbool.h>
#include <stdint.h>

struct archive_walls {
    int layer_fd;            /* becomes /layer, read-only; -1: there is none */
    int out_fd;              /* becomes /out; -1: there is none */
    int in_fd;               /* becomes standard input; -1: there is none */
    int data_fd;             /* becomes standard output; -1: that is what the job reads */
    const char *authorities; /* of TLS: this file is copied to ARCHIVE_WALLS_CA; or NULL */
    bool names;              /* the files by which names are resolved are copied to /etc */
    uint64_t bytes_max;      /* of a file that it writes */
};

#define ARCHIVE_WALLS_CA "/ca.pem"

/* In the process that is to be the program, as root: a root of its own with these and the host's
 * /usr, no user's ids, and of all capabilities the one to read any file. Whether there is a network
 * is the job's. 0 or -errno. */
int archive_walls_enter(const void *walls);
