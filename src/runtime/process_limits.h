#pragma once
/* Translates a sandbox's limits to those of its control groups. Private to the runtime. */

#include "contract/proto.h"
#include "sys/cgroup.h"

struct runtime;

/* Of CGROUP_WORK, or CGROUP_WHOLE, which has what PID 1 may use besides (process.c). */
struct cgroup_limits process_limits(const struct runtime *rt, enum cgroup_leaf leaf,
                                    const struct privsep_limits *l);
