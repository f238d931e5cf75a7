#pragma once
/* An image as Daytona's clients describe it: {"dockerfileContent", "contextHashes"}, the
 * "buildInfo" of a snapshot or a sandbox, or its name with the command that it is to run. The
 * Dockerfile is read by image/build_file.h, as BUILD_FILE_OF_IMAGE. All is read and checked before
 * anything is done. Pure. */

#include "core/build_spec.h"
#include "core/build_storage.h"

#define DAYTONA_CONTEXTS_MAX   64u /* archives of one image */
#define DAYTONA_CONTEXT_DIGITS CORE_STORAGE_DIGITS

/* *out is the caller's, for build_spec_free or core_build_start, and untouched on failure.
 * ERR_INVALID, with the Dockerfile's line; ERR_UNIMPLEMENTED: an instruction that there is not;
 * ERR_TOO_LARGE; ERR_EXHAUSTED: memory is out. */
enum err_code daytona_build_spec_read(const json_t *build_info, struct build_spec *out,
                                      struct err *e);

/* image: its name. entrypoint: an array of strings, or NULL. As above. */
enum err_code daytona_build_spec_of_image(const char *image, const json_t *entrypoint,
                                          struct build_spec *out, struct err *e);
