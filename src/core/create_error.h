#pragma once
/* The error of a create that failed. Pure. */

#include "base/err.h"
#include "contract/proto.h"

struct sandbox;

/* Why CREATE of s failed with status. m: what privd answered; NULL: it did not answer. */
void create_explain(struct err *e, const struct sandbox *s, int status,
                    const struct privsep_msg *m);

/* Why /init was not answered with 2xx. body may be NULL. */
void create_explain_agent(struct err *e, int http_status, const char *body, size_t len);
