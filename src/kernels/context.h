#pragma once
/* Contexts: a language's kernel with its variables, and the executions that wait for it.
 *
 *            begin           its kernel is ready
 *   (new) -------> STARTING --------------------> READY --its kernel ended, restart--> STARTING
 *                     | ended CONTEXT_STARTS times in a row
 *                     +---------------------------> BROKEN --restart--> STARTING
 *
 * Executions run one after the other in one context, in order of arrival; contexts run side by
 * side. In STARTING they wait; in BROKEN they end with an error that has the reason. When a kernel
 * ends by itself, what ran in it ends with the error ContextRestarting, and the context starts
 * another one under the same id. A client that goes away during its execution has the kernel
 * interrupted, CONTEXT_INTERRUPTS times a second apart, and the execution stays the context's
 * current one until the kernel is idle.
 *
 * All on one loop. The set owns the contexts; a context owns its executions. */

#include "base/err.h"
#include "kernels/execution.h"
#include "kernels/kernel.h"

#define CONTEXTS_MAX         64u /* each is a process */
#define CONTEXT_QUEUE_MAX    64u /* executions that wait, of each */
#define CONTEXT_STARTS       3u  /* kernels in a row that ended before they were ready */
#define CONTEXT_INTERRUPTS   5u
#define CONTEXT_INTERRUPT_MS 1000u
#define CONTEXT_REPLY_MS     2000u /* from one half of an end to the other */
#define CONTEXT_ID_SIZE      37

struct contexts;
struct context;

struct contexts_config {
    uv_loop_t *loop;
    void *zmq;
    const char *dir;         /* of connection files */
    const char *const *dirs; /* of kernel specifications, ends with NULL */
    const char *home;        /* where default contexts work */
};

int contexts_new(const struct contexts_config *config, struct contexts **out);

/* A waiter for a context's start: called once, when it is READY (why NULL) or not. */
struct context_waiter {
    struct context_waiter *next;
    void (*fn)(struct context_waiter *w, struct context *c, const char *why);
};

/* Makes a context. ERR_NOT_FOUND, ERR_INVALID: no such language, or no such directory;
 * ERR_EXHAUSTED. waiter may be NULL; on ERR_OK it is called later. */
enum err_code contexts_make(struct contexts *all, const char *language, const char *cwd,
                            struct context_waiter *waiter, struct context **out, struct err *e);

/* The default context of a language, made at its first use. waiter as above, where it is made. */
enum err_code contexts_default(struct contexts *all, const char *language,
                               struct context_waiter *waiter, struct context **out, struct err *e);

/* The same without a kernel until its first execution or restart. */
enum err_code contexts_reserve(struct contexts *all, const char *language, struct err *e);

struct context *contexts_find(struct contexts *all, const char *id); /* or NULL */
struct context *contexts_next(const struct contexts *all, const struct context *after);

/* Does the kernel of Python's default context start? Then requests to it wait. */
bool contexts_python_starts(const struct contexts *all);

/* Where a context works of which no directory is asked for. */
const char *contexts_home(const struct contexts *all);

const char *context_language(const struct context *c);

/* {id, language, cwd}; a new object or NULL. */
json_t *context_describe(const struct context *c);

/* Takes x, code and env over, answers x in any case. */
void context_execute(struct context *c, struct http_exchange *x, char *code, json_t *env);

/* Forgets the variables; executions that run or wait end with errors. */
void context_restart(struct context *c, struct context_waiter *waiter);

/* Waiting executions end with errors; c is freed. */
void context_remove(struct context *c);

/* No call of a waiter comes any more (its client is gone). */
void contexts_forget_waiter(struct contexts *all, struct context_waiter *w);
