#pragma once
/* Images of registries: skopeo, a program of the system's, fetches one into a folder below the
 * state directory, which goes with the command, also when that is killed. */

#include "cli/cli.h"
#include "image/image.h"

#include <limits.h>

struct image_fetch {
    char dir[PATH_MAX]; /* the folder, or "" */
    int lock_fd;        /* it is locked as long as it is used; -1 */
};

#define IMAGE_FETCH_NONE ((struct image_fetch){.lock_fd = -1})

/* docker://... */
bool image_fetch_is_source(const char *source);

/* <state>/privd/import, made where it is not there; only root can. A descriptor, or -1. */
int image_fetch_open_import(const struct cli *c, struct err *e);

/* Fetches source by the options --authfile, --signature-policy, --cert-dir, --plain-http and
 * --timeout, and opens it. The caller frees *f in every case. */
enum err_code image_fetch(const struct cli *c, const char *source, struct image_fetch *f,
                          struct image *out, struct err *e);
void image_fetch_free(struct image_fetch *f);
