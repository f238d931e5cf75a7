#pragma once
/* struct egress: the state of the process cay-egress. It has one libuv loop and one thread; nothing
 * here blocks. Each part of it is its file's, which alone changes it. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

struct audit;
struct audit_queries;
struct control;
struct deliveries;
struct dialer;
struct documents;
struct event_stream;
struct forward;
struct handshake;
struct hostaddr;
struct https_call;
struct intercept;
struct otlp_url;
struct registry;
struct renewals;
struct resolver;
struct share_pool;
struct tunnels;
struct turns;
struct upstream;

#define EGRESS_FLOWS_MAX 16384u /* of all sandboxes; less where descriptors are few */

struct egress_config {
    const char *state_dir; /* of egress alone, 0700 */
    uint32_t shard, shards;
    uid_t peer_uid;          /* cayd's */
    const char *dns_servers; /* "192.0.2.1,[2001:db8::1]:53", or NULL for the host's */
    bool offline;
    struct upstream *upstream;        /* for all sandboxes, or NULL */
    const struct otlp_url *collector; /* of traces; NULL: there are none */
    uint32_t connections, connections_per_second, requests_per_second; /* for each sandbox */
    uint32_t connect_timeout_ms;
    uint64_t idle_timeout_ms;
    uint64_t audit_size_bytes;
    uint32_t audit_files;
    uint32_t flows_max; /* of all, from RLIMIT_NOFILE */
};

struct egress {
    uv_loop_t *loop;
    struct egress_config config;
    unsigned char names_key[32]; /* NAMES_KEY_BYTES: of all sandboxes' */
    unsigned char *names_left;   /* of names_kept.c; NULL: none */
    struct registry *registry;
    struct hostaddr *hostaddr;
    struct resolver *resolver;
    struct dialer *dialer;
    struct handshake *handshakes; /* with upstream proxies: upstream.c */
    uint64_t last_handshake;      /* its id */
    struct turns *turns;          /* before what uses it; outlives it */
    struct tunnels *tunnels;
    struct forward *forward;
    struct share_pool *ask_shares; /* ASKS_MAX */
    struct audit *audit;
    struct audit_queries *audit_queries;
    struct documents *documents; /* of cayd's, that are read */
    struct control *control;
    struct event_stream *event_stream; /* control.c's */
    struct https_call *https_calls;    /* that are dialled */
    uint64_t last_https_call;
    struct deliveries *deliveries;
    unsigned collector_posts; /* under way */
    struct renewals *renewals;
    struct intercept
        *intercept; /* NULL: TLS is not read, and no credential is put on a request (tests) */
};
