#pragma once
/* An image as one file: an OCI image layout in a tar archive (`skopeo copy oci-archive:FILE ...`),
 * with the manifest.json that makes it a docker archive as well (`docker load`, `cay template
 * import`). It has one layer, not compressed, which is written first; the documents about it come
 * after, and its own header when its size and digest are known: the file has to be one in which can
 * be sought. Blocking: for command lines. */

#include "base/err.h"
#include "image/manifest.h"

struct oci_archive {
    int fd; /* the caller's, for reading and writing */
    off_t layer_at;
    struct image_blob layer, manifest; /* when they are written */
};

/* The layer's bytes are to be written to fd where it stands now. */
enum err_code oci_archive_begin(struct oci_archive *a, int fd, struct err *e);

/* The layer is whole: size bytes. Any other number of bytes behind its beginning is an error. */
enum err_code oci_archive_end_layer(struct oci_archive *a, uint64_t size, struct err *e);

/* config: "config" of the image's configuration, borrowed; by: how it was made. */
enum err_code oci_archive_end(struct oci_archive *a, json_t *config, const char *by, struct err *e);
