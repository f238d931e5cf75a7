#pragma once
/* Which sandbox a tool works in: the one that it names, or that of its session, which is made when
 * it is first needed and resumed when it is paused. A request of a stateless revision has no
 * session and has to name one. */

#include "mcp/request.h"

/* Sets r->sandbox and goes on with then, perhaps before it returns; or answers with the reason. The
 * sandbox runs. */
void target_running(struct request *r, void (*then)(struct request *r));

/* The same for one that the request names elsewhere than in its arguments. */
void target_named(struct request *r, const char *id, void (*then)(struct request *r));

/* The same for one in any state, without making one. */
void target_existing(struct request *r, void (*then)(struct request *r));

/* Makes one as the request asks for ("template", "env", "network" of its arguments), as its
 * session's where it has one. */
void target_make(struct request *r, void (*then)(struct request *r));

/* Of the tenant, and no wider in what may leave it than the connection's owner has said
 * (X-Cay-Policy): a model leaves through no sandbox of another connection. The session's own always
 * is. NULL: there is none. */
const struct sandbox *target_find(struct request *r, const char *id);
bool target_may_use(struct request *r, const struct sandbox *s);

/* The preset of what may leave a sandbox that this request makes: the narrower of what the client's
 * owner set and what the arguments ask for. */
const char *target_policy(const struct request *r);
