#pragma once
/* The control loop's half of the gateway: which sandbox, may this request reach it, and a socket
 * into its network. Queries and answers are plain data that cross threads by value; a descriptor in
 * an answer belongs to the holder of the answer. Never blocks. */

#include "gateway/access.h"
#include "gateway/route.h"

struct gateway_query {
    enum route_kind kind; /* ROUTE_SANDBOX, ROUTE_SIGNED, ROUTE_KEYED, ROUTE_FILE_URL or
                           ROUTE_VOLUME */
    char id[IDS_SANDBOX_SIZE];
    /* of a ROUTE_KEYED query: an id or its owner's name for it */
    char name[CORE_SANDBOX_NAME_SIZE];
    uint16_t port;
    bool writes;        /* of ROUTE_VOLUME: it changes something */
    bool internal_path; /* the agent's port, and a path that is not for the outside */
    uint32_t
        idle_gen; /* the generation that the requester has an idle agent connection to; 0 none */
    struct access access;
};

struct gateway_answer {
    int status;  /* 0: go on. Else the HTTP status to answer with message */
    bool shaped; /* the error is the gateway's own form (with sandboxId), not the agent's */
    char message[ACCESS_MESSAGE_SIZE];
    char id[IDS_SANDBOX_SIZE];
    char tenant[CORE_TENANT_SIZE]; /* the owner, where status is 0 */
    bool anonymous; /* the request brought no key, token or signature, and needed none */
    uint16_t port;
    uint32_t slot, gen;
    uint8_t agent_key[PRIVSEP_KEY_SIZE];
    char host[256]; /* the Host to send; "": the client's own */
    bool of_volume; /* a server there serves a volume's contents */
    bool connected; /* fd is an idle connection: set by the requester */
    int fd;         /* unconnected, non-blocking; -1: use the idle connection */
};

typedef void (*gateway_resolved)(void *arg, struct gateway_answer *answer);

struct gateway_resolver;

struct gateway_resolver *gateway_resolver_new(struct core *core);
void gateway_resolver_free(struct gateway_resolver *r);

/* done exactly once, perhaps before this returns; q is only read and belongs to the caller. It must
 * stay until done was called. A request for a paused sandbox resumes it first, once it is known to
 * be allowed, where its owner wants that (autoResume) or another client resumes it already. */
void gateway_resolve(struct gateway_resolver *r, const struct gateway_query *q,
                     gateway_resolved done, void *arg);
