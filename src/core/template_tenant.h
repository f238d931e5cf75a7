#pragma once
/* Templates out of images that a tenant's builds begin with (build_image.h): each is one tenant's,
 * and has no name that a client could give, but the digest that the registry had for the image, by
 * which the tenant's next build finds it. It stays as long as something stands on it: a sandbox,
 * paused or not, a snapshot (a template that was built, a kept step, a fork), a build under way.
 * Then it goes, with its row; after a restart, too. */

#include "core/template.h"

#define TEMPLATE_TENANT_EACH     16u   /* of a tenant */
#define TEMPLATE_TENANT_SWEEP_MS 5000u /* between two looks at what is not needed any more */

/* A new one, without files yet: its id and number. ERR_EXHAUSTED: the tenant has its share, or as
 * many as it may. */
enum err_code template_tenant_new(struct core *c, const char *tenant, const char *source,
                                  const char *digest, const struct template_info **out,
                                  struct err *e);

/* The tenant's that is ready; NULL: it has none of that image. */
const struct template_info *template_tenant_find(const struct core *c, const char *tenant,
                                                 const char *digest);

/* Those on which nothing stands are removed, one after another. used: something else needs it. */
void template_tenant_sweep(struct core *c, bool (*used)(const struct core *c, const char *id));
