#pragma once
/* The part of the machine that mksquashfs is given: it reads a tree whose names, attributes and
 * contents are a tenant's. */

struct archive_walls {
    int layer_fd; /* becomes /layer, read-only */
    int out_fd;   /* becomes /out */
};

/* In the process that is to be mksquashfs, as root in a network namespace without interfaces: a
 * root of its own with these two and the host's /usr, no user's ids, and of all capabilities the
 * one to read any file. 0 or -errno. */
int archive_walls_enter(const void *walls);
