#pragma once
/* The templates that privd has, by name, with the limits that the operator gave them. */

#include "core/core.h"
#include "core/tenant.h"

#define TEMPLATES_KNOWN 2u
/* of the server: the places before those of tenants */
#define TEMPLATES_SERVER (TEMPLATES_KNOWN + CORE_IMAGES_MAX)
#define TEMPLATES_ALL    (TEMPLATES_SERVER + CORE_TENANT_IMAGES_MAX)
#define TEMPLATES_NOTE   224

/* A place for each: host, base, then images, of which place i has the number i + 1. A place without
 * an id is free. */
struct templates {
    struct template_info info[TEMPLATES_ALL], shown[TEMPLATES_ALL];
    uint32_t removing; /* template_tenant.c: the one that is not needed and goes; 0: none */
    char notes[TEMPLATES_ALL][TEMPLATES_NOTE];
    char failed[TEMPLATES_ALL][TEMPLATES_NOTE]; /* that and why the last build failed, or "" */
    struct template_image {
        char name[CORE_IMAGE_NAME_MAX + 1];
        char source[CORE_IMAGE_SOURCE_SIZE], digest[CORE_IMAGE_DIGEST_SIZE];
        char tenant[CORE_TENANT_SIZE];         /* "": the server's */
    } images[TEMPLATES_ALL - TEMPLATES_KNOWN]; /* info points to them */
    struct tenant_charge bytes[TEMPLATES_ALL]; /* of tenants': what each takes of the disk */
};

void templates_note(struct templates *t, size_t index); /* why it is not ready, anew */

/* template_image.c. Load: after the store is open. */
enum err_code template_images_load(struct core *c, struct err *e);
void template_image_take(struct templates *t, size_t index, const struct template_image *image);

/* A sandbox, snapshot or build has gone: there may be one on which nothing stands any more. */
void template_images_poke(struct core *c);

enum err_code templates_init(struct core *c, struct err *e);
void templates_free(struct core *c);
enum err_code templates_load_limits(struct core *c, struct err *e); /* after the store is open */
/* Of the server's, or of any tenant's; NULL: there is none. */
struct template_info *templates_entry(struct core *c, const char *name);
const char *templates_name(const struct core *c, uint32_t number); /* or NULL */
void templates_forget(struct core *c);                             /* privd lists them anew */
void templates_on_event(struct core *c, const struct privsep_msg *m);
void templates_on_progress(struct core *c, const struct privsep_msg *m);

/* Asks privd for them; fn (may be NULL) when they are known (status 0) or not. 0, or -errno when
 * nothing was asked. */
int templates_request(struct core *c, void (*fn)(struct core *c, int status));

/* Name -> what was asked for and what is used: base gives host until it is built. Of tenants' that
 * tenant's alone. */
enum err_code templates_resolve(struct core *c, const char *tenant, const char *name,
                                const struct template_info **requested,
                                const struct template_info **used, struct err *e);
