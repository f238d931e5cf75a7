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
#include "egress/http/held_answer.h"
#include "egress/http/held_body.h"
#include "egress/tls/turns.h"
#include "http/relay.h"

#define REWRITE_BODY_MAX  (1024u * 1024u) /* of a request that is changed or signed */
#define REWRITE_LINES_MAX (64u * 1024u)

/* The changes of a request. The relay was told to leave out what is replaced here, and with
 * `collect` also Content-Length. */
struct rewrite_job {
    char *target;     /* to send instead, or NULL; malloc'd */
    struct buf lines; /* "Name: value\r\n" to add to its head */
    bool collect;     /* the body is held until it is whole: finish may change it */
    size_t body_bytes;
    struct held_body held; /* of the body, while it is here; the filter's when it has gone on */
    /* It comes in chunks: body_bytes is the most that is held, and a longer one goes on as it is, */
    bool chunked;
    bool whole; /* but where all of it has to be known: that cuts */
    /* The whole body: may change it, and add to lines. 0 or -errno, which cuts. NULL: nothing. */
    int (*finish)(struct rewrite_job *job, struct buf *body);
    struct credential_use *use; /* that its answer may spend, or NULL; owned */
    void (*free_arg)(void *arg);
    void *arg;
};

struct rewrite_job *rewrite_job_new(void);
void rewrite_job_free(struct rewrite_job *job);

/* Whose share the cost of an answer is part of: its time (turns.h; NULL: no limit) and its memory
 * (http/held_answer.h; NULL: likewise). */
struct rewrite_share {
    struct turns *turns;
    uint64_t owner;
    struct held_answers *answers;
    const struct share *like; /* held_answer_open's */
};

/* The same as the filter of a relay (http/relay.h): o->filter and o->filter_arg are set. job
 * and redact are taken over in every case; either may be NULL (nothing to change; nothing to
 * look for). 0 or -ENOMEM. */
int rewrite_relay(const struct rewrite_share *share, uv_loop_t *loop, struct rewrite_job *job,
                  struct redact *redact, struct http_relay_options *o);

/* The two directions by themselves: for rewrite_relay, tests and fuzzing. */
struct rewrite;
struct rewrite *rewrite_new(void);
void rewrite_free(struct rewrite *w);
void rewrite_set(struct rewrite *w, struct rewrite_job *job, struct redact *redact);

/* Is anything changed or searched? Else bytes pass as they are. */
bool rewrite_is_active(const struct rewrite *w);

/* Bytes of the request; those that go on are appended to out. -errno: the connection is cut. */
int rewrite_outward(struct rewrite *w, const char *data, size_t n, struct buf *out);

/* Bytes of the answer, likewise; the rest of them, where out has gone on (it stays empty where
 * there is none); and its end. */
int rewrite_inward(struct rewrite *w, const char *data, size_t n, struct buf *out);
int rewrite_inward_more(struct rewrite *w, struct buf *out);
int rewrite_inward_end(struct rewrite *w, struct buf *out);

/* Memory that what is kept back of the answer takes, or waits to be searched; tight: made no longer
 * than its contents before. */
size_t rewrite_held(struct rewrite *w, bool tight);

/* After how long without bytes of the answer rewrite_inward_pause is to be called, in ms; 0:
 * not at all. stalled: the reader had to be waited for, so that the sender may have had to. */
unsigned rewrite_inward_pause_ms(const struct rewrite *w, bool stalled);
int rewrite_inward_pause(struct rewrite *w, struct buf *out);
