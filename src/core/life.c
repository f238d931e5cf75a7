#include "core/life.h"

#include "base/util.h"

#define STEP LIFE_STEP

/* ENDED follows CREATING when privd refused or undid the create. Paused sandboxes hold a place: their
 * layer is on the disk, and they have to fit when they resume. */
static const struct life rows[] = {
    [SANDBOX_CREATING] = {.name = "creating",
                          .next = STEP(SANDBOX_RUNNING) | STEP(SANDBOX_ENDING) |
                                  STEP(SANDBOX_ENDED),
                          .at_start = LIFE_START_UNDO,
                          .timer = LIFE_TIMER_CREATE,
                          .missing = LIFE_MISSING_WAIT,
                          .listed = LIFE_LISTED_WAIT,
                          .exit = LIFE_EXIT_ENDED,
                          .kill = LIFE_CALL_END,
                          .awaits_create = true,
                          .policy = true,
                          .place = true},
    [SANDBOX_RUNNING] = {.name = "running",
                         .next = STEP(SANDBOX_PAUSING) | STEP(SANDBOX_ENDING),
                         .at_start = LIFE_START_RUN,
                         .timer = LIFE_TIMER_LIFETIME,
                         .timeout = {[SANDBOX_ON_TIMEOUT_KILL] = LIFE_TIMEOUT_END,
                                     [SANDBOX_ON_TIMEOUT_PAUSE] = LIFE_TIMEOUT_PAUSE},
                         .missing = LIFE_MISSING_LOST,
                         .listed = LIFE_LISTED_KEEP,
                         .exit = LIFE_EXIT_ENDED,
                         .kill = LIFE_CALL_END,
                         .pause = LIFE_CALL_DO,
                         .resume = LIFE_CALL_ALREADY,
                         .group = LIFE_GROUP_RUNNING,
                         .visible = true,
                         .reachable = true,
                         .policy = true,
                         .place = true},
    [SANDBOX_PAUSING] = {.name = "pausing",
                         .next = STEP(SANDBOX_PAUSED) | STEP(SANDBOX_RUNNING) |
                                 STEP(SANDBOX_ENDING),
                         .at_start = LIFE_START_RUN,
                         .timer = LIFE_TIMER_CHANGE,
                         .missing = LIFE_MISSING_LOST,
                         .listed = LIFE_LISTED_SETTLE,
                         .exit = LIFE_EXIT_ENDED,
                         .kill = LIFE_CALL_END,
                         .pause = LIFE_CALL_ALREADY,
                         .resume = LIFE_CALL_WAIT,
                         .change = LIFE_CHANGE_PAUSE,
                         .group = LIFE_GROUP_PAUSED,
                         .visible = true,
                         .wakes = true,
                         .policy = true,
                         .place = true},
    [SANDBOX_PAUSED] = {.name = "paused",
                        .next = STEP(SANDBOX_RESUMING) | STEP(SANDBOX_ENDING),
                        .at_start = LIFE_START_RUN,
                        .timer = LIFE_TIMER_NONE,
                        .missing = LIFE_MISSING_LOST,
                        .listed = LIFE_LISTED_SETTLE,
                        .exit = LIFE_EXIT_ENDED,
                        .kill = LIFE_CALL_END,
                        .pause = LIFE_CALL_ALREADY,
                        .resume = LIFE_CALL_DO,
                        .group = LIFE_GROUP_PAUSED,
                        .visible = true,
                        .wakes = true,
                        .policy = true,
                        .place = true},
    [SANDBOX_RESUMING] = {.name = "resuming",
                          .next = STEP(SANDBOX_RUNNING) | STEP(SANDBOX_PAUSED) |
                                  STEP(SANDBOX_ENDING),
                          .at_start = LIFE_START_RUN,
                          .timer = LIFE_TIMER_CHANGE,
                          .missing = LIFE_MISSING_LOST,
                          .listed = LIFE_LISTED_SETTLE,
                          .exit = LIFE_EXIT_ENDED,
                          .kill = LIFE_CALL_END,
                          .pause = LIFE_CALL_WAIT,
                          .resume = LIFE_CALL_WAIT,
                          .change = LIFE_CHANGE_RESUME,
                          .group = LIFE_GROUP_RUNNING,
                          .visible = true,
                          .wakes = true,
                          .policy = true,
                          .place = true},
    [SANDBOX_ENDING] = {.name = "ending",
                        .next = STEP(SANDBOX_ENDED),
                        .at_start = LIFE_START_END,
                        .timer = LIFE_TIMER_KILL,
                        .missing = LIFE_MISSING_DONE,
                        .listed = LIFE_LISTED_KILL,
                        .exit = LIFE_EXIT_WAIT,
                        .kill = LIFE_CALL_UNDER_WAY,
                        .place = true},
    [SANDBOX_ENDED] = {.name = "ended", .at_start = LIFE_START_DELETE},
};

_Static_assert(ARRAY_SIZE(rows) == SANDBOX_STATE_COUNT, "each state has a row");
_Static_assert(SANDBOX_STATE_COUNT == 7,
               "a new state: write its row, and its line of the table in docs/architecture.md");
_Static_assert(SANDBOX_TIMEOUT_ACTION_COUNT == 2, "a new action: write it in each `timeout`");

const struct life *life_of(enum sandbox_state state)
{
    static const struct life none = {.name = "unknown"};

    return (size_t)state < ARRAY_SIZE(rows) ? &rows[state] : &none;
}

bool life_may_move(enum sandbox_state from, enum sandbox_state to)
{
    return (size_t)to < ARRAY_SIZE(rows) && (life_of(from)->next & LIFE_STEP(to));
}
