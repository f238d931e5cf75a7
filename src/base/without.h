#pragma once
/* Defences that a test build can switch off one by one, so that each attempt of test/probe is shown to
 * succeed where its defence is missing (positive controls; docs/security-tests.md).
 *
 * Only a build with -Dtest_switches=true contains any of this: in every other WITHOUT(X) is the constant
 * false, no option --without exists, and a scenario checks that. The set belongs to the process: cay-privd
 * fills it from its arguments, cay-init from its boot block's flags. */

#include <stdbool.h>
#include <stdint.h>

#ifdef CAY_TEST_SWITCHES
enum without {
    WITHOUT_SECCOMP,           /* both system call filters */
    WITHOUT_SECCOMP_ARGUMENTS, /* the second of them, on arguments */
    WITHOUT_CAPABILITIES,      /* children may have all but PID 1's own */
    WITHOUT_SUPERSET,          /* children may have what PID 1 has */
    WITHOUT_AGENT_UID,         /* PID 1 is the sandbox's root */
    WITHOUT_AGENT_KEY,         /* PID 1 serves whoever asks */
    WITHOUT_UNDUMPABLE,        /* PID 1 is dumpable */
    WITHOUT_UNREADABLE,    /* the file of PID 1 may be read, which makes its memory its user's */
    WITHOUT_DESCRIPTORS,   /* descriptors of PID 1 are not closed in children */
    WITHOUT_MASKS,         /* nothing in /proc and /sys is hidden */
    WITHOUT_READ_ONLY,     /* nothing in /proc and /sys is read-only */
    WITHOUT_DEVICES,       /* more of the host's device nodes are bound */
    WITHOUT_OWN_NODES,     /* the usual device nodes are the host's, too */
    WITHOUT_USERNS_LIMIT,  /* nested user namespaces are not forbidden by number */
    WITHOUT_NETWORK_RULES, /* nothing in the network namespace is rejected */
    WITHOUT_NETWORK_NAMESPACE, /* the network namespace is the starter's */
    WITHOUT_IPC_NAMESPACE,
    WITHOUT_CGROUP_NAMESPACE,
    WITHOUT_OWN_COUNTS, /* per-user counts of the kernel are those of the host's root */
    WITHOUT_RLIMITS,    /* core size, locked memory, priorities */
    WITHOUT_LIMITS,     /* memory, pids, cpu */
    WITHOUT_DISK_LIMIT,
    WITHOUT_LOGIN_UID,      /* programs may take on a login uid of the host's audit */
    WITHOUT_NETWORK_BOUNDS, /* sysctls of the network namespace are the kernel's */
    WITHOUT_COUNT
};

extern uint32_t without_bits;

#define WITHOUT(x) (without_bits >> WITHOUT_##x & 1)

/* Adds one by its name (the enum's in small letters, with dashes) and warns of it in the log. 0, or
 * -EINVAL for an unknown name. */
int without_add(const char *name);
#else
#define WITHOUT(x) false
#endif
