#pragma once
/* Container images on the disk of the person who calls: their contents are read strictly, and every
 * byte that is handed on was compared with its digest on the way.
 *
 *   oci:DIR[:TAG]               a directory of the OCI image layout (image-spec 1.1,
 *                               image-layout.md)
 *   docker-archive:FILE[:TAG]   what `docker save` writes, not compressed
 *   dir:DIR                     one image as a registry has it: what `skopeo copy` writes to dir:
 *
 * Only images for linux/amd64 are taken. Nothing is unpacked here, and no layer is looked into: a
 * layer is a row of bytes with a digest. Blocking: for command lines. */

#include "base/err.h"
#include "base/util.h"
#include "image/manifest.h"

#include <sys/types.h>

struct image {
    struct image_config config;
    struct image_manifest manifest; /* of a docker archive: digests are of the layers' tar */
    char digest[IMAGE_DIGEST_SIZE]; /* the manifest's; of a docker archive the configuration's */
    int dir_fd;                     /* the layout or dir:, or -1 */
    const char *blobs;              /* where its blobs are below that: "blobs/sha256/" or "" */
    int file_fd;                    /* the archive, or -1 */
    off_t offset[IMAGE_LAYERS_MAX]; /* of the layers in the archive */
};

/* Whether text begins like a source that image_open reads. */
bool image_is_source(const char *text);

/* Reads index, manifest and configuration. ERR_INVALID: a fault of the image, with the name of the
 * part; ERR_NOT_FOUND: no such file, or no image of that tag. The caller frees *out with image_free
 * in both cases. */
enum err_code image_open(const char *source, struct image *out, struct err *e);
void image_free(struct image *i);

/* Writes layer number `at` to fd as it is stored. ERR_INVALID when it is shorter or longer than the
 * manifest says, or has another digest: the bytes written are then of no use. */
enum err_code image_copy_layer(const struct image *i, size_t at, int fd, struct err *e);
