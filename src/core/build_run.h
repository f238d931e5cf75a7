#pragma once
/* A build that is under way. In this order, each when the one before it has ended:
 *
 * 0. where it begins with an image of a registry: the tenant's template of that (build_image.h);
 * 1. a sandbox of the tenant's from the template that the build begins with; its start file, for
 *    the variables, user and folder that go on to hold. Or, where there are steps that need not run
 *    (build_cache.h), from what the last of them left;
 * 2. the steps that are left (build_step.h), each kept for other builds;
 * 3. the start file of the new template, and the snapshot;
 * 4. the start command, and the ready command until it succeeds: in the sandbox, after the
 *    snapshot, so that what it wrote is not in the template, and each sandbox begins as this one
 *    did;
 * 5. the sandbox's end, in every case. */

#include "core/build_internal.h"

#include "core/deferred.h"
#include "core/exec.h"
#include "core/timers.h"

#define BUILD_RUN_USER_SIZE 64
#define BUILD_RUN_PATH_SIZE 1024
#define BUILD_RUN_ON_SIZE   65 /* 64 hex digits, or a snapshot's id */

struct build_run {
    struct build_obj *o;
    struct core *core;
    struct build_spec spec;
    void (*over)(struct build_obj *o, bool good); /* o->run is gone then */

    char sandbox[IDS_SANDBOX_SIZE]; /* "": there is none */
    uint64_t time_ms, until_ms;     /* that it may take; clock_mono_ms */
    int64_t ttl_ms;                 /* of its sandboxes, which outlive it */
    struct build_image *image;      /* NULL: it does not begin with one of a registry */
    size_t at;                      /* the step under way, of spec.n */
    const char *step;               /* its name for clients: "base", "1", "finalize" */
    char step_text[CORE_BUILD_STEP_SIZE];
    size_t word; /* of an ENV step */
    void (*step_done)(struct build_run *r), (*written)(struct build_run *r);
    struct deferred later; /* the step's end, where nothing is waited for */

    /* holds for the steps that follow */
    char user[BUILD_RUN_USER_SIZE], cwd[BUILD_RUN_PATH_SIZE];
    json_t *env;

    int copy_fd; /* of the archive of a COPY step; -1: none */
    unsigned copy_piece;
    const char *copy_left; /* hashes of its archives that were not sent yet */

    /* build_cache.h */
    char on[BUILD_RUN_ON_SIZE]; /* the base of the next step; "": that is not known */
    size_t cached;              /* steps that need not run */
    uint64_t number;
    void (*kept)(struct build_run *r);

    bool failed, ending;
    struct timer again;                     /* of the ready command */
    uint64_t ready_time_ms, ready_until_ms; /* the second is of clock_mono_ms */
    uint64_t ready_took_ms;                 /* once it has succeeded */
    char ready_last[48];                    /* how its last call ended; "": none did */
    bool start_runs, start_failed, is_ready;
    bool memory_tried; /* of its template: template_memory.h */
};

/* Takes spec over where it succeeds. over is called once, never from inside, but not at the core's
 * end. */
enum err_code build_run_begin(struct build_obj *o, struct build_spec *spec,
                              void (*over)(struct build_obj *o, bool good), struct err *e);

/* At the core's end. */
void build_run_free(struct build_run *r);
