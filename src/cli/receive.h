#pragma once
/* Puts files that a sandbox sends into folders of the user who runs the command. Names, links and
 * modes in it are the sandbox's choice, also those that an earlier copy left: no link is followed
 * on the way, but for those in the path that the caller wrote, up to its last name.
 *
 * Everything is received under a temporary name (".cay-cp-" and random digits) in the folder that
 * it is for, and renamed from there: rename(2) replaces a link instead of writing through it. A
 * program that is killed leaves the temporary name behind. */

#include "base/err.h"

#include <stdbool.h>

struct receive {
    int dir_fd;     /* the folder that things are put into */
    char name[256]; /* in it; "": the folder itself is what is received */
    char temp[32];  /* "": there is none */
    int fd;         /* a file's descriptor to write to; a folder's to unpack into */
    int temp_fd;    /* of a folder: the one with mode 0700 that holds fd's */
};

/* A file at path; -1 is no mode. An existing file's mode is kept, and a device or a FIFO is written
 * to as it is. After success r->fd is to be written, then receive_end is called. */
enum err_code receive_file(struct receive *r, const char *path, unsigned mode, struct err *e);

/* A folder at path, unpacked into r->fd. */
enum err_code receive_folder(struct receive *r, const char *path, struct err *e);

/* Puts what was received into its place when keep is set: a folder is merged into an existing one,
 * in which files and links of the same names are replaced, folders are not replaced by others, nor
 * others by folders. Removes the temporary name and closes all descriptors in every case. */
enum err_code receive_end(struct receive *r, bool keep, struct err *e);
