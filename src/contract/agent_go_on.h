#pragma once
/* How cay-privd speaks with the cay-init of a sandbox whose processes are kept on disk or come from
 * there: over a SOCK_SEQPACKET socket with this abstract name in the sandbox's network namespace,
 * which cay-init binds before any program of a tenant runs, and never closes. It hears peers
 * outside of its pid namespace alone (SO_PEERCRED says pid 0), one message of each.
 *
 * TAKE, before a dump: cay-init drops its connections, closes the files that are the host's (the
 * filters' listener, those of control groups) and becomes dumpable. Its answer is AGENT_READY, or
 * AGENT_FAILED and a NUL-terminated sentence; then it closes the connection.
 * BACK, after a dump that was refused, with those files: it serves on as before. The same answers.
 * NEW, after a restore, with the boot socket and those files: it does what it does at a start from
 * the boot socket (agent_boot.h), whose peer gets the answer; nothing is answered here. The message
 * may wait in the socket before the processes go on. */

#include "contract/agent_boot.h"

#define AGENT_GO_ON_NAME "cay-init" /* behind a NUL byte, which is its first */

#define AGENT_GO_ON_TAKE 1u
#define AGENT_GO_ON_BACK 2u
#define AGENT_GO_ON_NEW  3u

#define AGENT_GO_ON_FDS_MAX (3 + AGENT_CGROUP_FDS_MAX)
#define AGENT_GO_ON_TEXT    160 /* of an answer, NUL included */

/* Descriptors come in this order: the boot socket (NEW), the listener, those of control groups, the
 * count of processes that were killed at the memory limit. */
struct agent_go_on {
    uint32_t kind;
    uint32_t listener;   /* 1: it is there */
    uint32_t cgroup_fds; /* how many */
    uint32_t oom;        /* 1: it is there */
};
