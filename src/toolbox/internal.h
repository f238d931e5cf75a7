#pragma once
/* Shared by the files of the toolbox.
 *
 * toolbox.c  the instance; a request's way to its handler
 * routes.c   which handler
 * call.c     a call's end, and its query
 * lookup.c   questions to the control loop: which sandbox, and a socket to its agent
 * agent.c    one call of a sandbox's agent
 * run.c      one program in a sandbox, to its end or as a stream
 * reply.c    answers, and errors in Daytona's shape
 * The rest are handlers, by what they are about.
 *
 * A call is one request of a client. It lives until its exchange has closed and all that it asked
 * of an agent has ended: handlers give it as arg, and look at `x`, which is NULL when the client
 * has gone. */

#include "base/buf.h"
#include "core/core.h"
#include "gateway/idle.h"
#include "http/client.h"
#include "toolbox/toolbox.h"

#include <jansson.h>

#define TOOLBOX_PARAM_SIZE   256 /* one part of a path, decoded, NUL included */
#define TOOLBOX_PARAMS_MAX   3
#define TOOLBOX_PATH_SIZE    4096u /* a file's, NUL included: PATH_MAX */
#define TOOLBOX_SMALL_BYTES  8192u /* of a body that takes no such place */
#define TOOLBOX_SMALL_VALUES 256u  /* of its JSON */

struct toolbox;
struct toolbox_run_op; /* run.c */
struct toolbox_call;
typedef void (*toolbox_handler)(struct toolbox_call *c);

enum {
    TOOLBOX_NO_BODY = 1u << 0,  /* it is not read as JSON: there is none, or it is a stream */
    TOOLBOX_TERMINAL = 1u << 1, /* a terminal's WebSocket: see pty_refuse */
    TOOLBOX_SIGNED = 1u << 2,   /* a signed URL opens it too (core/file_url.h): of one file */
};

struct toolbox_route {
    const char *method;  /* "*": any */
    const char *pattern; /* "/process/session/{}/exec"; a star at its end is all that follows */
    toolbox_handler handler;
    unsigned flags;
    const char *note; /* of toolbox_unsupported: what is asked for, and what to do instead */
};

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

struct toolbox_lookups;

struct toolbox {
    uv_loop_t *loop;
    struct toolbox_config config;
    struct toolbox_lookups *asks;
    struct toolbox_call *calls;
    struct events *events; /* events.c: connections that are open */
    struct idle idle;
    struct share_pool *bodies, *outputs;
    uv_timer_t sweep;
    uv_timer_cb on_sweep; /* toolbox.c */
    bool stopping;
};

/* -- call.c ------------------------------------------------------------------------------------ */

void toolbox_call_ref(struct toolbox_call *c);
void toolbox_call_unref(struct toolbox_call *c);

/* A decoded query parameter into out; "" when absent. False: the call was answered (400). */
bool toolbox_query(struct toolbox_call *c, const char *name, char *out, size_t size);

/* The same of a path, which must be there. */
bool toolbox_query_path(struct toolbox_call *c, const char *name,
                        char out[static TOOLBOX_PATH_SIZE]);

extern const struct toolbox_route *const toolbox_tables[]; /* ends with NULL */

/* -- lookup.c ---------------------------------------------------------------------------------- */

int toolbox_lookups_new(size_t max, struct toolbox_lookups **out);
void toolbox_lookups_free(struct toolbox_lookups *a);

/* done exactly once, perhaps from inside; a is NULL when the control loop has no time. The
 * descriptor in a is done's, if it takes it. */
typedef void (*toolbox_lookup_cb)(void *arg, struct gateway_answer *a);
void toolbox_lookup(struct toolbox_call *c, toolbox_lookup_cb done, void *arg);
/* For the states of the sandboxes of the call's key. c->x is there. */
void toolbox_follow(struct toolbox_call *c, toolbox_lookup_cb done, void *arg);
void toolbox_lookups_sweep(struct toolbox *t, uint64_t now_ms);
void toolbox_need_sweep(struct toolbox *t);
size_t toolbox_lookups_count(const struct toolbox_lookups *a);

/* -- events.c ---------------------------------------------------------------------------------- */

void toolbox_events_sweep(struct toolbox *t, uint64_t now_ms);
void toolbox_events_end(struct toolbox *t);

/* -- agent.c ----------------------------------------------------------------------------------- */

struct toolbox_op;

struct toolbox_agent_request {
    const char *method;
    char *target; /* malloc'd, taken over; NULL: memory is out, which done is told */
    char *body;   /* malloc'd, taken over, or NULL */
    size_t body_len;
    const char *type; /* of the body, a literal */
    bool body_streams;
    size_t last_bytes; /* no more of the file than so many at its end (Range); 0: all */
    /* Of an answer that is collected. Beyond TOOLBOX_OUTPUT_BYTES a place is taken for each further
     * TOOLBOX_OUTPUT_BLOCK of it, until done returns; without one done gets ERR_EXHAUSTED. At most
     * TOOLBOX_COLLECTED_MAX. */
    size_t max_response_bytes;
    uint64_t head_timeout_ms;    /* for the begin of the answer; 0: as agents have */
    uint64_t timeout_ms;         /* from then to its end; 0: as long as it takes */
    uint64_t process_timeout_ms; /* told to the agent (Connect-Timeout-Ms); 0: not */
    unsigned beat_s; /* how often a stream's agent shows that it lives; 0: as it likes */
    /* As in http/client.h. on_begun: the connection is there; NULL: it is not looked at. */
    void (*on_begun)(void *arg, struct http_client *client);
    void (*on_head)(void *arg, const struct http_head *head);
    bool (*on_data)(void *arg, const char *data, size_t len);
    void (*on_drain)(void *arg);
    /* Exactly once, perhaps from inside toolbox_agent. head is NULL with why set. */
    void (*done)(void *arg, const struct http_head *head, const char *body, size_t len,
                 const struct err *why);
    void *arg;
};

/* Carries the agent's key and the user. The call c stays until done was called. */
void toolbox_agent(struct toolbox_call *c, const struct toolbox_agent_request *r);

/* Ends all that c asks of its agent: each done is called with ERR_CANCELED, from inside. */
void toolbox_agent_cancel(struct toolbox_call *c);

/* A unary call of Connect's: body is stolen. */
void toolbox_rpc(struct toolbox_call *c, const char *method, json_t *body,
                 void (*done)(void *arg, const struct http_head *head, const char *text, size_t len,
                              const struct err *why),
                 void *arg);

/* -- reply.c ----------------------------------------------------------------------------------- */

/* Each answers once; without a client they do nothing. Takes the reference to body. */
void toolbox_reply_json(struct toolbox_call *c, int status, json_t *body);
void toolbox_reply_empty(struct toolbox_call *c, int status);
void toolbox_reply_text(struct toolbox_call *c, const char *json, size_t len); /* 200; copied */

/* {"statusCode", "message", "code", "source", "timestamp", "path", "method"}. code: one of
 * Daytona's words; NULL: that of the status. */
void toolbox_fail(struct toolbox_call *c, int status, const char *code, const char *fmt, ...)
    PRINTF(4, 5);
json_t *toolbox_error_json(const struct toolbox_call *c, int status, const char *code,
                           const char *message);

/* Answers with the reason why cayd did not reach the agent. */
void toolbox_fail_err(struct toolbox_call *c, const struct err *why);

/* A refusal of the agent's, {"code", "message"}, about a file: in Daytona's words, by which clients
 * tell errors apart. Returns the status; code is a literal. */
int toolbox_file_error(int status, const char *body, size_t len, const char *path,
                       const char **code, char *message, size_t size);
/* The same code where the whole answer is that error: INVALID_FILE_PATH is in no contract's list of
 * codes, and upstream says it in the parts of an answer of many files alone, which clients read
 * without that list. */
const char *toolbox_whole_code(const char *code);
void toolbox_fail_file(struct toolbox_call *c, const struct http_head *head, const char *body,
                       size_t len, const struct err *why, const char *path);

/* A handler: 501 with the route's note. */
void toolbox_unsupported(struct toolbox_call *c);

/* -- run.c ------------------------------------------------------------------------------------- */

#define TOOLBOX_OUTPUT_BYTES (256u * 1024u) /* a program's, for nothing */
/* Each further OUTPUT_BLOCK takes one of OUTPUTS_MAX places. */
#define TOOLBOX_OUTPUT_MAX   (8u * 1024u * 1024u)
#define TOOLBOX_OUTPUT_BLOCK (1024u * 1024u)
#define TOOLBOX_OUTPUTS_MAX  256u /* on one loop, shared out by tenant and sandbox (base/share.h) */
#define TOOLBOX_RUN_MAX_MS   86400000u
/* The longest answer of an agent that is collected: a list of files. */
#define TOOLBOX_COLLECTED_MAX (32u * 1024u * 1024u)
#define TOOLBOX_ARGS_MAX      96

struct toolbox_result {
    int exit_code;      /* -1: none */
    const char *out[2]; /* NUL-terminated */
    size_t len[2];
    bool truncated, timed_out;
    const char *reason; /* why it was killed: "out of memory: ..."; NULL: not known */
};

struct toolbox_run {
    /* the tag of a program that runs already; NULL: it is started by what follows */
    const char *attach;
    const char *argv[TOOLBOX_ARGS_MAX]; /* ends with NULL */
    const json_t *envs;                 /* borrowed; NULL: none */
    const char *cwd;                    /* NULL or "": the home */
    const char *tag;                    /* NULL: none */
    uint64_t timeout_ms;                /* 0: none */
    bool stdin_open;                    /* it can be written to later, by its tag */
    uint16_t cols, rows;                /* of a terminal; 0: it has none */
    /* A token that stands, after a record separator and before " EXIT\n", at the end of what is of
     * interest: with it the program counts as ended, though what it left behind may still hold its
     * outputs. After " 137\n" its end, which says why it was killed, is waited for for a moment:
     * the program has to exit with that status. NULL: at its end. */
    const char *token;
    /* NULL: kept for done. False ends the wait, and done is told so (ERR_CANCELED); the program
     * goes on. */
    bool (*on_output)(void *arg, int which, const char *bytes, size_t len);
    /* It runs; op is valid until done. May be NULL. */
    void (*on_started)(void *arg, struct toolbox_run_op *op, int64_t pid);
    /* Exactly once, perhaps from inside. why: it was not started, or the connection broke. */
    void (*done)(void *arg, const struct toolbox_result *r, const struct err *why);
    void *arg;
};

void toolbox_run(struct toolbox_call *c, const struct toolbox_run *r);

/* From on_output and later: output waits in the sandbox until it is resumed. */
void toolbox_run_pause(struct toolbox_run_op *op, bool pause);

/* Letters, digits and a NUL: unknown to whatever runs in a sandbox. */
#define TOOLBOX_TOKEN_SIZE 33
void toolbox_token(char out[static TOOLBOX_TOKEN_SIZE]);

/* Adds "name": text, whose bytes may be any, to a JSON object in the making. 0 or -errno. */
int toolbox_put_text(struct buf *b, const char *name, const char *text, size_t len);

/* `sh -c script sh ARGS...`: args ends with NULL. */
void toolbox_script(struct toolbox_run *r, const char *script, const char *const *args);
