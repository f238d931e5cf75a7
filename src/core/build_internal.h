#pragma once
/* Shared by build.c (builds and their tags) and build_run.c (a build that is under way). The list
 * of builds is the core's (c->builds), newest first. */

#include "core/build_log.h"
#include "core/build_spec.h"
#include "core/snapshot.h"
#include "core/tenant.h"

struct build_run;

struct build_obj {
    struct build b;
    struct build_obj *next; /* older ones */
    struct core *core;
    struct tenant *tenant;
    struct tenant_charge charge;
    struct build_log log;
    struct build_run *run;       /* NULL: it is not under way */
    char made[IDS_SANDBOX_SIZE]; /* the snapshot that the run has made; "": none */
    int64_t used_real_ms;        /* build_of_create.c: the last create; 0: none since the start */
};

/* -- build_find.c ------------------------------------------------------------------------------ */

/* template_id NULL or "": any. */
bool build_is_of(const struct build_obj *o, const char *tenant, const char *template_id);
bool build_has_tag(const struct build *b, const char *tag);

/* NULL: there is none. */
struct build_obj *build_get(struct core *c, const char *tenant, const char *template_id,
                            const char *build);

/* That is ready, by name or template's id, with or without a tag. */
struct build_obj *build_named(struct core *c, const char *tenant, const char *name);

/* "name" or "name:tag"; without one, the tag is CORE_BUILD_TAG. */
enum err_code build_split_name(const char *text, char name[static CORE_BUILD_NAME_SIZE],
                               char tag[static CORE_BUILD_TAG_MAX + 1], bool *tagged,
                               struct err *e);
