#pragma once
/* Runs a program in a sandbox to its end, and gives its output, its status and its refusals by the
 * network.
 *
 * With a policy of its own it runs in a command sandbox (privd/command_sandbox.h): a network, pid
 * and IPC namespace of its own in the sandbox, whose policy says no more than the sandbox's own
 * does. The command sandbox ends with the program, and with it whatever that left running. The
 * program is not started before the policy is in force; where that cannot be, it is not started at
 * all. */

#include "core/core.h"
#include "core/exec_stream.h"

#define CORE_EXEC_TIMEOUT_MS     60000u
#define CORE_EXEC_TIMEOUT_MAX_MS 3600000u
/* kept of both outputs together, when nothing is said */
#define CORE_EXEC_OUTPUT     (1024u * 1024u)
#define CORE_EXEC_OUTPUT_MAX (4u * 1024u * 1024u)
/* at a time, shared out by tenant and sandbox (base/share.h) */
#define CORE_EXECS_MAX       512u
#define CORE_EXEC_CALL_MS    5000u
#define CORE_EXEC_POLICY_MAX 65536u /* bytes of a command's; all of a sandbox travel together */

/* All borrowed, until core_exec returns. */
struct core_exec_request {
    json_t *process;  /* {"cmd", "args", "envs", "cwd"} as of process.Process/Start */
    const char *user; /* NULL: the sandbox's default */
    const char *input;
    size_t input_len; /* of input; without one, standard input is empty */
    uint64_t timeout_ms;
    size_t max_output_bytes;
    const json_t *policy; /* NULL: the sandbox's network, and its policy */
    /* Told the output as it comes, which is then not kept, and without bytes of each other sign
     * that the program runs, every CORE_EXEC_CALL_MS at least; NULL: it is kept. Its arg is that of
     * done. False ends the wait: a program in a command sandbox ends with it, any other goes on to
     * its end or that of its time. */
    exec_output_cb on_output;
};

struct core_exec_result {
    int exit_code;      /* -1: none, by a signal or at the end of its time */
    const char *signal; /* "SIGKILL"; NULL: none */
    const char
        *reason; /* of that, or of a shell's 128 + 9: "out of memory: ..."; NULL: not known */
    const char *output[2];
    size_t output_len[2]; /* stdout, stderr */
    bool truncated, timed_out;
    uint64_t duration_ms; /* from the start of the program */
    /* denials of that time, of its command sandbox where it has one: docs/policy.md; borrowed */
    json_t *violations;
};

/* Lives during the call; why NULL when there is a result. */
typedef void (*core_exec_cb)(void *arg, const struct core_exec_result *r, const struct err *why);

/* done exactly once, never from inside. ERR_INVALID also for what the agent says of the program
 * (there is no such program, directory or user). The number of this call, for core_exec_stop. */
uint64_t core_exec(struct core *c, const char *tenant, const char *id,
                   const struct core_exec_request *r, core_exec_cb done, void *arg);

/* Kills the program, with all that it started, and one that is not started yet when it is: done is
 * called as at any end, with the signal. A number whose call has ended is none. */
void core_exec_stop(struct core *c, uint64_t number);

/* -- for egress.c ------------------------------------------------------------------------------ */

struct sandbox_obj;

/* The description of o's command sandboxes for cay-egress: a new array, or NULL when there is
 * none. */
json_t *exec_command_sandboxes(const struct sandbox_obj *o);
void exec_command_sandboxes_free(struct sandbox_obj *o);
