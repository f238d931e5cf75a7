#include "base/test_bypass.h"

#include "base/log.h"
#include "base/util.h"

#include <errno.h>
#include <string.h>

uint32_t test_bypass_bits;

static const char *const names[TEST_BYPASS_COUNT] = {
    [TEST_BYPASS_SECCOMP] = "seccomp",
    [TEST_BYPASS_SECCOMP_ARGUMENTS] = "seccomp-arguments",
    [TEST_BYPASS_CAPABILITIES] = "capabilities",
    [TEST_BYPASS_SUPERSET] = "superset",
    [TEST_BYPASS_AGENT_UID] = "agent-uid",
    [TEST_BYPASS_AGENT_KEY] = "agent-key",
    [TEST_BYPASS_UNDUMPABLE] = "undumpable",
    [TEST_BYPASS_UNREADABLE] = "unreadable",
    [TEST_BYPASS_DESCRIPTORS] = "descriptors",
    [TEST_BYPASS_MASKS] = "masks",
    [TEST_BYPASS_READ_ONLY] = "read-only",
    [TEST_BYPASS_DEVICES] = "devices",
    [TEST_BYPASS_OWN_NODES] = "own-nodes",
    [TEST_BYPASS_USERNS_LIMIT] = "userns-limit",
    [TEST_BYPASS_NETWORK_RULES] = "network-rules",
    [TEST_BYPASS_NETWORK_NAMESPACE] = "network-namespace",
    [TEST_BYPASS_IPC_NAMESPACE] = "ipc-namespace",
    [TEST_BYPASS_CGROUP_NAMESPACE] = "cgroup-namespace",
    [TEST_BYPASS_OWN_COUNTS] = "own-counts",
    [TEST_BYPASS_RLIMITS] = "rlimits",
    [TEST_BYPASS_LIMITS] = "limits",
    [TEST_BYPASS_DISK_LIMIT] = "disk-limit",
    [TEST_BYPASS_LOGIN_UID] = "login-uid",
    [TEST_BYPASS_NETWORK_BOUNDS] = "network-bounds",
    [TEST_BYPASS_LOCK_WATCH] = "lock-watch",
};

int test_bypass_add(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (strcmp(names[i], name) == 0) {
            test_bypass_bits |= UINT32_C(1) << i;
            log_warn("TEST BUILD: the defence '%s' is switched off", name);
            return 0;
        }
    }
    return -EINVAL;
}
