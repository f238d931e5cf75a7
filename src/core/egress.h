#pragma once
/* cayd's end of cay-egress's control channel: gives each sandbox its policy, tells when that has
 * changed, and gives all of them again after cay-egress was restarted.
 *
 * cay-egress lets nothing out of a sandbox whose policy it does not have, so nothing here is in a
 * create's way: a policy that comes late is a connection that waits, one that never comes is one
 * that is refused. A connection to each process of cay-egress stays open (GET /v1/events); its end
 * tells of a restart. */

#include "base/err.h"
#include "base/util.h"
#include "core/core.h"

#include <jansson.h>
#include <stddef.h>

struct egress_event_reader;
struct sandbox_obj;
struct tenant;

/* The users of the channel: the choice of a sandbox's policy, and the handlers of cay-egress's
 * events. */
struct egress_uses {
    /* The policy to send for o: JSON, malloc'd. NULL: why in e. */
    char *(*body)(struct sandbox_obj *o, struct err *e);
    void (*begun)(struct core *c); /* a process of it has begun a life */
    void (*on_events)(struct core *c, struct egress_event_reader *reader, const char *data,
                      size_t n);
};

/* Without config.egress_dir there is no cay-egress, and nothing is ever sent. 0 or -ENOMEM. */
int egress_init(struct core *c, const struct egress_uses *uses);

/* Closes what is open; how many handles will yet be closed (core_handle_closed tells of each). Then
 * egress_free. */
unsigned egress_stop(struct core *c);
void egress_free(struct core *c);

/* privd has said which sandboxes live: their policies may be sent. */
void egress_ready(struct core *c);

/* o's policy, slot or generation has changed: it is sent, now or when cay-egress is back. */
void egress_touch(struct sandbox_obj *o);

/* The same; done when cay-egress has taken it over, so that what the new policy denies is cut, or
 * why not (it is then still tried). Never from inside this call. */
void egress_touch_and_notify(struct sandbox_obj *o, core_sandbox_cb done, void *arg);

/* o leaves its slot, or gets another: its place in the queue was of that one's process. The caller
 * touches it anew. */
void egress_leave(struct sandbox_obj *o);

/* o ends: nothing waits for it any more. */
void egress_forget(struct sandbox_obj *o);

/* -- for others that ask it -------------------------------------------------------------------- */

/* How many processes there are; 0: none is configured. */
unsigned egress_count(const struct core *c);
const char *egress_path(const struct core *c, unsigned i); /* i < egress_count */

/* A process that answers, for requests that each of them can serve; or NULL. */
const char *egress_any_path(const struct core *c);

/* Which of them that name of the tenant's belongs to, always the same; egress_count is not 0. */
unsigned egress_number_of(const struct core *c, const char *tenant, const char *name);

/* The one that belongs to that name of the tenant's, always the same; NULL while it is not up. */
const char *egress_path_of(const struct core *c, const char *tenant, const char *name);

/* That one, or any other while it is not up: for what may be done twice. */
const char *egress_path_for(const struct core *c, const char *tenant, const char *name);

/* The operator's ceiling and the tenant's own, a new array. NULL: ERR_NOT_FOUND (no such tenant),
 * or another. */
json_t *egress_ceilings(struct tenant *t, struct err *e);

/* An answer of cay-egress's that is an error, as one. fmt: its subject in the error. */
enum err_code egress_refusal(struct err *e, int status, const char *body, size_t len,
                             const char *fmt, ...) PRINTF(5, 6);
