#pragma once
/* The input of a sandbox's first process, from the task that forks it, and its steps inside the new
 * namespaces, up to exec. Private to the runtime. */

#include "base/util.h"
#include "contract/proto.h"
#include "runtime/runtime.h"
#include "sys/cgroup.h"
#include "sys/filter.h"

/* The device nodes in /dev: the usual ones, which are each sandbox's own (stage.c); a test build
 * knows more, of the host's, for the control of what the others are kept from. */
#ifdef CAY_TEST_SWITCHES
#define INSIDE_DEVICES 13
#else
#define INSIDE_DEVICES 6
#endif
#define INSIDE_DEVICES_USUAL 6

/* All descriptors are the forking task's, and end with exec. */
struct inside {
    const struct runtime_start *start;
    const struct filter *filter;
    int agent_fd;
    int lower_fd; /* detached, idmapped: the template's root */
    int view_fd;  /* detached, idmapped: the view of /sys, the layer below; negative: none */
    int mask_fd;  /* detached, idmapped: layer over the host's /usr; -1: the template has its own */
    int usr_fd;   /* detached, idmapped: the host's /usr; -1 likewise */
    int upper_fd; /* detached, idmapped: the writable layer; -1: a tmpfs is to be made */
    int archive_fd; /* detached, idmapped: the layer's archive, below it; -1: it has none */
    /* detached, idmapped: those of start->volumes; -1: there is none */
    int volume_fds[PRIVSEP_CREATE_VOLUMES];
    int stage_fd; /* detached: the tmpfs of stage_make */
    int device_fds
        [INSIDE_DEVICES]; /* the host's, detached; negative: the sandbox's own, or left out */
    int boot_fd;
    int cgroup_fds[CGROUP_ATTACH_MAX];
    int n_cgroup_fds;
    int agent_cgroup_fds
        [CGROUP_ATTACH_MAX]; /* into the agent's leaf; a command sandbox needs none */
    int n_agent_cgroup_fds;
    int oom_fd;    /* AGENT_OOM_FD, or negative */
    int status_fd; /* close-on-exec; gets a struct inside_failure when something fails */
    /* of a sandbox that runs: its tree is there; all above but the layers is used */
    bool command_sandbox;
};

struct inside_failure {
    uint32_t stage;
    int32_t status;
};

/* No descriptor is there yet: each is -1. start is borrowed; NULL for a command sandbox. */
struct inside inside_new(const struct runtime_start *start);

extern const char *const inside_devices[INSIDE_DEVICES];

/* Neither this process nor a child leaves a core, whatever they execute. 0 or -errno. */
int inside_forbid_cores(void);

/* The working directory has to be the stage directory. Does not return: execs cay-init, or
 * reports. */
NORETURN void inside_run(const struct inside *in);
