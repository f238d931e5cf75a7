#pragma once
/* The last hand on HTTP before it leaves, as a filter of a tlspipe towards a server: puts on each
 * request what inject.c decided, so that a secret is nowhere else in the program on its way, and
 * takes secrets out of the answers.
 *
 * Requests come from http's relay, one at a time and well-formed. Answers are parsed strictly, and
 * one that cannot be, or whose body is encoded so that it cannot be searched, does not pass; gzip
 * and deflate are decompressed. */

#include "egress/credential/credential.h"
#include "egress/credential/redact.h"
#include "egress/tls/tlspipe.h"

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

/* Before the next request is written to p's plain end: both are taken over; either may be NULL
 * (nothing to change; nothing to look for). 0 or -ENOMEM. */
int rewrite_prepare(struct tlspipe *p, struct rewrite_job *job, struct redact *redact);

/* Has it a filter already? Then the next request needs rewrite_prepare too. */
bool rewrite_has(const struct tlspipe *p);

/* The filter without a pipe: for tests and fuzzing. */
struct rewrite;
struct rewrite *rewrite_new(void);
void rewrite_set(struct rewrite *w, struct rewrite_job *job, struct redact *redact);
extern const struct tlspipe_filter rewrite_filter;
