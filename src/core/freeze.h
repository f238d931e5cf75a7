#pragma once
/* The tier of a pause in which the sandbox stays: cay-privd stops its processes (FREEZE), or lets
 * them go on (THAW). Contracts of the functions: tier.h. */

#include "core/tier.h"

enum err_code freeze_check(const struct core *c, struct err *e);
enum err_code freeze_begin(struct sandbox_obj *o, enum sandbox_pause_reason reason,
                           const struct tier *tier, struct err *e);
void freeze_go_on(struct sandbox_obj *o, const struct err *why);
enum err_code freeze_resume(struct sandbox_obj *o, struct err *e);
bool freeze_on_timer(struct sandbox_obj *o);

/* Of one that cay-privd has frozen though it is to run. Where cay-privd cannot, it is shown as
 * paused, with SANDBOX_PAUSE_ERROR. */
void freeze_let_go_on(struct sandbox_obj *o);
