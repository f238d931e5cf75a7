#pragma once
/* Reading an image that skopeo has put into a sandbox, into the spool of a new template of the
 * tenant's. The sandbox is the tenant's, so the image is trusted as little as a registry: the
 * documents are parsed strictly (image/manifest.h), each byte is compared with its digest, and
 * bytes beyond the manifest's length are not read. */

#include "core/build_run.h"
#include "image/manifest.h"
#include "image/reference.h"

#define BUILD_IMAGE_PIECE_BYTES (1024u * 1024u) /* of a layer that are in memory */
#define BUILD_IMAGE_FOLDER      "/var/tmp/cay-image"

struct build_image_read {
    struct build_run *r;
    char source[IMAGE_SOURCE_SIZE];
    char digest[IMAGE_DIGEST_SIZE]; /* that the registry has for it: an index's, where it is one */
    char id[CORE_IMAGE_NAME_MAX + 1]; /* of the template; "": there is none yet */
    uint32_t number;
    bool spooled;
    struct image_manifest manifest;
    struct image_config config;
    size_t layer;
    uint64_t at;               /* of it */
    int fd;                    /* its file, or -1 */
    struct evp_md_ctx_st *sum; /* of what was read of it */
    void (*done)(struct build_run *r);
};

/* source and digest are set. done in a later turn; id and number are, or the build has failed. */
void build_image_read_begin(struct build_run *r, struct build_image_read *m,
                            void (*done)(struct build_run *r));
/* The spool goes, too. */
void build_image_read_free(struct core *c, struct build_image_read *m);
