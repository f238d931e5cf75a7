#pragma once
/* Bounds the memory of a sandbox's network namespace that its sockets are not charged with:
 * settings of the kernel (docs/kernel-pools.md), written in each new one (runtime/rootfs_proc.c).
 * Older kernels have some of them once for the whole host; they are then not to be seen in a
 * sandbox's, are left alone, and `cay doctor` says which. */

#include <stdint.h>

/* Connections that have ended are remembered for a minute, 256 bytes each; beyond, they are
 * forgotten. */
#define TIME_WAIT_MAX                 1024
#define TIME_WAIT_COMMAND_SANDBOX_MAX 256
/* The most that options of one socket may allocate: the kernel's own value before 6.6. */
#define SOCKET_OPTIONS_BYTES (20 * 1024)
/* How long a connection that has ended, or a question, is tracked. */
#define TRACK_SECONDS 10

#define NET_BOUNDS 8

static const struct net_bound {
    const char *path; /* below /proc */
    uint32_t value, of_command_sandbox;
} net_bounds[NET_BOUNDS] = {
    {"sys/net/ipv4/tcp_max_tw_buckets", TIME_WAIT_MAX, TIME_WAIT_COMMAND_SANDBOX_MAX},
    {"sys/net/core/optmem_max", SOCKET_OPTIONS_BYTES, SOCKET_OPTIONS_BYTES},
    /* No copies of what was sent in the queue of errors, asked for by a message that no filter
     * sees. */
    {"sys/net/core/tstamp_allow_data", 0, 0},
    /* Each connection to cay-egress and each question is remembered in 320 bytes: the rules let 500
     * new ones a second through (nft.h), and the kernel's own two minutes for what has ended, or
     * was never answered, would keep 60,000. A connection that is open or half closed keeps the
     * kernel's times. */
    {"sys/net/netfilter/nf_conntrack_tcp_timeout_time_wait", TRACK_SECONDS, TRACK_SECONDS},
    {"sys/net/netfilter/nf_conntrack_tcp_timeout_syn_sent", TRACK_SECONDS, TRACK_SECONDS},
    {"sys/net/netfilter/nf_conntrack_tcp_timeout_last_ack", TRACK_SECONDS, TRACK_SECONDS},
    {"sys/net/netfilter/nf_conntrack_udp_timeout", TRACK_SECONDS, TRACK_SECONDS},
    {"sys/net/netfilter/nf_conntrack_udp_timeout_stream", TRACK_SECONDS, TRACK_SECONDS},
};
