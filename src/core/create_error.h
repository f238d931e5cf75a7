#pragma once
/* The error of a create that failed, and its caller, who is told. */

#include "base/err.h"
#include "contract/proto.h"

struct sandbox;
struct sandbox_obj;

/* Why CREATE of s failed with status. m: what privd answered; NULL: it did not answer. */
void create_explain(struct err *e, const struct sandbox *s, int status,
                    const struct privsep_msg *m);

/* Why /init was not answered with 2xx. body may be NULL. */
void create_explain_agent(struct err *e, int http_status, const char *body, size_t len);

/* privd has refused the memory itself (PRIVSEP_STAGE_MEMORY): why. */
void create_explain_memory(struct err *e, int status);

/* The create's caller is told why, once; the sandbox itself is the lifecycle's. */
void create_fail(struct sandbox_obj *o, const struct err *why);
void create_fail_text(struct sandbox_obj *o, enum err_code code, const char *text);
