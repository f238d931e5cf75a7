#pragma once
/* The files that a sandbox of a template begins with, as a container image in a file: an OCI
 * archive that is a docker archive as well (oci_archive.h). */

#include "cli/cli.h"
#include "cli/oci_archive.h"

struct template_image {
    uint64_t layer_bytes;
    char digest[IMAGE_DIGEST_SIZE];
};

/* Of the template that is the command's first operand, by a sandbox of the caller's that is ended
 * when this returns. fd: an empty regular file, for reading and writing; shown: what the progress
 * bar calls it. Signals wait until the sandbox is ended: then the command ends, or ERR_CANCELED. */
enum err_code template_image_write(struct cli *c, const char *shown, int fd,
                                   struct template_image *out, struct err *e);
