#pragma once
/* The templates that privd has, by name, with the limits that the operator gave them. */

#include "core/core.h"

enum err_code templates_init(struct core *c, struct err *e);
void templates_free(struct core *c);
enum err_code templates_load_limits(struct core *c, struct err *e); /* after the store is open */
struct template_info *templates_entry(struct core *c, const char *name); /* or NULL */
void templates_forget(struct core *c);                                   /* privd lists them anew */
void templates_on_event(struct core *c, const struct privsep_msg *m);
void templates_on_progress(struct core *c, const struct privsep_msg *m);

/* Asks privd for them; fn (may be NULL) when they are known (status 0) or not. 0, or -errno when
 * nothing was asked. */
int templates_request(struct core *c, void (*fn)(struct core *c, int status));

/* Name -> what was asked for and what is used: base gives host until it is built. */
enum err_code templates_resolve(struct core *c, const char *name,
                                const struct template_info **requested,
                                const struct template_info **used, struct err *e);
