#pragma once
/* A connection loop: one thread, one uv loop, one HTTP server on the shared listener. It parses,
 * answers and relays; for state it asks the control loop. */

#include "cayd/control.h"
#include "http/layer.h"

#define CONNLOOP_LISTENERS_MAX 2 /* both loopback addresses */

struct connloop;

struct connloop_config {
    struct control *control;
    int listen_fds[CONNLOOP_LISTENERS_MAX]; /* duplicated */
    size_t n_listen;
    size_t max_connections;
    struct http_layer layer;   /* TLS, or none */
    uint64_t agent_timeout_ms; /* for the begin of a sandbox's agent's answer */
    unsigned number;
    /* On the connection loop's thread, once, when it has ended after connloop_stop. */
    void (*ended)(void *arg);
    void *ended_arg;
};

/* Starts the thread. It serves from when connloop_serve was called, once. 0 or
 * -errno. */
int connloop_start(const struct connloop_config *config, struct connloop **out);
void connloop_serve(struct connloop *l);

/* Any thread, once: no new requests; ends when the running ones ended or were cut after
 * grace_ms. */
void connloop_stop(struct connloop *l, uint64_t grace_ms);

/* The control loop's thread: that sandbox has been paused, after every answer about it that was
 * sent before. */
void connloop_paused(struct connloop *l, const char *id);

/* The same: that key opens nothing any more, and what it has opened ends. */
void connloop_key_revoked(struct connloop *l, const char *key_id);

/* Waits for the thread and frees. After it ended and the control loop answers no more. */
void connloop_join(struct connloop *l);
