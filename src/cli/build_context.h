#pragma once
/* The folder that a build takes files from: COPY names what is below it and nothing else, whatever
 * links are in it. It is held open, so that what is checked and what is read are the same. */

#include "base/buf.h"
#include "base/err.h"

#include <sys/stat.h>

#define BUILD_FILE_NAME "Dockerfile"

struct build_context {
    int dir_fd;
};

/* Opens the folder at path with its Dockerfile, or, where path is a file, that and the folder it is
 * in. text gets what the file says, up to its maximum. Close it, also after an error. */
enum err_code build_context_open(struct build_context *c, const char *path, struct buf *text,
                                 struct err *e);
void build_context_close(struct build_context *c);

/* Opens a file or a folder by a name of COPY: what leaves the folder (.., a link out) is refused,
 * and so is what is neither of the two. The descriptor, or -1 and why. */
int build_context_source(const struct build_context *c, const char *name, struct stat *st,
                         struct err *e);
