#pragma once
/* Templates that creates have asked for by what is in them (Daytona's image=), not by a name:
 * builds whose name is made of the description's hash, so that the next create with the same
 * description finds the template. Their tenant sees and may delete them as any other of its
 * templates.
 *
 * Of a tenant there are CORE_IMAGES_OF_A_TENANT at most. A template goes, with its files, when no
 * create has used it for CORE_IMAGE_AGE_MS and no sandbox made of it is there any more, running or
 * kept; or before, the longest unused first, where a create needs its place. When each was used is
 * in memory alone: after a restart that counts as a use. */

#include "core/build.h"

struct timer;

#define CORE_IMAGES_OF_A_TENANT 16u
#define CORE_IMAGE_AGE_MS       (24ll * 3600 * 1000)
#define CORE_IMAGE_SWEEP_MS     3600000u /* between two looks */
#define CORE_IMAGE_PREFIX       "image-" /* of its name, before CORE_IMAGE_DIGITS of the hash */
#define CORE_IMAGE_DIGITS       32u
#define CORE_IMAGE_HASH_SIZE    32u /* a SHA-256 */

/* *out is the build of that description that is ready or under way, or one that begins here with
 * spec; it lives until the next turn. spec is taken over, and empty afterwards, in every case.
 * ERR_EXHAUSTED: each of the tenant's is in use, or what core_build_new and core_build_start
 * say. */
enum err_code core_build_of_create(struct core *c, const char *tenant,
                                   const uint8_t hash[static CORE_IMAGE_HASH_SIZE],
                                   struct build_spec *spec, const struct build **out,
                                   struct err *e);

/* Is that the name of such a template? */
bool core_build_is_of_create(const char *name);

/* -- for core's other files -------------------------------------------------------------------- */

/* c->images_unused is armed where there is one that may go some day. */
void build_of_create_arm(struct core *c);
void build_of_create_on_due(struct timer *t);
