#pragma once
/* A call: one request of a client to the toolbox. It lives until its exchange has closed and all
 * that it asked of an agent has ended: handlers give it as arg, and look at `x`, which is NULL when
 * the client has gone.
 *
 * Private to the toolbox, as are:
 *
 * toolbox_internal.h  the instance
 * routes.h            which handler a request has
 * lookup.h            questions to the control loop: which sandbox, and a socket to its agent
 * agent.h             one call of a sandbox's agent
 * collect.h           a long answer of an agent, and the memory that such answers share
 * elements.h          the elements of a long list, one at a time
 * run.h               one program in a sandbox, to its end or as a stream
 * reply.h             answers, and errors in Daytona's shape
 *
 * The others declare handlers, by what they are about. */

#include "core/core.h"
#include "core/key.h"
#include "gateway/access.h"
#include "http/server.h"

#include <jansson.h>

#define TOOLBOX_PARAM_SIZE   256 /* one part of a path, decoded, NUL included */
#define TOOLBOX_PARAMS_MAX   3
#define TOOLBOX_PATH_SIZE    4096u /* a file's, NUL included: PATH_MAX */
#define TOOLBOX_SMALL_BYTES  8192u /* of a body that takes no such place */
#define TOOLBOX_SMALL_VALUES 256u  /* of its JSON */

struct share;
struct toolbox;
struct toolbox_op; /* agent.c */
struct toolbox_route;

struct toolbox_call {
    struct toolbox_call *next, **prev;
    struct toolbox *toolbox;
    struct http_exchange *x; /* NULL: the client has gone, or has its answer */
    unsigned refs;           /* the exchange, and each call of an agent */
    struct toolbox_op *ops;  /* calls of an agent under way */
    const struct toolbox_route *route;
    char *key;
    char key_id[CORE_KEY_ID_SIZE];     /* "": not made yet (toolbox_key_revoked) */
    bool is_signed;                    /* by file_url, without a key */
    struct access file_url;            /* its subject is the call's */
    char name[CORE_SANDBOX_NAME_SIZE]; /* of the sandbox, as it was asked for */
    char id[IDS_SANDBOX_SIZE];         /* "" until it is known */
    char tenant[CORE_TENANT_SIZE];
    uint32_t gen;
    uint8_t agent_key[PRIVSEP_KEY_SIZE];
    int unused_fd; /* not connected yet; for the first call of its agent */
    char params[TOOLBOX_PARAMS_MAX][TOOLBOX_PARAM_SIZE];
    struct share *body_share;
    json_t *body; /* of a request that has one; an object */
    bool answered, stopped;
    bool revoked; /* its key was, meanwhile: it reaches no agent any more */
    bool large;   /* an answer of its agent was some MiB: its end gives memory back (collect.c) */
    /* The handler's; freed by state_free with the call. on_gone: the client has gone before its
     * answer; NULL: all calls of the agent are ended, and nothing follows them. */
    void *state;
    void (*state_free)(void *state);
    void (*on_gone)(struct toolbox_call *c);
};

void toolbox_call_ref(struct toolbox_call *c);
void toolbox_call_unref(struct toolbox_call *c);

/* A decoded query parameter into out; "" when absent. False: the call was answered (400). */
bool toolbox_query(struct toolbox_call *c, const char *name, char *out, size_t size);

/* The same of a path, which must be there. */
bool toolbox_query_path(struct toolbox_call *c, const char *name,
                        char out[static TOOLBOX_PATH_SIZE]);
