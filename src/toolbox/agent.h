#pragma once
/* A call of a sandbox's agent: a request on a connection of its own, and its answer. */

#include "base/err.h"
#include "http/client.h"

#include <jansson.h>

struct toolbox_call;

struct toolbox_agent_request {
    const char *method;
    char *target; /* malloc'd, taken over; NULL: memory is out, which done is told */
    char *body;   /* malloc'd, taken over, or NULL */
    size_t body_len;
    bool no_text;     /* the body could not be made: a text of its is not UTF-8; done is told */
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

/* JSON as the request's body; o is stolen. NULL for one with a text that is not UTF-8 (done is told
 * ERR_INVALID), and where memory is out (ERR_UNAVAILABLE). */
void toolbox_agent_body(struct toolbox_agent_request *r, json_t *o);

/* A unary call of Connect's: body is stolen. */
void toolbox_rpc(struct toolbox_call *c, const char *method, json_t *body,
                 void (*done)(void *arg, const struct http_head *head, const char *text, size_t len,
                              const struct err *why),
                 void *arg);
