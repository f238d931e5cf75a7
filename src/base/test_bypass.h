#pragma once
/* Defences that a test build can switch off one by one, so that each attempt of test/probe is shown
 * to succeed where its defence is missing (positive controls; docs/reports/security-tests.md).
 *
 * Only a build with -Dtest_switches=true contains any of this: in every other TEST_BYPASS(X) is the
 * constant false, no option --without exists, and a scenario checks that. The set belongs to the
 * process: cay-privd fills it from its arguments, cay-init from its boot block's flags. */

#include <stdbool.h>
#include <stdint.h>

#ifdef CAY_TEST_SWITCHES
enum test_bypass {
    TEST_BYPASS_SECCOMP,           /* both system call filters */
    TEST_BYPASS_SECCOMP_ARGUMENTS, /* the second of them, on arguments */
    TEST_BYPASS_CAPABILITIES,      /* children may have all but PID 1's own */
    TEST_BYPASS_SUPERSET,          /* children may have what PID 1 has */
    TEST_BYPASS_AGENT_UID,         /* PID 1 is the sandbox's root */
    TEST_BYPASS_AGENT_KEY,         /* PID 1 serves without the key */
    TEST_BYPASS_UNDUMPABLE,        /* PID 1 is dumpable */
    TEST_BYPASS_UNREADABLE,   /* the file of PID 1 may be read, which makes its memory its user's */
    TEST_BYPASS_DESCRIPTORS,  /* descriptors of PID 1 are not closed in children */
    TEST_BYPASS_MASKS,        /* nothing in /proc and /sys is hidden */
    TEST_BYPASS_READ_ONLY,    /* nothing in /proc and /sys is read-only */
    TEST_BYPASS_DEVICES,      /* more of the host's device nodes are bound */
    TEST_BYPASS_OWN_NODES,    /* the usual device nodes are the host's, too */
    TEST_BYPASS_USERNS_LIMIT, /* nested user namespaces are not forbidden by number */
    TEST_BYPASS_NETWORK_RULES,     /* nothing in the network namespace is rejected */
    TEST_BYPASS_NETWORK_NAMESPACE, /* the network namespace is the starter's */
    TEST_BYPASS_IPC_NAMESPACE,
    TEST_BYPASS_CGROUP_NAMESPACE,
    TEST_BYPASS_OWN_COUNTS, /* per-user counts of the kernel are those of the host's root */
    TEST_BYPASS_RLIMITS,    /* core size, locked memory, priorities */
    TEST_BYPASS_LIMITS,     /* memory, pids, cpu */
    TEST_BYPASS_DISK_LIMIT,
    TEST_BYPASS_LOGIN_UID,      /* programs may take on a login uid of the host's audit */
    TEST_BYPASS_NETWORK_BOUNDS, /* sysctls of the network namespace are the kernel's */
    TEST_BYPASS_LOCK_WATCH,     /* locks on ranges of files are not counted */
    TEST_BYPASS_COUNT
};

extern uint32_t test_bypass_bits;

#define TEST_BYPASS(x) (test_bypass_bits >> TEST_BYPASS_##x & 1)

/* Adds one by its name (the enum's in small letters, with dashes) and warns of it in the log. 0, or
 * -EINVAL for an unknown name. */
int test_bypass_add(const char *name);
#else
#define TEST_BYPASS(x) false
#endif
