#pragma once
/* A request to the agent of a sandbox, and its whole answer: files and folders, for the dialects of
 * the API that work on them in the control loop. The path and the method are the agent's own
 * (docs/compatibility.md); it decides what the user may do. Commands are exec.h's. */

#include "core/core.h"

#define CORE_AGENT_CALL_MS    45000u /* for the whole of an answer */
#define CORE_AGENT_RANGE_SIZE 64u
#define CORE_AGENT_ANSWER_MAX (4u * 1024u * 1024u) /* bytes of an answer */

struct core_agent_file_call {
    const char *method;  /* a literal */
    const char *target;  /* path and query, encoded; copied */
    const char *type;    /* of the body, a literal; NULL: application/json */
    const char *user;    /* NULL: the sandbox's default; copied */
    bool own_rights;     /* files are touched with the user's rights, not with root's */
    const char *range;   /* a Range header's value; NULL: none; copied */
    char *body;          /* malloc'd, taken over whatever comes; NULL: none */
    size_t body_len;     /* 0: body is a text */
    size_t max_response; /* bytes, at most CORE_AGENT_ANSWER_MAX */
};

/* why NULL: the agent answered, with status and body, which live during the call. */
typedef void (*core_agent_cb)(void *arg, const struct err *why, int status, const char *body,
                              size_t len);

/* done exactly once, never from inside. ERR_NOT_FOUND, ERR_CONFLICT: it does not run;
 * ERR_EXHAUSTED: it or its tenant has its share of CORE_EXECS_MAX; ERR_TOO_LARGE, ERR_TIMEOUT,
 * ERR_UNAVAILABLE. */
void core_agent_file_call(struct core *c, const char *tenant, const char *id,
                          const struct core_agent_file_call *r, core_agent_cb done, void *arg);
