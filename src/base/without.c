#include "base/without.h"

#include "base/log.h"
#include "base/util.h"

#include <errno.h>
#include <string.h>

uint32_t without_bits;

static const char *const names[WITHOUT_COUNT] = {
    [WITHOUT_SECCOMP] = "seccomp",
    [WITHOUT_SECCOMP_ARGUMENTS] = "seccomp-arguments",
    [WITHOUT_CAPABILITIES] = "capabilities",
    [WITHOUT_SUPERSET] = "superset",
    [WITHOUT_AGENT_UID] = "agent-uid",
    [WITHOUT_AGENT_KEY] = "agent-key",
    [WITHOUT_UNDUMPABLE] = "undumpable",
    [WITHOUT_UNREADABLE] = "unreadable",
    [WITHOUT_DESCRIPTORS] = "descriptors",
    [WITHOUT_MASKS] = "masks",
    [WITHOUT_READ_ONLY] = "read-only",
    [WITHOUT_DEVICES] = "devices",
    [WITHOUT_OWN_NODES] = "own-nodes",
    [WITHOUT_USERNS_LIMIT] = "userns-limit",
    [WITHOUT_NETWORK_RULES] = "network-rules",
    [WITHOUT_NETWORK_NAMESPACE] = "network-namespace",
    [WITHOUT_IPC_NAMESPACE] = "ipc-namespace",
    [WITHOUT_CGROUP_NAMESPACE] = "cgroup-namespace",
    [WITHOUT_OWN_COUNTS] = "own-counts",
    [WITHOUT_RLIMITS] = "rlimits",
    [WITHOUT_LIMITS] = "limits",
    [WITHOUT_DISK_LIMIT] = "disk-limit",
    [WITHOUT_LOGIN_UID] = "login-uid",
    [WITHOUT_NETWORK_BOUNDS] = "network-bounds",
};

int without_add(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (strcmp(names[i], name) == 0) {
            without_bits |= UINT32_C(1) << i;
            log_warn("TEST BUILD: the defence '%s' is switched off", name);
            return 0;
        }
    }
    return -EINVAL;
}
