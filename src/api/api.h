#pragma once
/* The control plane's routes: translation between HTTP and core, nothing else. There are dialects,
 * told apart by how a path begins; each has its routes and its shape of errors.
 *
 * Runs on the control loop. A connection loop hands over a whole request as plain data (struct
 * api_request, strings that it made for this) and gets a whole response as plain data: no socket,
 * no exchange, no pointer that may have died crosses. Every call answers exactly once, perhaps
 * before api_dispatch returns. The sender of the answer drops it when its client has gone.
 *
 * Sources: E2B's public OpenAPI description; daytona.h; cay_v1.h for cay's own part. Never
 * blocks. */

#include "base/err.h"
#include "core/core.h"
#include "core/key.h"
#include "core/role.h"

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>

#define API_BODY_MAX_BYTES     (1024u * 1024u)
#define API_POLICY_MAX_BYTES   (256u * 1024u) /* where it is a policy */
#define API_METADATA_MAX_BYTES (64u * 1024u)
#define API_ENV_MAX_BYTES      (256u * 1024u)
#define API_MAP_MAX_COUNT      1024u
#define API_QUERY_MAX_BYTES    (16u * 1024u)
#define API_PARAM_SIZE         256 /* one {part} of a path, decoded, NUL included */
#define API_PARAMS_MAX         3
#define API_HEADERS_MAX        4
/* equal to the agent's protocol: opens every gate */
#define API_ENVD_VERSION "0.6.13"

/* Headers that handlers may read beside the key; api_header_names has their names. */
enum api_header_id {
    API_ACCEPT,
    API_CONTENT_TYPE,
    API_ORIGIN,
    API_MCP_METHOD,
    API_MCP_NAME,
    API_MCP_POLICY,
    API_MCP_RIGHTS,
    API_MCP_SESSION,
    API_MCP_TEMPLATE,
    API_MCP_VERSION,
    API_TRACEPARENT,
    API_HEADER_ID_COUNT
};
extern const char *const api_header_names[API_HEADER_ID_COUNT];

/* Belongs to its maker; api_dispatch takes it over and frees it by api_request_free. */
struct api_request {
    char *method, *path, *query; /* path and query still percent-encoded */
    char *host;                  /* Host, as the client named this server; "" when absent */
    char *key;                   /* X-API-Key, or Authorization's bearer token; "" when absent */
    char *idempotency_key;       /* Idempotency-Key; NULL when absent */
    char *headers[API_HEADER_ID_COUNT]; /* NULL: absent */
    char *body;                         /* NUL-terminated */
    size_t body_len;
    bool is_socket; /* asked by the toolbox for a client that has a WebSocket */
    /* The body goes into a file (upload_fd of the answer) instead of this: it is to begin, or it is
     * all there, by the number that the first answer had. */
    enum { API_UPLOAD_NONE, API_UPLOAD_BEGINS, API_UPLOAD_ENDS } upload;
    uint64_t upload_number;
    /* its client has gone; valid until the answer; NULL: it is not known */
    const atomic_bool *gone;
};

struct api_header {
    char name[32];
    char value[256];
};

struct api_response {
    int status;
    char tenant[CORE_TENANT_SIZE]; /* the tenant of the key; "": none, or it is not known */
    struct api_header headers[API_HEADERS_MAX];
    size_t header_count;
    char *body; /* or NULL */
    size_t body_len;
    const char *type; /* of body, a literal; NULL: application/json */
    int stream_fd;    /* the body comes out of this, until its end, as stream_type; 0: none does */
    const char *stream_type; /* a literal */
    /* stream_fd is a file of so many bytes, from its beginning; 0: it is a pipe */
    uint64_t stream_bytes;
    int upload_fd; /* the body is to be written to this (API_UPLOAD_BEGINS); 0: it is not */
    uint64_t upload_number, upload_most_bytes;
};

struct api_config {
    const char *domain;    /* of sandbox host names, "localhost:3000"; NULL or "": none */
    const char *state_dir; /* for cay_v1.h's key file */
    bool https;            /* clients are told https addresses */
    uint64_t max_ttl_ms;
    struct privsep_limits limits; /* of a sandbox that asks for none */
    const struct api_dialect *const
        *dialects; /* before the API's own; ends with NULL; NULL: none */
};

struct api;

/* config's strings are copied. core must outlive the api. */
enum err_code api_new(struct core *core, const struct api_config *config, struct api **out,
                      struct err *e);
void api_free(struct api *a);

/* A copy of the parts as a request; NULL when memory is out. */
struct api_request *api_request_new(const char *method, const char *path, const char *query,
                                    const char *host, const char *key, const char *body,
                                    size_t body_len);
void api_request_free(struct api_request *r);
void api_response_free(struct api_response *r); /* its contents, not the struct itself */

/* done is called exactly once; it takes over what response holds. */
typedef void (*api_done)(void *arg, struct api_response *response);
void api_dispatch(struct api *a, struct api_request *r, api_done done, void *arg);

/* -- for the handlers -------------------------------------------------------------------------- */

struct api_call;
typedef void (*api_handler)(struct api_call *call);

/* The access that a route needs, which the roles of keys grant: core/role.h describes each. */
enum api_access {
    API_NOT_DECIDED = ROLE_NOT_DECIDED,
    API_OPEN = ROLE_OPEN,
    API_READ = ROLE_READ,
    API_WRITE = ROLE_WRITE,
    API_OPERATE = ROLE_OPERATE,
    API_ACCESS_COUNT = ROLE_ACCESS_COUNT
};

/* Tables end with NULL as method. The method "*" is any, for what no row before has; a star at the
 * end of a pattern is all that follows. The access comes first, so that a row without one does not
 * compile. */
struct api_route {
    enum api_access access;
    const char *method;
    const char *pattern; /* "/sandboxes/{id}/timeout" */
    api_handler handler;
    const char *note; /* for api_unsupported: the feature, and what to do instead */
    size_t body_max;  /* bytes; 0: API_BODY_MAX_BYTES */
};

struct api_dialect {
    const char *prefix;                    /* "/api/": how its paths begin */
    const struct api_route *const *tables; /* ends with NULL */
    /* The body of an error for its clients: a new object, or NULL when memory is out. hint is not
     * "" where there is one, and in message already. Status and message are what the server says;
     * headers may be added. */
    json_t *(*error)(struct api_call *call, int status, const char *message, const char *hint);
    /* A check before the key's; false: the call was answered. NULL: none. */
    bool (*admit)(struct api_call *call);
    void *owner; /* the dialect's */
};

/* A request that is not answered yet. Valid until one of the api_reply or api_fail functions was
 * called, exactly once; a handler that waits for core gives the call as arg. */
struct api_call {
    struct api *api;
    struct core *core;
    const struct api_dialect *dialect;
    const struct api_route *route;
    struct api_request *request;
    uint64_t begun_us;        /* clock_mono_us */
    bool has_begun;           /* core_call_begin */
    struct core_identity who; /* empty for a route that is API_OPEN */
    char params[API_PARAMS_MAX][API_PARAM_SIZE];
    json_t *body; /* after api_call_body */
    void *state;  /* the handler's; freed by state_free with the call */
    void (*state_free)(void *state);
    struct api_response response; /* headers may be added before the reply */
    api_done done;
    void *done_arg;
};

const struct api_config *api_config_of(const struct api *a);
struct cay_v1 *api_cay_v1(const struct api *a);
struct api_metrics *api_metrics_of(struct api *a);

/* Parses the body as an object into call->body. False: the call was answered (400, 413). */
bool api_call_body(struct api_call *call);

/* Refuses a key of body that is in neither list: one that is misspelt must not be taken for absent.
 * known: words with spaces between, which the error names; also: more of them ("": none). */
enum err_code api_check_keys(const json_t *body, const char *known, const char *also,
                             struct err *e);

/* api_call_body, and api_check_keys without more of them. */
bool api_call_body_of(struct api_call *call, const char *known);

/* Begins a call with a body: api_call_body, and a zeroed state of so many bytes, which is the
 * call's. NULL: the call was answered (400, 413, 503). */
void *api_call_state(struct api_call *call, size_t size, void (*state_free)(void *state));

/* A decoded query parameter into out; "" when absent. False: the call was answered (400). */
bool api_call_query(struct api_call *call, const char *name, char *out, size_t size);

/* A whole number of [min, max] from the query; *out stays when absent. False as above. */
bool api_call_query_int(struct api_call *call, const char *name, int64_t min, int64_t max,
                        int64_t *out);

/* May keys of the role make calls of that kind? Denied by default. */
static inline bool api_role_may(enum core_role role, enum api_access access)
{
    return role_may(role, (enum role_access)access);
}

/* route.c: every route of every dialect, for tests. */
void api_each_route(void (*fn)(void *arg, const struct api_route *r), void *arg);

void api_header_add(struct api_call *call, const char *name, const char *value);

/* Takes the reference to body. */
void api_reply_json(struct api_call *call, int status, json_t *body);
void api_reply_text(struct api_call *call, int status, const char *json, size_t len); /* copied */
void api_reply_empty(struct api_call *call, int status);
void api_reply_stream(struct api_call *call, const char *type, int fd); /* 200; takes fd over */
/* The same of a file, of so many bytes. */
void api_reply_file(struct api_call *call, const char *type, int fd, uint64_t bytes);
/* To API_UPLOAD_BEGINS; takes fd over. */
void api_reply_upload(struct api_call *call, int fd, uint64_t number, uint64_t most_bytes);
void api_fail(struct api_call *call, int status, const char *fmt, ...) PRINTF(3, 4);
void api_fail_err(struct api_call *call, const struct err *e);

/* A handler: 501 with the route's note. */
void api_unsupported(struct api_call *call);

int api_status_of(enum err_code code);

/* A create's metadata and environment, under the names that its dialect gives those fields:
 * borrowed from body. ERR_INVALID, naming the field: not strings, too many, or no names of
 * variables. */
enum err_code api_read_maps(const json_t *body, const char *metadata, const char *env,
                            struct sandbox_request *r, struct err *e);

/* A JSON string of text; a character that was cut is left out. */
json_t *api_json_text(const char *text);

/* route.c: the dialect whose prefix the path begins with, of more (as in struct api_config) before
 * the API's own; never NULL. */
const struct api_dialect *api_route_dialect(const struct api_dialect *const *more,
                                            const char *path);

/* route.c: the route for method and path. When only the method is wrong: NULL, and the methods that
 * would be right in allow. */
const struct api_route *api_route_find(const struct api_dialect *d, const char *method,
                                       const char *path,
                                       char params[API_PARAMS_MAX][API_PARAM_SIZE], char *allow,
                                       size_t size);

/* Exported for tests: does path match pattern? Fills params (decoded). */
bool api_route_match(const char *pattern, const char *path,
                     char params[API_PARAMS_MAX][API_PARAM_SIZE]);

/* RFC 3339 as a JSON string. */
json_t *api_json_time(int64_t real_ms);
