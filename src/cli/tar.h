#pragma once
/* tar of this machine as a child with few rights, between a folder and a pipe. */

#include "base/buf.h"
#include "base/err.h"

#include <sys/types.h>

struct tar {
    pid_t pid;
    int fd;        /* our end: the archive's bytes */
    int errors_fd; /* its messages: what a pipe holds of them, more are lost */
};

/* Packs the folder at path; the archive is read from t->fd. */
enum err_code tar_pack(struct tar *t, const char *path, struct err *e);

/* The same of the folder dir_fd. Links in it are packed as links. */
enum err_code tar_pack_dir(struct tar *t, int dir_fd, struct err *e);

/* Unpacks what is written to t->fd into the folder dir_fd, which has to be empty: a link that is
 * there already would be followed. Owners, set-id bits and absolute names are dropped, names with
 * ".." refused. */
enum err_code tar_unpack(struct tar *t, int dir_fd, struct err *e);

/* Closes t->fd, waits for its end, and appends its messages as far as there is room. */
enum err_code tar_end(struct tar *t, struct buf *messages, struct err *e);
