#pragma once
/* A build that begins with an image of a registry (fromImage("python:3.11-slim")): the tenant's
 * template of that image (template_tenant.h), made where there is none yet.
 *
 * 1. The operator allows the registry, or the build ends here. Of a tenant one image at a time is
 *    fetched, and BUILD_IMAGES_MAX of all; more builds wait. An image that takes longer than
 *    BUILD_IMAGE_SLOW_MS has one of BUILD_IMAGES_SLOW_MAX places besides: a tenant that stops its
 *    own skopeo, or a registry that is slow, keeps others waiting no longer.
 * 2. skopeo runs in a sandbox of the tenant's, of template host, whose policy lets it out to that
 *    registry and to `[images] hosts`: nothing of a registry's answers (addresses, redirects,
 *    realms of tokens) leads anywhere else, and refusals are in the build's log. It asks for the
 *    digest. Where the tenant has a template of that digest, that is all.
 * 3. It fetches the image into the sandbox, whose disk bounds it. cayd reads manifest,
 *    configuration and layers from there (build_image_read.h), each compared with its digest, into
 *    the image's spool (image_spool.h). The sandbox ends.
 * 4. cay-job makes the template of the spool, as of `cay template import`'s, of so many builds at a
 *    time: BUILD_IMAGE_JOBS_MAX.
 *
 * A registry's credentials go into a file in that sandbox's memory, which is removed when the image
 * is there, at the latest with the sandbox. They are in no row, log or argument. */

#include "core/build_image_read.h"

#define BUILD_IMAGES_MAX        4u       /* fetched at a time, of all tenants */
#define BUILD_IMAGES_SLOW_MAX   12u      /* beside those */
#define BUILD_IMAGE_SLOW_MS     120000u  /* after which one counts among those */
#define BUILD_IMAGE_STALL_S     60       /* in which a registry has to answer, and then to send */
#define BUILD_IMAGE_STALL_KIB   1024     /* so much; texts of scripts */
#define BUILD_IMAGE_JOBS_MAX    2u       /* of them: unpacked */
#define BUILD_IMAGE_FETCH_MS    1200000u /* for the registry's digest, and for the image */
#define BUILD_IMAGE_WEIGHED_MAX 50u      /* looks at how big it is */
#define BUILD_IMAGE_AGAIN_MS    200u     /* until one that waits looks again */

struct build_image {
    struct build_run *r;
    void (*done)(struct build_run *r);
    struct image_reference ref;
    struct build_image_read read;
    bool unpacking;
    struct build_image *next; /* of core->images */
    uint64_t since_ms;        /* among those */
    unsigned weighed;         /* looks at its size */
    struct timer again;
};

struct build_image_counts {
    unsigned fresh, slow, own; /* under way; of both, the tenant's */
};

bool build_image_may_begin(const struct build_image_counts *p);

/* done in a later turn: r->spec.from is a template's id, or the build has failed. */
void build_image_begin(struct build_run *r, void (*done)(struct build_run *r));
void build_image_free(struct build_run *r);

/* The operator's lists. ERR_INVALID. */
enum err_code build_image_check_config(const struct core *c, struct err *e);

/* c->images_due: tenants' images on which nothing stands go. */
void build_image_on_due(struct timer *t);
