#pragma once
/* TLS handshakes, of both sides, on sockets that are connected: so many at a time, each for so
 * long. Everything is on one loop; nothing blocks, nothing is called back from inside a call. */

#include "base/err.h"
#include "egress/tls/tls_endpoint.h"

#include <openssl/ssl.h>
#include <stdint.h>
#include <uv.h>

/* That one loop has in progress, shared out by tenant and sandbox (base/share.h): one more than its
 * share ends the oldest of the same sandbox, else of the same tenant. */
#define TLSHAND_MAX 1024u

struct tlshands;
struct tlshand;
struct turns;

struct tlshand_options {
    int fd;   /* connected, non-blocking; taken over on success */
    SSL *ssl; /* with its side, names and protocols set; taken over in every case */
    bool server;
    const char *tenant; /* NULL: none's */
    uint64_t
        owner; /* its sandbox, whose place it takes, and whose share of the loop's time (turns.h) */
    uint64_t timeout_ms;
    /* Once, unless tlshand_close comes first: the end, which is the callee's to take (copied), or
     * NULL and why. */
    void (*on_done)(void *arg, const struct tls_endpoint *end, const struct err *why);
    void *arg;
};

int tlshands_new(uv_loop_t *loop, struct tlshands **out);

/* Their time is shared out from now on; t outlives all. A step of one costs up to some milliseconds
 * (a signature). */
void tlshands_set_turns(struct tlshands *all, struct turns *t);

/* Closes every one; freed when the loop has turned. */
void tlshands_free(struct tlshands *all);
size_t tlshands_count(const struct tlshands *all);

/* 0 or -errno: -EBUSY where the others hold what there is. *out (may be NULL) is valid until
 * on_done is called. */
int tlshand_start(struct tlshands *all, const struct tlshand_options *o, struct tlshand **out);
void tlshand_close(struct tlshand *h);

/* Was it agreed to speak HTTP/2 there? */
bool tlshand_is_h2(const struct tls_endpoint *end);

/* Why a handshake failed, in words: the fault of a server's certificate, or OpenSSL's words (may be
 * NULL). For tests too. */
void tlshand_explain(const SSL *ssl, const char *reason, struct err *e);
