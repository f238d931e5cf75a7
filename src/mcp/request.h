#pragma once
/* A JSON-RPC request, from its message to its answer, which is a JSON object or, where the client
 * takes one and it may take longer, a stream of server-sent events that ends with the answer.
 *
 * A request lives until request_done or one of the functions that answer was called, exactly once.
 * Its client may give it up before (a notification, or its end of the stream closes): then it is
 * `dropped`, its work under way is ended, and the answer goes nowhere. */

#include "base/buf.h"
#include "core/pipe_writer.h"
#include "mcp/mcp.h"
#include "mcp/revision.h"
#include "mcp/session.h"

struct tool;

enum request_rights {
    REQUEST_READ = 1u << 0,    /* files and folders */
    REQUEST_WRITE = 1u << 1,   /* the same, changed */
    REQUEST_EXECUTE = 1u << 2, /* commands */
    REQUEST_EXPOSE = 1u << 3,  /* addresses of ports */
    REQUEST_MANAGE = 1u << 4,  /* sandboxes made, paused, resumed, killed */
    REQUEST_ALL_RIGHTS = (1u << 5) - 1,
};

struct request {
    struct request *next, **prev; /* of mcp->requests */
    struct mcp *mcp;
    struct core *core;
    /* NULL: it was answered, by a stream or because the request was dropped */
    struct api_call *http;
    struct pipe_writer *out; /* the stream; NULL: none */
    bool takes_stream;       /* by its Accept header */
    bool dropped;
    char tenant[CORE_TENANT_SIZE];
    char session[SESSION_ID_SIZE]; /* "": none */
    struct rpc_message message;
    const struct revision *revision;
    unsigned rights; /* enum request_rights */
    char policy[16]; /* a preset's name: for sandboxes that are made */
    char template_name[CORE_NAME_SIZE];
    bool policy_said, template_said; /* by the connection's owner: the model cannot pass them */
    json_t *args;                    /* of a tool; borrowed from message; may be NULL */
    /* the environment of a sandbox that is made; borrowed from args; may be NULL */
    json_t *tool_env;
    char sandbox[IDS_SANDBOX_SIZE]; /* that it is about, once known */
    const char *note;               /* a literal that goes with the result; NULL: none */
    bool waits;                     /* for its session's sandbox, which another request makes */
    void (*with_sandbox)(struct request *r);
    uint64_t exec; /* core_exec's number; 0: none */
    void *state;   /* the tool's; freed by state_free with the request */
    void (*state_free)(void *state);
};

struct mcp {
    struct core *core;
    struct mcp_config config;
    struct sessions *sessions;
    struct request *requests;
    uv_timer_t *sweep; /* freed when it is closed; NULL: not there any more */
    bool stopping;
    json_t *shown[2]; /* every tool as clients are shown it; [1]: where they have no sessions */
    struct api_dialect endpoint, metadata;
    const struct api_dialect *dialects[3];
};

/* Takes over the message. NULL: memory is out. */
struct request *request_new(struct mcp *m, struct api_call *http, struct rpc_message *message);

/* The session that it names; NULL: it has none, or it has ended meanwhile. */
struct session *request_session(struct request *r);

/* -- limits of a stream ------------------------------------------------------------------------ */

#define REQUEST_ANSWER_MAX (4u * 1024u * 1024u) /* bytes of the answer, encoded */
#define REQUEST_NOTES_MAX  (256u * 1024u) /* of notifications that wait for a client that is slow */

/* -- answers: each ends the request ------------------------------------------------------------ */

/* Takes the reference to result; adds what the revision asks for. */
void request_result(struct request *r, json_t *result);

/* The result is the same for all of its kind for ttl_ms; is_private: for this key alone. */
void request_result_cached(struct request *r, json_t *result, int64_t ttl_ms, bool is_private);

/* status: of HTTP, where it is not a stream. data (may be NULL): the reference is taken. */
void request_error(struct request *r, int status, int code, const char *message, json_t *data);

/* Nothing is said. */
void request_done(struct request *r);

/* -- streams ----------------------------------------------------------------------------------- */

/* From now on the answer is a stream, where the client takes one. False: the request was answered
 * with the reason. */
bool request_stream(struct request *r);

/* Nothing where it is no stream, its client has gone, or too many wait for it already. */
void request_notify(struct request *r, const char *method, json_t *params);

/* A sign of life. */
void request_beat(struct request *r);

/* Has its client gone? Only a hint where there is no stream. */
bool request_is_left(const struct request *r);

/* Its client does not want it any more. */
void request_drop(struct request *r);

/* Drops the tenant's request of that id in that session. */
void request_cancel(struct mcp *m, const char *tenant, const char *session, const json_t *id);
