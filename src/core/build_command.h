#pragma once
/* The actions of a build in its sandbox: a command, with its output and its refusals in the log; a
 * file. And the message when that fails. */

#include "core/build_run.h"

#define BUILD_OUTPUT_MAX 32768u /* bytes of a command's output that are kept */

struct build_command {
    const char *user, *cwd;
    const char *cmd;
    json_t *args;        /* taken */
    bool logged;         /* its output goes to the log, and is not kept */
    uint64_t timeout_ms; /* 0: the rest of the build's time */
};

/* A command in the sandbox, with the build's variables; done's arg is r. The number, for
 * core_exec_stop. */
uint64_t build_command(struct build_run *r, const struct build_command *c, core_exec_cb done);

/* true: it has failed, and so has the build. Its refusals go to the log. */
bool build_command_failed(struct build_run *r, const char *what, const struct core_exec_result *x,
                          const struct err *why);

/* A file of root's in the sandbox. */
void build_write_file(struct build_run *r, const char *path, const char *text,
                      void (*done)(struct build_run *r));

/* Why it failed, for its clients; the first is the one that stays. */
void build_run_fail(struct build_run *r, const char *fmt, ...) PRINTF(2, 3);

/* done in the next turn: the step that is under way waits for nothing more. */
void build_command_later(struct build_run *r, void (*done)(struct build_run *r));
