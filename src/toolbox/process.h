#pragma once
/* Handlers of process/execute and process/code-run, and readers of two fields of a body that other
 * handlers have too. */

#include "base/err.h"

#include <jansson.h>

struct toolbox_call;

/* "timeout" in seconds, 0 or absent: none. */
enum err_code toolbox_read_timeout(const json_t *body, uint64_t *out_ms, struct err *e);

/* An object of strings under that name, borrowed; *out stays when absent. */
enum err_code toolbox_read_envs(const json_t *body, const char *name, json_t **out, struct err *e);

void toolbox_execute(struct toolbox_call *c);

/* {"code", "language": "python" | "javascript" | "typescript", "argv", "envs", "timeout"}. */
void toolbox_code_run(struct toolbox_call *c);
