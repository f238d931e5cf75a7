#pragma once
/* How far a build is: the step that is under way, and what holds for those that follow (user,
 * folder and variables), as the JSON that a start file is. Pure but for the log. */

#include "core/build_run.h"

/* {"env", "user", "cwd"}, a new object; NULL: memory is out. */
json_t *build_state(const struct build_run *r);
char *build_state_text(const struct build_run *r);

/* The settings of the text are in force from now on; unknown fields are left out. false: memory is
 * out, and some are not. */
bool build_state_take(struct build_run *r, const char *text, size_t len);

/* r->step is the step r->at, and the log has it, after `before`. */
void build_state_name_step(struct build_run *r, const char *before);
