#pragma once
/* Calls that core makes and waits for: to privd (a request and its reply) and to an agent (a socket
 * in the sandbox, then one HTTP request). Each call is on the core's list, so that core_free can
 * end the wait; callbacks are called exactly once, never from inside the function that starts the
 * call. */

#include "base/err.h"
#include "contract/proto.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct core;
struct sandbox_obj;

/* status: 0, privd's -errno, or the channel's. m is NULL when the channel failed. fds[n_fds] are
 * the callback's. id is the call's copy of what was given. */
typedef void (*call_privd_cb)(struct core *c, const char *id, int status,
                              const struct privsep_msg *m, int *fds, size_t n_fds, void *arg);

/* The request's sequence number, or -errno when nothing was sent (cb is then not called). id may be
 * "". */
int64_t call_privd(struct core *c, const char *id, const struct privsep_msg *request,
                   call_privd_cb cb, void *arg);

/* why is NULL when the agent answered with http_status; body is valid during the call. */
typedef void (*call_agent_cb)(struct core *c, const char *id, const struct err *why,
                              int http_status, const char *body, size_t len, void *arg);

#define CALL_RANGE_SIZE 64u

struct call_agent_request {
    const char *method, *target; /* literals: not copied, but see copy_target */
    bool copy_target;            /* target is the caller's */
    char *body;                  /* malloc'd and taken over; JSON, or NULL */
    size_t body_len;             /* 0: the body is a text */
    const char *type;            /* of the body, a literal; NULL: application/json */
    const char *user;  /* the owner of the program or file; NULL: the sandbox's default. Copied */
    bool own_rights;   /* files are touched with that user's rights, not with root's */
    const char *range; /* "bytes=0-99"; NULL: all. Copied, CALL_RANGE_SIZE at most */
    uint64_t agent_timeout_ms; /* told to the agent (Connect-Timeout-Ms); 0: not */
    /* whole seconds: how often a stream's agent shows that it lives; 0: as it likes */
    uint64_t agent_beat_ms;
    size_t max_response_bytes;
    uint64_t timeout_ms;
    bool (*on_data)(void *arg, const char *data,
                    size_t len); /* http/client.h; arg is the callback's */
};

/* Carries the agent's key. A failure to start is told through cb too. */
void call_agent(struct sandbox_obj *o, const struct call_agent_request *r, call_agent_cb cb,
                void *arg);

/* Parses an agent's answer to GET /envs; the reference is the caller's. NULL: there is none, or it
 * is no object. It is not believed: more than JSON_MAX_VALUES values are none, as they are kept
 * while a sandbox is. */
json_t *call_agent_env(const struct err *why, int http_status, const char *body, size_t len);

/* The same over a socket that is there, not connected yet, with that key: to an agent that is not
 * the sandbox's own (a command sandbox's), or where sockets were fetched before. fd is taken
 * over. */
void call_agent_at(struct core *c, const char *id, int fd,
                   const uint8_t key[static PRIVSEP_KEY_SIZE], const struct call_agent_request *r,
                   call_agent_cb cb, void *arg);

/* The same to a server on a unix socket (cay-egress), without a key: method, body and the rest as
 * in r, but target is copied (at most CALL_TARGET_MAX bytes). id may be "". */
#define CALL_TARGET_MAX 255u
struct call;
struct call *call_unix(struct core *c, const char *id, const char *path,
                       const struct call_agent_request *r, call_agent_cb cb, void *arg);

/* Ends the wait for one, which is valid until its cb was called: that is called with ERR_CANCELED,
 * from inside, and the server sees its client go. */
void call_cancel(struct call *call);

/* A connected, non-blocking stream socket, or -errno: a unix socket connects at once or not at
 * all. */
int call_connect_unix(const char *path);

/* Ends every wait with ERR_CANCELED / -ECANCELED. */
void call_cancel_all(struct core *c);

/* Ends a sandbox that privd has and the store does not. id is for the log. A failure needs no
 * answer: the next LIST shows it again. */
void call_kill_stray(struct core *c, const char *id, uint32_t slot, uint32_t gen);

/* A failed call of privd as an error for the caller. */
enum err_code call_privd_err(struct err *e, int64_t status, const char *what);

/* Is it the channel that failed, and not what was asked? privd may or may not have done it. */
bool call_is_channel_error(int64_t status);

/* As core_sandbox_sockets, for any state in which privd knows the sandbox. Used by call_agent. */
void sockets_get(struct sandbox_obj *o, size_t n,
                 void (*done)(void *arg, int *fds, size_t n, const struct err *why), void *arg);
