#pragma once
/* The last hand on HTTP before it leaves, as a filter of http's relay: puts on each
 * request what inject.c decided, so that a secret is nowhere else in the program on its way, and
 * takes secrets out of the answers.
 *
 * Requests come from http's relay, one at a time and well-formed. Answers are parsed strictly, and
 * one that cannot be, or whose body is encoded so that it cannot be searched, does not pass; gzip
 * and deflate are decompressed. */

#include "egress/credential/credential.h"
#include "egress/credential/redact.h"
#include "egress/tls/tlspipe.h"
#include "http/relay.h"

#define REWRITE_BODY_MAX  (1024u * 1024u) /* of a request that is changed or signed */
#define REWRITE_LINES_MAX (64u * 1024u)

/* One request's changes. The relay was told to leave out what is replaced here, and with `collect`
 * also Content-Length. */
struct rewrite_job {
    char *target;     /* to send instead, or NULL; malloc'd */
    struct buf lines; /* "Name: value\r\n" to add to its head */
    bool collect;     /* the body is held until it is whole: finish may change it */
    size_t body_bytes;
    bool
        chunked; /* it comes in chunks: body_bytes is the most that is held, and a longer one goes on as
                   * it is, */
    bool whole; /* but where all of it has to be known: that cuts */
    /* The whole body: may change it, and add to lines. 0 or -errno, which cuts. NULL: nothing. */
    int (*finish)(struct rewrite_job *job, struct buf *body);
    struct credential_use *use; /* that its answer may spend, or NULL; owned */
    void (*free_arg)(void *arg);
    void *arg;
};

struct rewrite_job *rewrite_job_new(void);
void rewrite_job_free(struct rewrite_job *job);

/* The same as the filter of a relay (http/relay.h): o->filter and o->filter_arg are set. job and redact
 * are taken over in every case; either may be NULL (nothing to change; nothing to look for). What
 * answers cost is of that owner's share (turns.h; NULL: no limit). 0 or -ENOMEM. */
int rewrite_relay(struct turns *turns, uint64_t owner, uv_loop_t *loop, struct rewrite_job *job,
                  struct redact *redact, struct http_relay_options *o);

/* The two directions by themselves: for rewrite_relay, tests and fuzzing. */
struct rewrite;
struct rewrite *rewrite_new(void);
void rewrite_set(struct rewrite *w, struct rewrite_job *job, struct redact *redact);
extern const struct tlspipe_filter rewrite_filter;
