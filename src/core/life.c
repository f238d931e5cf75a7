#include "core/life.h"

#define STEP LIFE_STEP

/* Columns of the table in docs/architecture.md that are read together. */
#define ARMED(start_, timer_) .at_start = LIFE_START_##start_, .timer = LIFE_TIMER_##timer_
#define LIST(has_, lacks_)    .listed = LIFE_LISTED_##has_, .missing = LIFE_MISSING_##lacks_
#define CALLS(kill_, pause_, resume_) \
    .kill = LIFE_CALL_##kill_, .pause = LIFE_CALL_##pause_, .resume = LIFE_CALL_##resume_

/* ENDED follows CREATING when privd refused or undid the create. Paused sandboxes hold a place:
 * their layer is on the disk, and they have to fit when they resume. */
static const struct life creating = {.name = "creating",
                                     .next = STEP(SANDBOX_RUNNING) | STEP(SANDBOX_ENDING) |
                                             STEP(SANDBOX_ENDED),
                                     ARMED(UNDO, CREATE),
                                     LIST(WAIT, WAIT),
                                     .exit = LIFE_EXIT_ENDED,
                                     .kill = LIFE_CALL_END,
                                     .awaits_create = true,
                                     .policy = true};

static const struct life running = {.name = "running",
                                    .next = STEP(SANDBOX_PAUSING) | STEP(SANDBOX_ENDING) |
                                            STEP(SANDBOX_KEEPING),
                                    ARMED(RUN, LIFETIME),
                                    .timeout = {[SANDBOX_ON_TIMEOUT_KILL] = LIFE_TIMEOUT_END,
                                                [SANDBOX_ON_TIMEOUT_PAUSE] = LIFE_TIMEOUT_PAUSE},
                                    LIST(KEEP, LOST),
                                    .exit = LIFE_EXIT_ENDED,
                                    CALLS(END, DO, ALREADY),
                                    .group = LIFE_GROUP_RUNNING,
                                    .visible = true,
                                    .reachable = true,
                                    .policy = true};

static const struct life pausing = {.name = "pausing",
                                    .next = STEP(SANDBOX_PAUSED) | STEP(SANDBOX_RUNNING) |
                                            STEP(SANDBOX_ENDING),
                                    ARMED(RUN, CHANGE),
                                    LIST(SETTLE, LOST),
                                    .exit = LIFE_EXIT_ENDED,
                                    CALLS(END, ALREADY, WAIT),
                                    .change = LIFE_CHANGE_PAUSE,
                                    .group = LIFE_GROUP_PAUSED,
                                    .visible = true,
                                    .wakes = true,
                                    .policy = true};

static const struct life paused = {.name = "paused",
                                   .next = STEP(SANDBOX_RESUMING) | STEP(SANDBOX_ENDING),
                                   ARMED(RUN, NONE),
                                   LIST(SETTLE, LOST),
                                   .exit = LIFE_EXIT_ENDED,
                                   CALLS(END, ALREADY, DO),
                                   .group = LIFE_GROUP_PAUSED,
                                   .visible = true,
                                   .wakes = true,
                                   .policy = true};

static const struct life resuming = {.name = "resuming",
                                     .next = STEP(SANDBOX_RUNNING) | STEP(SANDBOX_PAUSED) |
                                             STEP(SANDBOX_ENDING),
                                     ARMED(RUN, CHANGE),
                                     LIST(SETTLE, LOST),
                                     .exit = LIFE_EXIT_ENDED,
                                     CALLS(END, WAIT, WAIT),
                                     .change = LIFE_CHANGE_RESUME,
                                     .group = LIFE_GROUP_RUNNING,
                                     .visible = true,
                                     .wakes = true,
                                     .policy = true};

static const struct life ending = {.name = "ending",
                                   .next = STEP(SANDBOX_ENDED),
                                   ARMED(END, KILL),
                                   LIST(KILL, DONE),
                                   .exit = LIFE_EXIT_WAIT,
                                   .kill = LIFE_CALL_UNDER_WAY};

static const struct life ended = {.name = "ended", .at_start = LIFE_START_DELETE, .gone = true};

static const struct life keeping = {.name = "keeping",
                                    .next = STEP(SANDBOX_RUNNING) | STEP(SANDBOX_ENDING) |
                                            STEP(SANDBOX_KEPT),
                                    ARMED(FILES, CHANGE),
                                    LIST(RUNS, FILES),
                                    .exit = LIFE_EXIT_ENDED,
                                    CALLS(END, ALREADY, WAIT),
                                    .change = LIFE_CHANGE_PAUSE,
                                    .group = LIFE_GROUP_PAUSED,
                                    .files = true,
                                    .visible = true,
                                    .wakes = true,
                                    .policy = true};

static const struct life kept = {.name = "kept",
                                 .next = STEP(SANDBOX_ENDING) | STEP(SANDBOX_RESTARTING),
                                 ARMED(FILES, REST),
                                 LIST(AGAIN, FILES),
                                 .exit = LIFE_EXIT_WAIT,
                                 CALLS(END, ALREADY, DO),
                                 .group = LIFE_GROUP_PAUSED,
                                 .files = true,
                                 .visible = true,
                                 .wakes = true};

static const struct life restarting = {.name = "restarting",
                                       .next = STEP(SANDBOX_RUNNING) | STEP(SANDBOX_ENDING) |
                                               STEP(SANDBOX_KEPT),
                                       ARMED(FILES, CHANGE),
                                       LIST(AGAIN, FILES),
                                       .exit = LIFE_EXIT_ENDED,
                                       CALLS(END, WAIT, WAIT),
                                       .change = LIFE_CHANGE_RESUME,
                                       .group = LIFE_GROUP_RUNNING,
                                       .files = true,
                                       .awaits_create = true,
                                       .visible = true,
                                       .wakes = true,
                                       .policy = true};

_Static_assert(SANDBOX_STATE_COUNT == 10,
               "a new state: write its row, and its line of the table in docs/architecture.md");
_Static_assert(SANDBOX_TIMEOUT_ACTION_COUNT == 2, "a new action: write it in each `timeout`");

/* A state without a case, a case without a row and a row without a case do not compile. */
const struct life *life_of(enum sandbox_state state)
{
    static const struct life none = {.name = "unknown"};

#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wswitch"
    switch (state) {
    case SANDBOX_CREATING: return &creating;
    case SANDBOX_RUNNING: return &running;
    case SANDBOX_PAUSING: return &pausing;
    case SANDBOX_PAUSED: return &paused;
    case SANDBOX_RESUMING: return &resuming;
    case SANDBOX_ENDING: return &ending;
    case SANDBOX_ENDED: return &ended;
    case SANDBOX_KEEPING: return &keeping;
    case SANDBOX_KEPT: return &kept;
    case SANDBOX_RESTARTING: return &restarting;
    case SANDBOX_STATE_COUNT: break;
    }
#pragma GCC diagnostic pop
    return &none;
}

bool life_may_move(enum sandbox_state from, enum sandbox_state to)
{
    return to < SANDBOX_STATE_COUNT && (life_of(from)->next & LIFE_STEP(to));
}

bool life_is_at_rest(enum sandbox_state state)
{
    return life_of(state)->files && life_of(state)->change == LIFE_CHANGE_NONE;
}
