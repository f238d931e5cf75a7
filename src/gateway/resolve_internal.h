#pragma once
/* Shared by the files of a query's steps (resolve.c). */

#include "gateway/resolve.h"

#include <stdbool.h>
#include <stdint.h>

struct gateway_resolver {
    struct core *core;
    uint64_t window_ms; /* start of the second that is counted */
    unsigned searches, hashes;
};

/* The answer is an error; shaped: of the gateway's own form (struct gateway_answer). */
void resolve_refuse(struct gateway_answer *a, int status, bool shaped, const char *message);

/* The sandbox of the query; NULL with the answer filled in. */
const struct sandbox *resolve_find(struct gateway_resolver *r, const struct gateway_query *q,
                                   struct gateway_answer *a);

/* A socket in the network of sandbox a->id, then done. */
void resolve_socket(struct gateway_resolver *r, struct gateway_answer *a, gateway_resolved done,
                    void *arg);

/* Of ROUTE_VOLUME: done is called once, with the answer or the refusal. */
void resolve_volume(struct gateway_resolver *r, const struct gateway_query *q,
                    struct gateway_answer *a, gateway_resolved done, void *arg);
