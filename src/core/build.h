#pragma once
/* Builds of templates, as E2B's SDKs ask for them: a template is a name of a tenant's, with
 * tags, and each tag names a build of it that is ready, whose result is a snapshot (snapshot.h)
 * that sandboxes begin with. A build runs its steps as commands in a sandbox of the tenant's own
 * (build_run.c), so that all that holds for a sandbox holds for them: walls, limits, the policy.
 *
 * The stored state of a build is its row, written before each step; steps and lines of its log are
 * in memory alone. So a build that a restart has interrupted is one that failed, and its sandbox
 * goes (builds_ready).
 *
 * | state | begins with | next |
 * |---|---|---|
 * | waiting | core_build_new | building: core_build_start; gone: the template is deleted |
 * | building | core_build_start | ready; error: a step failed, its time is over, cayd has ended |
 * | ready | its snapshot is made, and what it is to start has started | gone, when no tag is left |
 * | error | | gone, when there are too many |
 *
 * Of two builds of one name at a time, each tag is the last one's to be ready. */

#include "core/core.h"

#define CORE_BUILD_ID_SIZE   37 /* a UUID, as E2B's clients expect it */
#define CORE_BUILD_NAME_SIZE 101
#define CORE_BUILD_TAG_MAX   64u
#define CORE_BUILD_TAGS_MAX  16u
#define CORE_BUILD_TAGS_SIZE (CORE_BUILD_TAGS_MAX * (CORE_BUILD_TAG_MAX + 1) + 2)
#define CORE_BUILD_STEP_SIZE 16
#define CORE_BUILD_WHY_SIZE  1024 /* of a reason, with the end of a command's output */
#define CORE_BUILD_TAG       "default"

#define CORE_BUILDS_OF_A_TENANT  256u /* rows, of all templates */
#define CORE_BUILDS_RUNNING      4u   /* of a tenant, at a time */
#define CORE_BUILD_STEPS_MAX     256u
#define CORE_BUILD_TEXT_MAX      65536u /* bytes of one argument of a step, of startCmd, readyCmd */
#define CORE_BUILD_COMMAND_MAX   32768u /* of startCmd: what cay-init takes */
#define CORE_BUILD_TIME_MS       3600000u
#define CORE_BUILD_LOG_ENTRIES   4096u /* of a build */
#define CORE_BUILD_LOG_BYTES     (512u * 1024u)
#define CORE_BUILD_LOGS_KEPT     16u /* of a tenant's builds that have ended */
#define CORE_BUILD_LOG_LINE      2048u
#define CORE_BUILD_LOG_PAGE      100u /* entries of one call */
#define CORE_BUILD_READY_TIME_MS 300000u
#define CORE_BUILD_READY_ONE_MS  30000u /* of one call of the ready command */

/* The store holds these numbers. */
enum build_state { BUILD_WAITING, BUILD_BUILDING, BUILD_READY, BUILD_ERROR, BUILD_STATE_COUNT };

struct build {
    char id[CORE_BUILD_ID_SIZE];
    const char *tenant;
    char template_id[IDS_SANDBOX_SIZE]; /* "t" and 20 of [a-z0-9]; one for a name of the tenant's */
    char name[CORE_BUILD_NAME_SIZE];
    char tags[CORE_BUILD_TAGS_SIZE]; /* ",default,v1,": wanted, until it is ready; "": none */
    enum build_state state;
    char snapshot[IDS_SANDBOX_SIZE];  /* "": none */
    char step[CORE_BUILD_STEP_SIZE];  /* that failed: "base", "1", ..., "finalize" */
    char reason[CORE_BUILD_WHY_SIZE]; /* why; "": it did not */
    uint64_t memory_bytes;            /* asked for; 0: the server's */
    uint32_t cpu_milli;
    int64_t made_real_ms, ended_real_ms;
};

const char *core_build_state_name(enum build_state state);

struct build_spec;

struct core_build_request {
    const char *tenant;
    const char *name;   /* "name" or "name:tag" */
    const json_t *tags; /* array of strings; NULL: none */
    uint64_t memory_bytes;
    uint32_t cpu_milli;
};

/* *out lives until the next turn. ERR_INVALID; ERR_CONFLICT: a template of the server's has that
 * name; ERR_EXHAUSTED. */
enum err_code core_build_new(struct core *c, const struct core_build_request *r,
                             const struct build **out, struct err *e);

/* The refusals of core_build_start that do not depend on the spec: a client that may not start the
 * build learns that before the faults of its spec. ERR_NOT_FOUND; ERR_CONFLICT: it was started
 * already; ERR_EXHAUSTED. */
enum err_code core_build_check_start(struct core *c, const char *tenant, const char *template_id,
                                     const char *build, struct err *e);

/* spec (build_spec.h) is taken over, and empty afterwards, in every case. ERR_INVALID, and what
 * core_build_check_start says. */
enum err_code core_build_start(struct core *c, const char *tenant, const char *template_id,
                               const char *build, struct build_spec *spec, struct err *e);

/* NULL: the tenant has none. template_id NULL: any. */
const struct build *core_build_find(struct core *c, const char *tenant, const char *template_id,
                                    const char *build);

/* The build that a template's id or name, with or without a tag, means: of ready ones the one with
 * the tag. NULL: there is none. */
const struct build *core_build_named(struct core *c, const char *tenant, const char *name);

/* The template of the tenant's that has the id, or the name, whatever its tag. NULL: none has. */
const struct build *core_build_of_template(struct core *c, const char *tenant, const char *name);

/* The name of the server's template that its files lie on; "" where it is not ready. */
const char *core_build_base(struct core *c, const struct build *b);

/* "": the tenant has no template of that id. */
const char *core_build_template_name(struct core *c, const char *tenant, const char *template_id);

/* The tenant's, newest first. tenant NULL: of all tenants. template_id NULL or "": of all
 * templates. Stops when fn says false. */
void core_build_each(struct core *c, const char *tenant, const char *template_id,
                     bool (*fn)(void *arg, const struct build *b), void *arg);

/* Calls fn for each tag. */
void core_build_each_tag(const struct build *b, void (*fn)(void *arg, const char *tag), void *arg);

/* The build that `target` ("name:tag") means has these tags too from now on, and no other of the
 * template has them. ERR_NOT_FOUND, ERR_INVALID. */
enum err_code core_build_add_tags(struct core *c, const char *tenant, const char *target,
                                  const json_t *tags, const struct build **out, struct err *e);

/* A build that has no tag left goes. ERR_NOT_FOUND, ERR_INVALID. */
enum err_code core_build_drop_tags(struct core *c, const char *tenant, const char *name,
                                   const json_t *tags, struct err *e);

/* All builds of the template, by id or name, with their files. ERR_NOT_FOUND; ERR_CONFLICT: one is
 * under way. */
enum err_code core_build_delete(struct core *c, const char *tenant, const char *name,
                                struct err *e);

/* Steps of all tenants' builds that are kept for others and lie on that template of the server's
 * go, so that they do not hinder its removal. */
void core_build_forget_steps(struct core *c, const char *template_id);

struct core_build_line {
    int64_t at_real_ms;
    const char *level; /* "info", "warn", "error" */
    const char *text;
    const char *step;
};

/* At most `limit` lines from `offset` on. */
void core_build_log(struct core *c, const struct build *b, size_t offset, size_t limit,
                    void (*fn)(void *arg, const struct core_build_line *line), void *arg);

/* As a stream of its texts, each a line, from the first on; follow: until the build has ended. *fd
 * is the caller's. It ends with the key `key`, too. ERR_EXHAUSTED; ERR_UNAVAILABLE. */
enum err_code core_build_log_follow(struct core *c, const struct build *b, const char *key,
                                    bool follow, int *fd, struct err *e);

/* -- for core's other files -------------------------------------------------------------------- */

/* The snapshot that sandboxes of that template begin with; NULL: there is no such build. */
const struct snapshot *builds_snapshot(struct core *c, const char *tenant, const char *name);

/* A row of the store, when the core starts. */
enum err_code builds_adopt(void *core, const struct build *b, struct err *e);

/* How many names the tenant's builds have. */
size_t builds_count_names(const struct core *c, const char *tenant);

/* The core is ready: builds that a restart interrupted have failed, and their files go. */
void builds_ready(struct core *c);

/* At the core's end, when those who wait were told. */
void builds_free(struct core *c);
