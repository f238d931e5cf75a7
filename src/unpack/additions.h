#pragma once
/* Adds the common files of templates to a tree that archives made, as far as they are not there:
 * mount points, the users of E2B's and Daytona's clients, a bash for clients that call commands
 * with it, the name server, and what the image wants to be run with. Names are opened as in
 * tree_entry.h. */

#include "base/buf.h"
#include "base/err.h"
#include "base/util.h"

struct additions {
    int root_fd;            /* the tree; not owned */
    int start_fd, image_fd; /* become /etc/cay/start.json and image.json; -1: none */
    int cwd_fd;             /* has the path of the folder that the image begins in; -1: none */
    struct buf *said;       /* additions, and what cannot be added, in words, "; " between */
};

/* To be called where the root of the process is the tree: programs are looked for by their
 * paths, and the image's folder is made by its. */
enum err_code additions_put(const struct additions *a, struct err *e);
