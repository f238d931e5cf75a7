#pragma once
/* The other end of core's channel to cay-egress: a real server on the same loop, for units of core. */

#include "core_world.h"
#include "http/server.h"

#define PROXY_TEXT_MAX 4096

/* The requests that the other end got, and the answer that it shall give. */
struct proxy {
    struct world *w;
    struct http_server *server;
    struct http_exchange *events; /* held open while it lives */
    int status;
    bool silent; /* takes requests and says nothing */
    unsigned puts, lives, stopped, seals, tenant_cas;
    unsigned renewals;            /* asked for, and never answered */
    unsigned audits, audits_left; /* questions that it never answers; and whose caller went */
    bool no_tenant_ca;
    unsigned deliveries;
    const char *delivered; /* the answer to one; NULL: nothing */
    unsigned traces;
    const char *traced; /* the answer to them; NULL: nothing; "": 503 */
    char *trace_body;   /* the last one's; freed by proxy_stop */
    char target[PROXY_TEXT_MAX], body[PROXY_TEXT_MAX];
};

/* Listens where the world's core looks for it. stop: as if it was killed; start may follow. */
void proxy_start(struct proxy *p, struct world *w);
void proxy_stop(struct proxy *p);

/* A new core that knows of a proxy, which need not be there. ceiling: the operator's, or NULL. */
void proxy_known_to(struct world *w, const char *ceiling);
