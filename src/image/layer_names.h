#pragma once
/* The file `layers` that goes with an image to the job that unpacks it: by what its layers may be
 * shared with other images (src/job/layers.h has the form). */

#include "image/manifest.h"

#define IMAGE_LAYER_NAMES_SIZE ((IMAGE_LAYERS_MAX + 1) * 65 + 1)

/* tenant: whose it is. Each layer is named by all digests up to its own: of the bytes as they are
 * stored, which were compared, and not by diff_ids, which the image only claims. 0 or -ENOMEM. */
int image_layer_names(const char *tenant, const struct image_manifest *m,
                      char out[static IMAGE_LAYER_NAMES_SIZE]);
