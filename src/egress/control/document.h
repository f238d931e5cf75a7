#pragma once
/* Policies, and questions about them, as cayd sends them: JSON documents of up to CONTROL_BODY_MAX.
 * A document of DOCUMENT_SHORT_BYTES is read at once. A longer one takes milliseconds, so it is
 * read on one of libuv's helper threads, and the loop puts in force what was read.
 *
 * A single document is read at a time; the others wait, in turn by tenant. Policies of one sandbox
 * keep their order, short ones too. A document whose client has gone is dropped: cayd sends a
 * policy again that was not answered. */

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>

#define DOCUMENT_SHORT_BYTES 16384u
#define DOCUMENTS_EACH       2u  /* longer questions of a tenant, with those that wait */
#define DOCUMENTS_MAX        16u /* of all, shared by tenant (base/share.h) */

struct documents;
struct egress;
struct http_exchange;

struct document_kind {
    /* Of o, which is only read, to *out. Also on a helper thread: of eg it uses only what never
     * changes. */
    enum err_code (*read)(struct egress *eg, const json_t *o, void **out, struct err *e);
    /* On the loop: answers x. e: why it was not read, or NULL; then `read` is taken over, and o is
     * the caller's. */
    void (*take)(struct http_exchange *x, const json_t *o, void *read, const struct err *e);
    void (*drop)(void *read); /* NULL is none */
    bool ordered; /* it replaces what came before it: it waits for a place, and is not refused */
};

/* 0 or -ENOMEM. */
int documents_new(struct egress *eg, struct documents **out);

/* Waits for the thread that reads: before the process ends. */
void documents_stop(struct documents *all);

/* The body of x, which is about the sandbox in that slot, on the account of that tenant: read, and
 * then taken by its kind. Or x is answered: 429, 503. */
void document_start(struct documents *all, struct http_exchange *x,
                    const struct document_kind *kind, unsigned slot, const char *tenant, char *body,
                    size_t len);
