#pragma once
/* Parts of a request that can be made only when its body is there: AWS's signature of it, and
 * placeholders in it. Everything of it is a copy, so that the request itself may be gone. Internal
 * to inject.c. */

#include "egress/credential/credential.h"
#include "egress/credential/placeholder.h"
#include "egress/http/rewrite.h"
#include "http/message.h"

struct late;

/* Is told of the credentials whose placeholders a body had, before the request leaves. id and arg
 * are its own; injected NULL: it is not told. */
struct inject_watch {
    void (*injected)(void *arg, uint64_t id, const char *method, const char *path,
                     const char *names);
    void *arg;
    uint64_t id;
};

struct late_request {
    struct credentials *credentials; /* a reference is taken */
    const struct http_head *head;
    const char *host; /* normalized: what credentials are bound to */
    uint16_t port;
    uint64_t named; /* struct inject_request's */
    struct policy_transport transport;
    struct inject_watch watch;
    const struct held_bodies *bodies;
    bool replace;                  /* placeholders in the body */
    enum placeholder_escape how;   /* they are replaced by */
    const struct credential *sign; /* aws-sigv4, or NULL */
    const char *target;            /* as it will be sent */
    bool (*is_removed)(const void *arg, const char *name);
    const void *arg;
};

/* Gives job what it has to do. *without: NULL-terminated names of the client's headers that have to
 * be left out. Content-Length has to be, too, where job->collect is set. ERR_EXHAUSTED: its body
 * may not be held now. */
enum err_code late_prepare(struct rewrite_job *job, const struct late_request *r,
                           const char *const **without, struct err *e);
