#pragma once
/* The parts that the units of core share: a core with a fake privd (core_fake.h) in a directory of
 * its own, and a loop that the test turns. */

#include "core/core.h"
#include "core/events.h"
#include "core_fake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

struct world {
    char dir[64];
    uv_loop_t loop;
    struct fake *fake;
    struct core *core;
    struct core_config config;
};

/* The result that a core_sandbox_cb was called with. */
struct answer {
    unsigned calls;
    bool good;
    char id[IDS_SANDBOX_SIZE];
    struct err why;
};

/* arg is a struct answer. */
void world_on_answer(void *arg, const struct sandbox *s, const struct err *why);

int world_setup(void **state);
int world_teardown(void **state);
#define WORLD(test) cmocka_unit_test_setup_teardown(test, world_setup, world_teardown)

void world_start_core(struct world *w); /* until it is ready */
void world_stop_core(struct world *w);

/* Turn the loop until *value is wanted, for a while, until fn is true. A test fails after 10 s. */
void world_run_until(struct world *w, const unsigned *value, unsigned wanted);
void world_run_for(struct world *w, uint64_t ms);
void world_run_until_true(struct world *w, bool (*fn)(struct world *w));
void world_run_until_rows(struct world *w, int64_t wanted);  /* as world_rows */
void world_run_until_ended(struct world *w, const char *id); /* core does not find it */
/* A number of fake_counts has come to so many, or more. */
void world_run_until_counted(struct world *w, size_t offset, unsigned wanted);
#define WORLD_RUN_UNTIL_COUNTED(w, count, wanted) \
    world_run_until_counted((w), offsetof(struct fake_counts, count), (wanted))
/* As fake_restart, until core is ready again. */
void world_restart_privd(struct world *w, bool forget);
bool world_is_ready(struct world *w);
bool world_is_not_ready(struct world *w);
bool world_nothing_lives(struct world *w);
bool world_has_job(struct world *w);

/* core_key_create for the owner's role (the operator's for "default"), and core_key_revoke by the tenant's owner,
 * or, tenant NULL, by the operator. */
enum err_code world_key(struct world *w, const char *tenant, const char *label,
                        char out[static CORE_TOKEN_SIZE], struct err *e);
enum err_code world_revoke(struct world *w, const char *tenant, const char *id, struct err *e);

/* The events of a sandbox of tenant default so far, of these types (1u << EVENT_...), as lines of JSON. */
void world_events(struct world *w, const char *id, unsigned types,
                  char lines[static EVENTS_LINE_MAX]);

/* Template host, tenant default, a minute. */
struct sandbox_request world_request(void);
void world_create(struct world *w, const struct sandbox_request *r,
                  char id[static IDS_SANDBOX_SIZE]);
void world_create_default(struct world *w, char id[static IDS_SANDBOX_SIZE]);
struct answer world_create_fails(struct world *w, const struct sandbox_request *r);

/* The first number that a query of the store gives, by a connection of its own. */
int64_t world_query(struct world *w, const char *sql);
int64_t world_rows(struct world *w); /* of sandboxes */

size_t world_open_descriptors(void);
