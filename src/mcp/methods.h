#pragma once
/* The methods of the protocol that this server has, as rows of one table: for which generation of
 * revisions, with which right, and the function. A method without a row is not found. */

#include "mcp/request.h"

/* Answers the request, whose session and revision are known. */
void methods_call(struct request *r);

/* A notification: nothing is answered. */
void methods_notify(struct mcp *m, const char *tenant, const char *session,
                    const struct rpc_message *message);
