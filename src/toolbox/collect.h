#pragma once
/* An agent's answer that is collected whole, bounded by the loop's pool: the first
 * TOOLBOX_OUTPUT_BYTES need no place, and each further TOOLBOX_OUTPUT_BLOCK takes a place of
 * `outputs`, on the account of the sandbox and its tenant. The holder owns bytes and places until
 * collect_free. */

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>

#define TOOLBOX_OUTPUT_BYTES (256u * 1024u) /* of a program or an answer, without a place */
/* Each further OUTPUT_BLOCK takes one of OUTPUTS_MAX places. */
#define TOOLBOX_OUTPUT_BLOCK (1024u * 1024u)
#define TOOLBOX_OUTPUTS_MAX  256u /* on one loop, shared out by tenant and sandbox (base/share.h) */
/* The longest answer of an agent that is collected: a list of files. */
#define TOOLBOX_COLLECTED_MAX (32u * 1024u * 1024u)

struct share;
struct toolbox_call;

struct collected {
    struct toolbox_call *call; /* the call whose account it is; borrowed */
    struct buf bytes;
    struct share *shares[TOOLBOX_COLLECTED_MAX / TOOLBOX_OUTPUT_BLOCK];
    size_t share_count;
    enum err_code refused; /* not ERR_OK: why no more is taken */
};

/* max_bytes: at most TOOLBOX_COLLECTED_MAX. */
void collect_init(struct collected *k, struct toolbox_call *c, size_t max_bytes);
void collect_free(struct collected *k);

/* False, and then always: k->refused says why (ERR_TOO_LARGE, ERR_EXHAUSTED: no place,
 * ERR_UNAVAILABLE: memory is out). */
bool collect_add(struct collected *k, const char *data, size_t len) WARN_UNUSED;

/* The collected bytes, and a NUL after them. */
const char *collect_text(const struct collected *k);

/* A sentence for k->refused. */
const char *collect_refusal(const struct collected *k);
