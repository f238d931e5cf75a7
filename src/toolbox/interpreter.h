#pragma once
/* The interpreter: Python in a sandbox that keeps its variables from one execution to the next.
 *
 * A context is one process of the sandbox (interpreter.py, `serve`), known to the agent by a tag,
 * with one worker below it that has the variables. The default context has no tag: the first
 * execution begins it, and it is in no list. An execution is one more process (`ask`), which hands
 * the code to the context and prints what comes. So nothing of it is kept in cayd, executions of
 * one context run one after the other, and all of it has the sandbox's walls and limits and the
 * rights of TOOLBOX_USER.
 *
 * Source: /process/interpreter of openapi-specs/toolbox.json (toolbox.h), and what the SDKs
 * send. */

#include <stdbool.h>

struct toolbox_call;

#define INTERPRETER_ID_SIZE      65
#define INTERPRETER_CONTEXTS_MAX 16u /* of one sandbox, beside the default one */

/* The program, as an argument of python3 -c. */
extern const char interpreter_program[];

bool interpreter_is_id(const char *id);

/* {"cwd", "language": "python"} -> {"id", "cwd", "createdAt", "active", "language"}. */
void interpreter_create(struct toolbox_call *c);
void interpreter_list(struct toolbox_call *c);
void interpreter_delete(struct toolbox_call *c);

/* By WebSocket: {"code", "contextId", "envs", "timeout"}, once; then its outputs and its end
 * (interpreter_run.c). */
void interpreter_execute(struct toolbox_call *c);
