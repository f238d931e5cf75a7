#pragma once
/* skopeo, a program of the system's, which speaks with registries for the command line: `template
 * import` fetches by it, `template push` sends. It is ended with this process. */

#include "cli/cli.h"

#define SKOPEO_ARGUMENTS_MAX 24u
#define SKOPEO_TIMEOUT_MS    (30 * 60 * 1000u)
#define SKOPEO_FILE_FD       3 /* in skopeo */
#define SKOPEO_DIGEST_FD     4

struct skopeo {
    const char *argv[SKOPEO_ARGUMENTS_MAX + 1]; /* ends with NULL; borrowed */
    size_t n;
    const char *dir;        /* its temporary files; it is ended when that disk gets full */
    int file_fd, digest_fd; /* become the descriptors above; -1: none */
    uint64_t timeout_ms;
    const char *verb, *late; /* "fetch"; the step in a timeout's error */
};

/* Is it installed? what: what for, for the error. */
enum err_code skopeo_check(const char *what, struct err *e);

/* --timeout, or SKOPEO_TIMEOUT_MS. */
enum err_code skopeo_read_timeout(struct skopeo *s, const struct cli *c, struct err *e);

/* An argument that does not fit is left out, and skopeo_run refuses it. */
void skopeo_add(struct skopeo *s, const char *argument);

/* The command's option `ours`, where it is given, as skopeo's. */
void skopeo_add_option(struct skopeo *s, const struct cli *c, const char *ours, const char *its);

/* Until it has ended. */
enum err_code skopeo_run(const struct skopeo *s, struct err *e);
