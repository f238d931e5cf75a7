#pragma once
/* Creates that wait for the build of what they begin with (build_of_create.h). A record with the id
 * that the sandbox will have; when the build is ready the sandbox is created, and the record goes;
 * when one of the two fails, the record says why, for CORE_LATER_FAILED_MS or until its tenant
 * needs the place. Records are in memory alone: a restart, which fails the builds, ends them.
 *
 * | state | begins with | next |
 * |---|---|---|
 * | building | core_create_later | creating: the build is ready; build failed |
 * | creating | the build is ready | gone: the sandbox is there; failed |
 * | build failed, failed | | gone |
 *
 * Each is gone when it is dropped, too; a sandbox that is just being created is ended then. */

#include "core/build.h"

#define CORE_LATER_OF_A_TENANT 16u
#define CORE_LATER_ALL         256u
#define CORE_LATER_FAILED_MS   3600000u

enum core_later_state { LATER_BUILDING, LATER_CREATING, LATER_BUILD_FAILED, LATER_FAILED };

struct core_create_later {
    char id[IDS_SANDBOX_SIZE];
    char name[CORE_SANDBOX_NAME_SIZE];  /* the sandbox's; "": none */
    char template_id[IDS_SANDBOX_SIZE]; /* of the build */
    enum core_later_state state;
    char reason[CORE_BUILD_WHY_SIZE]; /* why it has failed; "": it has not */
    struct sandbox_request request;   /* without tenant, name and template */
    void *owner;                      /* of what the request borrows */
    int64_t made_real_ms;
};

/* build is under way. owner is what r's members are of: taken over on success, and freed by
 * owner_free. *out lives until the next turn. ERR_EXISTS: a sandbox or a record has that name;
 * ERR_EXHAUSTED. */
enum err_code core_create_later(struct core *c, const struct sandbox_request *r,
                                const struct build *build, void *owner,
                                void (*owner_free)(void *owner),
                                const struct core_create_later **out, struct err *e);

/* By its id or its name. NULL: the tenant has none. */
const struct core_create_later *core_later_find(struct core *c, const char *tenant,
                                                const char *name);

/* The tenant's, newest first. */
void core_later_each(struct core *c, const char *tenant,
                     void (*fn)(void *arg, const struct core_create_later *l), void *arg);

void core_later_drop(struct core *c, const struct core_create_later *l);

/* -- for core's other files -------------------------------------------------------------------- */

/* The build has ended, and no name of it is given to another yet. */
void create_later_on_build(struct core *c, const struct build *b);

/* At the core's end, when those who wait were told. */
void create_later_free(struct core *c);
