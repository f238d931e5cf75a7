#pragma once
/* The documents of an image: index, manifest and configuration of the OCI image-spec 1.1, and the
 * manifest.json of docker archives. Strict: no name twice, no digest but SHA-256, nothing that is
 * not understood in a place that matters. Pure: text in, a struct out. A text is at most
 * IMAGE_TEXT_MAX bytes; the struct's contents are bounded by the constants below. */

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IMAGE_TEXT_MAX    (4u * 1024 * 1024)           /* the same that registries take */
#define IMAGE_LAYERS_MAX  128u                         /* Docker makes at most 127 */
#define IMAGE_BLOB_MAX    (64ull * 1024 * 1024 * 1024) /* bytes of one layer as it is stored */
#define IMAGE_AGAIN_MAX   (1ull * 1024 * 1024 * 1024)  /* of layers that are named again */
#define IMAGE_DIGEST_SIZE (7 + 64 + 1)                 /* "sha256:" and 64 hex digits */
#define IMAGE_TAG_MAX     255u
#define IMAGE_ENTRIES_MAX 1024u /* of an index, and of lists of the configuration */
#define IMAGE_PATH_MAX    256u  /* a file's name in a docker archive */

struct image_blob {
    char digest[IMAGE_DIGEST_SIZE];
    uint64_t size;
};

struct image_manifest {
    struct image_blob config;
    struct image_blob layers[IMAGE_LAYERS_MAX];
    size_t count;
};

struct image_config {
    size_t count; /* of diff_ids */
    char diff_ids[IMAGE_LAYERS_MAX][IMAGE_DIGEST_SIZE];
    char *user, *cwd;                 /* "" where it says none */
    json_t *env;                      /* object of texts */
    json_t *entrypoint, *cmd, *ports; /* arrays of texts ("80/tcp") */
    size_t env_left_out;              /* variables without a name */
};

struct image_docker_manifest {
    char config[IMAGE_PATH_MAX];
    char layers[IMAGE_LAYERS_MAX][IMAGE_PATH_MAX];
    size_t count;
};

/* "sha256:" and 64 lower-case hex digits. */
bool image_digest_is_valid(const char *text);

/* The one manifest or index that text, an index, has for this platform and tag (NULL: any, when it
 * is only one). *is_index: what it points to is an index again. ERR_NOT_FOUND names what there
 * is. */
enum err_code image_index_parse(const char *text, size_t len, const char *tag,
                                struct image_blob *out, bool *is_index, struct err *e);

enum err_code image_manifest_parse(const char *text, size_t len, struct image_manifest *out,
                                   struct err *e);

/* A layer that is named again is copied and unpacked again, so that a small manifest and one file
 * could fill a disk. Images have such: Docker's empty layer, a COPY of the same files. */
enum err_code image_layers_check(const struct image_manifest *m, struct err *e);

/* *out is freed with image_config_free in every case. */
enum err_code image_config_parse(const char *text, size_t len, struct image_config *out,
                                 struct err *e);
void image_config_free(struct image_config *c);

/* The part of it that a template keeps, as /etc/cay/image.json. A new reference; NULL: memory is
 * out. */
json_t *image_config_note(const struct image_config *c, const char *source, const char *digest);

/* manifest.json of a docker archive: the image of that tag (NULL: the only one). */
enum err_code image_docker_parse(const char *text, size_t len, const char *tag,
                                 struct image_docker_manifest *out, struct err *e);
